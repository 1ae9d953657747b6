"""Mail over SMTP: one message a recipient, under a Message-ID that a retry repeats."""

from __future__ import annotations

from alarm import Alarm
from channel import Channel
from protocol import Failure, Misconfigured

TYPE_CHECKING = False
if TYPE_CHECKING:
    import smtplib
    import ssl
    from collections.abc import Callable, Mapping
    from email.message import EmailMessage
    from typing import Any

    from message import Message

PORTS = {"starttls": 587, "tls": 465, "none": 25}
LONGEST = 30.0
RESERVE = 3.0
MOST_RECIPIENTS = 50


class Mail(Channel):
    ordered = False
    keys = (
        *("host", "port", "security", "username", "password", "from", "to", "reply_to"),
        *("allow_plaintext_auth", "ca_file"),
    )

    def __init__(
        self, name: str, settings: Mapping[str, Any], remaining: Callable[[], float]
    ) -> None:
        super().__init__(name, settings, remaining)
        self._host = self.text("host")
        self._security = self.text("security", "starttls")
        if self._security not in PORTS:
            raise Misconfigured(f"channel {name}: security must be starttls, tls or none")
        port = settings.get("port", PORTS[self._security])
        if type(port) is not int or not 0 < port < 65_536:
            raise Misconfigured(f"channel {name}: port must be a number")
        self._port = port
        open_door = self._security == "none" and settings.get("allow_plaintext_auth") is not True
        if self.has("username") and open_door:
            raise Misconfigured(
                f"channel {name}: a password is not sent without TLS; use security: "
                "starttls or tls, or say allow_plaintext_auth: true"
            )
        self._sender = self._address(settings.get("from"), "from")
        to = settings.get("to")
        listed = to if isinstance(to, list) else [to]
        if not 0 < len(listed) <= MOST_RECIPIENTS:
            raise Misconfigured(f"channel {name}: to must name 1 to {MOST_RECIPIENTS} recipients")
        self._recipients = [self._address(one, "to") for one in listed]
        if self.has("reply_to"):
            self._address(settings["reply_to"], "reply_to")
        self._server: smtplib.SMTP | None = None

    def _address(self, value: Any, key: str) -> str:
        from email.utils import parseaddr

        address = parseaddr(value)[1] if isinstance(value, str) and value.isprintable() else ""
        local, _, domain = address.rpartition("@")
        if not local or not domain or " " in address:
            raise Misconfigured(f"channel {self.name}: {key} must be a mail address")
        return address

    def units(self, message: Message) -> list[str]:  # noqa: ARG002
        return self._recipients

    def send(self, message: Message, unit: str, key: str) -> None:
        import smtplib

        limit = min(LONGEST, self.remaining() - RESERVE)
        if limit <= 0:
            raise Failure("no time is left")
        mail = self._mail(message, unit, key)
        alarm = Alarm(limit)
        try:
            with alarm:
                server = self._connected(limit)
                server.send_message(mail, self._sender, [unit])
        except smtplib.SMTPRecipientsRefused as error:
            [(code, told)] = error.recipients.values()
            raise self._refusal(code, told) from None
        except smtplib.SMTPResponseException as error:
            self._drop()
            raise self._refusal(error.smtp_code, error.smtp_error) from None
        except smtplib.SMTPNotSupportedError as error:
            self._drop()
            raise Failure(f"the server lacks what is needed: {error}", retry=False) from None
        except (OSError, smtplib.SMTPException) as error:
            self._drop()
            raise self._broken(TimeoutError() if alarm.rang else error) from None

    def _connected(self, limit: float) -> smtplib.SMTP:
        import smtplib

        if self._server is not None:
            return self._server
        if self._security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                self._host, self._port, _own_name(), timeout=limit, context=self._context()
            )
        else:
            server = smtplib.SMTP(self._host, self._port, _own_name(), timeout=limit)
        self._server = server
        if self._security == "starttls":
            server.starttls(context=self._context())
        if self.has("username"):
            server.login(self.text("username"), self.text("password"))
        return server

    def _context(self) -> ssl.SSLContext:
        import ssl

        cafile = self.text("ca_file") if self.has("ca_file") else None
        return ssl.create_default_context(cafile=cafile)

    def _mail(self, message: Message, recipient: str, key: str) -> EmailMessage:
        from email.message import EmailMessage
        from email.policy import SMTP
        from email.utils import formatdate

        mail = EmailMessage(policy=SMTP)
        try:
            mail["From"] = self.settings["from"]
            mail["To"] = recipient
            mail["Subject"] = message.title or "Notification"
            if self.has("reply_to"):
                mail["Reply-To"] = self.settings["reply_to"]
        except ValueError:
            raise Failure("the title cannot stand in a mail's subject", retry=False) from None
        mail["Date"] = formatdate(localtime=True)
        mail["Message-ID"] = f"<{key}@{self._sender.rpartition('@')[2]}>"
        # RFC 3834: vacation responders leave such a mail alone.
        mail["Auto-Submitted"] = "auto-generated"
        if message.priority >= 4:
            mail["Importance"] = "high"
        mail.set_content(message.whole_text + "\n", cte="quoted-printable")
        return mail

    def _refusal(self, code: int, told: bytes | str) -> Failure:
        text = told.decode("utf-8", "replace") if isinstance(told, bytes) else told
        said = self.hidden(text)
        return Failure(
            f"answered {code}{f' ({said})' if said else ''}", retry=not 500 <= code < 600
        )

    def _broken(self, error: Exception) -> Failure:
        import ssl

        if isinstance(error, ssl.SSLCertVerificationError):
            return Failure(f"the server's certificate is bad: {error.verify_message}", retry=False)
        if isinstance(error, TimeoutError):
            return Failure("the server did not answer in time")
        named = getattr(error, "strerror", None) or type(error).__name__
        return Failure(f"the server cannot be talked to: {named}")

    def _drop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def close(self) -> None:
        import smtplib

        if self._server is None:
            return
        try:
            with Alarm(2.0):
                self._server.quit()
        except (OSError, smtplib.SMTPException):
            pass
        self._drop()


def _own_name() -> str:
    """How we greet. smtplib would ask the resolver for it, and wait for its answer."""
    from socket import gethostname

    name = gethostname()
    return name if "." in name and name.isascii() else "[127.0.0.1]"
