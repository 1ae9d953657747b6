"""A fake SMTP server with STARTTLS and AUTH, which rejects violations of the standards.

- RFC 5321: order of commands (503), unknown ones (500), mailboxes that do not exist (550),
  trouble that passes (4yz), lines of at most 998 octets, a message too large (552), 8BITMIME.
- RFC 3207: STARTTLS, after which all earlier state is discarded; 530 if it is required.
- RFC 4954: AUTH PLAIN and LOGIN, offered over TLS alone unless `plain_auth`; 535 for bad
  credentials, 530 where they are required, 538 where TLS is.
- RFC 5322 §3.6: a message has exactly one From and one Date, and at most one of Subject, To and
  Message-ID; RFC 2047: headers are ASCII.
"""

from __future__ import annotations

import base64
import re
import socketserver
import ssl
import threading
from collections import deque
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from types import TracebackType
from typing import Self

from tests.waiting import WAIT_LIMIT

USER, PASSWORD = "gateway@example.org", "canary-smtp-password"
MAILBOXES = ("me@example.org", "you@example.org", "zoë@example.org")
LARGEST = 100_000
LONGEST_LINE = 1000
_PATH = re.compile(r"(?:FROM|TO):<([^<>\s]*)>(.*)", re.IGNORECASE)


@dataclass(frozen=True)
class Mail:
    sender: str
    recipients: tuple[str, ...]
    raw: bytes
    encrypted: bool

    @property
    def message(self) -> EmailMessage:
        parsed = message_from_bytes(self.raw, policy=policy.default)
        assert isinstance(parsed, EmailMessage)
        return parsed

    @property
    def text(self) -> str:
        return str(self.message.get_content())


@dataclass
class Mischief:
    verb: str
    reply: str
    """For example `421 gone`; empty: close the connection; `hang`: send nothing more."""


