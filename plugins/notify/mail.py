"""The channel email: one mail per recipient, with a Message-ID that retries repeat."""

from __future__ import annotations

from channel import Channel
from deadline import Deadline
from protocol import ConfigError, Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    import smtplib
    import ssl
    from collections.abc import Callable, Mapping
    from email.message import EmailMessage
    from typing import Any

    from message import Message

PORTS = {"starttls": 587, "tls": 465, "none": 25}
MAX_SECONDS = 30.0
RESERVE = 3.0
MAX_RECIPIENTS = 50


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
            raise ConfigError(f"channel {name}: security must be starttls, tls or none")
        port = settings.get("port", PORTS[self._security])
        if type(port) is not int or not 0 < port < 65_536:
            raise ConfigError(f"channel {name}: port must be a number")
        self._port = port
        plaintext = self._security == "none" and settings.get("allow_plaintext_auth") is not True
        if self.has("username") and plaintext:
            raise ConfigError(
                f"channel {name}: a password requires TLS; set security to starttls or tls, "
                "or set allow_plaintext_auth: true"
            )
        self._sender = self._parse_address(settings.get("from"), "from")
        to = settings.get("to")
        listed = to if isinstance(to, list) else [to]
        if not 0 < len(listed) <= MAX_RECIPIENTS:
            raise ConfigError(f"channel {name}: to must list 1 to {MAX_RECIPIENTS} recipients")
        self._recipients = list(dict.fromkeys(self._parse_address(one, "to") for one in listed))
        if self.has("reply_to"):
            self._parse_address(settings["reply_to"], "reply_to")
        self._server: smtplib.SMTP | None = None

    def _parse_address(self, value: Any, key: str) -> str:
        from email.utils import parseaddr

        address = parseaddr(value)[1] if isinstance(value, str) and value.isprintable() else ""
        local, _, domain = address.rpartition("@")
        if not local or not domain or " " in address:
            raise ConfigError(f"channel {self.name}: {key} must be a mail address")
        return address

    def split_units(self, message: Message) -> list[str]:  # noqa: ARG002
        return self._recipients

    def send(self, message: Message, unit: str, key: str) -> None:
        import smtplib

        limit = min(MAX_SECONDS, self.remaining() - RESERVE)
        if limit <= 0:
            raise Failure("there is no time left")
        mail = self._build_mail(message, unit, key)
        deadline = Deadline(limit)
        try:
            with deadline:
                server = self._connect(limit)
                server.send_message(mail, self._sender, [unit])
        except smtplib.SMTPRecipientsRefused as error:
            [(code, reason)] = error.recipients.values()
            raise self._make_failure_of_code(code, reason) from None
        except smtplib.SMTPResponseException as error:
            self._disconnect()
            raise self._make_failure_of_code(error.smtp_code, error.smtp_error) from None
        except smtplib.SMTPNotSupportedError as error:
            self._disconnect()
            raise Failure(
                f"the server does not support a required extension: {error}", retry=False
            ) from None
        except (OSError, smtplib.SMTPException) as error:
            self._disconnect()
            raise self._make_failure_of_error(
                TimeoutError() if deadline.expired else error
            ) from None

    def _connect(self, limit: float) -> smtplib.SMTP:
        import smtplib

        if self._server is not None:
            return self._server
        if self._security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                self._host,
                self._port,
                _get_host_name(),
                timeout=limit,
                context=self._make_context(),
            )
        else:
            server = smtplib.SMTP(self._host, self._port, _get_host_name(), timeout=limit)
        self._server = server
        if self._security == "starttls":
            server.starttls(context=self._make_context())
        if self.has("username"):
            server.login(self.text("username"), self.text("password"))
        return server

    def _make_context(self) -> ssl.SSLContext:
        import ssl

        cafile = self.text("ca_file") if self.has("ca_file") else None
        return ssl.create_default_context(cafile=cafile)

    def _build_mail(self, message: Message, recipient: str, key: str) -> EmailMessage:
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
            raise Failure("the title is not a valid subject of a mail", retry=False) from None
        mail["Date"] = formatdate(localtime=True)
        mail["Message-ID"] = f"<{key}@{self._sender.rpartition('@')[2]}>"
        # RFC 3834: vacation responders do not reply to it.
        mail["Auto-Submitted"] = "auto-generated"
        if message.priority >= 4:
            mail["Importance"] = "high"
        mail.set_content(message.text_with_link + "\n", cte="quoted-printable")
        return mail

    def _make_failure_of_code(self, code: int, reason: bytes | str) -> Failure:
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        explanation = self.redact(text)
        return Failure(
            f"returned code {code}{f' ({explanation})' if explanation else ''}",
            retry=not 500 <= code < 600,
        )

    def _make_failure_of_error(self, error: Exception) -> Failure:
        import ssl

        if isinstance(error, ssl.SSLCertVerificationError):
            return Failure(
                f"the certificate of the server is not valid: {error.verify_message}", retry=False
            )
        if isinstance(error, TimeoutError):
            return Failure("the server did not reply in time")
        named = getattr(error, "strerror", None) or type(error).__name__
        return Failure(f"the connection to the server failed: {named}")

    def _disconnect(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def close(self) -> None:
        import smtplib

        if self._server is None:
            return
        try:
            with Deadline(2.0):
                self._server.quit()
        except (OSError, smtplib.SMTPException):
            pass
        self._disconnect()


def _get_host_name() -> str:
    """The host name for EHLO; smtplib would wait for the resolver to find one."""
    from socket import gethostname

    name = gethostname()
    return name if "." in name and name.isascii() else "[127.0.0.1]"