class MailServer:
    """With `implicit`, TLS starts with the connection; without `context` there is no TLS."""

    def __init__(
        self,
        context: ssl.SSLContext | None = None,
        *,
        implicit: bool = False,
        plain_auth: bool = False,
        auth: bool = True,
    ) -> None:
        self.context, self.implicit, self.plain_auth, self.auth = (
            context,
            implicit,
            plain_auth,
            auth,
        )
        self.mails: list[Mail] = []
        self.refusals: list[str] = []
        self.lines: list[str] = []
        """The lines that clients sent, without messages."""
        self.closing = threading.Event()
        self._scripted: deque[Mischief] = deque()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def inbox(self) -> list[tuple[str, str]]:
        """Recipient and Message-ID of every mail."""
        return [
            (to, str(mail.message["Message-ID"])) for mail in self.mails for to in mail.recipients
        ]

    def next(self, verb: str, *replies: str) -> None:
        """Script the replies to the next commands; `.` is the end of a message."""
        self._scripted.extend(Mischief(verb, reply) for reply in replies)

    def mischief(self, verb: str) -> str | None:
        for index, one in enumerate(self._scripted):
            if one.verb == verb:
                del self._scripted[index]
                return one.reply
        return None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of clients that close the connection early."""


class _HangUp(Exception):
    pass


@dataclass
class _Session:
    greeted: bool = False
    user: bool = False
    sender: str | None = None
    recipients: list[str] = field(default_factory=list)


def _handler(server: MailServer) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        timeout = 30

        def handle(self) -> None:
            self.session = _Session()
            self.encrypted = False
            try:
                if server.implicit:
                    self._secure()
                self._say(server.mischief("CONNECT") or "220 mail.example.org ESMTP")
                while line := self.rfile.readline(LONGEST_LINE + 2):
                    self._answer(line.decode("utf-8", "replace").rstrip("\r\n"))
            except (_HangUp, OSError):
                return

        def _secure(self) -> None:
            assert server.context is not None
            self.request = self.connection = server.context.wrap_socket(
                self.connection, server_side=True
            )
            self.rfile = self.connection.makefile("rb", -1)
            self.wfile = socketserver._SocketWriter(self.connection)  # type: ignore[attr-defined]
            self.encrypted = True
            self.session = _Session()

        def finish(self) -> None:
            try:
                super().finish()
                self.connection.close()
            except OSError:
                pass

        def _say(self, text: str) -> None:
            if text == "hang":
                server.closing.wait(WAIT_LIMIT)
                raise _HangUp
            if not text:
                raise _HangUp
            self.wfile.write(f"{text}\r\n".encode())
            if text.startswith("421"):
                raise _HangUp

        def _no(self, text: str) -> None:
            server.refusals.append(text)
            self._say(text)

        def _answer(self, line: str) -> None:
            verb, _, rest = line.partition(" ")
            verb = verb.upper()
            server.lines.append(f"{verb} ..." if verb == "AUTH" else line)
            reply = server.mischief(verb)
            if reply is not None:
                self._say(reply)
                return
            command = getattr(self, f"_do_{verb.lower()}", None)
            if command is None:
                self._no("500 5.5.2 command unrecognized")
            else:
                command(rest)

        def _do_ehlo(self, rest: str) -> None:
            if not rest:
                return self._no("501 5.5.4 a name is required")
            self.session = _Session(greeted=True)
            offers = ["mail.example.org", f"SIZE {LARGEST}", "8BITMIME"]
            if server.context is not None and not self.encrypted:
                offers.append("STARTTLS")
            if server.auth and (self.encrypted or server.plain_auth):
                offers.append("AUTH PLAIN LOGIN")
            for offer in offers[:-1]:
                self._say(f"250-{offer}")
            return self._say(f"250 {offers[-1]}")

        def _do_starttls(self, _rest: str) -> None:
            if server.context is None or self.encrypted:
                return self._no("502 5.5.1 not offered")
            self._say("220 2.0.0 go ahead")
            return self._secure()

        def _do_auth(self, rest: str) -> None:
            if not self.session.greeted or self.session.user:
                return self._no("503 5.5.1 out of order")
            if not (self.encrypted or server.plain_auth):
                return self._no("538 5.7.11 encryption required")
            mechanism, _, initial = rest.partition(" ")
            if mechanism.upper() == "PLAIN":
                given = self._asked(initial, "").split("\0")[1:]
            elif mechanism.upper() == "LOGIN":
                given = [self._asked(initial, "Username:"), self._asked("", "Password:")]
            else:
                return self._no("504 5.5.4 mechanism not known")
            if given != [USER, PASSWORD]:
                return self._no("535 5.7.8 authentication credentials invalid")
            self.session.user = True
            return self._say("235 2.7.0 welcome")

        def _asked(self, initial: str, prompt: str) -> str:
            if not initial:
                self._say(f"334 {base64.b64encode(prompt.encode()).decode()}".strip())
                initial = self.rfile.readline(LONGEST_LINE).decode().strip()
            try:
                return base64.b64decode(initial, validate=True).decode()
            except ValueError:
                return ""

        def _do_mail(self, rest: str) -> None:
            session = self.session
            if not session.greeted or session.sender is not None:
                return self._no("503 5.5.1 out of order")
            if server.context is not None and not self.encrypted:
                return self._no("530 5.7.0 STARTTLS first")
            if server.auth and not session.user:
                return self._no("530 5.7.0 authentication required")
            path = _PATH.fullmatch(rest)
            if path is None:
                return self._no("501 5.5.4 syntax")
            size = re.search(r"SIZE=(\d+)", path[2], re.IGNORECASE)
            if size and int(size[1]) > LARGEST:
                return self._no("552 5.3.4 message too large")
            session.sender = path[1]
            return self._say("250 2.1.0 ok")

        def _do_rcpt(self, rest: str) -> None:
            path = _PATH.fullmatch(rest)
            if self.session.sender is None:
                return self._no("503 5.5.1 out of order")
            if path is None or path[1] not in MAILBOXES:
                return self._no("550 5.1.1 no such mailbox")
            self.session.recipients.append(path[1])
            return self._say("250 2.1.5 ok")

        def _do_data(self, _rest: str) -> None:
            session = self.session
            if not session.recipients or session.sender is None:
                return self._no("503 5.5.1 out of order")
            self._say("354 go ahead")
            lines = []
            while (line := self.rfile.readline(LONGEST_LINE + 2)) not in (b".\r\n", b""):
                if len(line) > LONGEST_LINE or not line.endswith(b"\r\n"):
                    self._no("500 5.5.2 line too long")
                    raise _HangUp
                lines.append(line[1:] if line.startswith(b".") else line)
            raw = b"".join(lines)
            problem = _problem(raw)
            if problem is not None:
                return self._no(problem)
            reply = server.mischief(".")
            if reply is None or not reply.startswith(("4", "5")):
                recipients = tuple(session.recipients)
                server.mails.append(Mail(session.sender, recipients, raw, self.encrypted))
            session.sender, session.recipients = None, []
            return self._say("250 2.0.0 queued" if reply is None else reply)

        def _do_rset(self, _rest: str) -> None:
            self.session.sender, self.session.recipients = None, []
            self._say("250 2.0.0 ok")

        def _do_noop(self, _rest: str) -> None:
            self._say("250 2.0.0 ok")

        def _do_quit(self, _rest: str) -> None:
            self._say("221 2.0.0 bye")
            raise _HangUp

    return Handler


def _problem(raw: bytes) -> str | None:
    """The error of a message, or None."""
    if len(raw) > LARGEST:
        return "552 5.3.4 message too large"
    head = raw.partition(b"\r\n\r\n")[0]
    if not head.isascii():
        return "550 5.6.7 headers must be ASCII"
    names = [
        line.partition(b":")[0].lower() for line in head.split(b"\r\n") if line[:1] not in b" \t"
    ]
    if names.count(b"from") != 1 or names.count(b"date") != 1:
        return "550 5.6.0 exactly one From and one Date are required"
    if any(names.count(name) > 1 for name in (b"subject", b"to", b"message-id")):
        return "550 5.6.0 repeated header"
    return None
