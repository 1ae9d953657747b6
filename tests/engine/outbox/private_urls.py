"""Many ways to write a private address into a URL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address

HIDDEN = (
    "127.0.0.1",
    "127.8.9.10",
    "10.0.0.1",
    "169.254.169.254",
    "172.16.5.4",
    "192.168.1.1",
    "100.64.0.1",
    "0.0.0.0",
)
WIDE = str.maketrans("0123456789", "０１２３４５６７８９")
CIRCLED = str.maketrans("123456789", "①②③④⑤⑥⑦⑧⑨")
BOLD = str.maketrans("0123456789", "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗")
ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")


def _numbers(text: str) -> Iterator[str]:
    """Numbers of other bases, widths and lengths, as inet_aton accepts them."""
    a, b, c, d = map(int, text.split("."))
    whole = int(IPv4Address(text))
    yield str(whole)
    yield hex(whole)
    yield f"0{whole:o}"
    yield f"0x{whole:016x}"
    yield f"{whole + (1 << 32)}"
    yield f"{a}.{whole & 0xFFFFFF}"
    yield f"{a}.{b}.{whole & 0xFFFF}"
    yield f"{hex(a)}.{whole & 0xFFFFFF}"
    yield f"{a:#x}.{b:#x}.{c:#x}.{d:#x}"
    yield f"{a:#X}.{b}.{c}.{d:#X}"
    yield f"0{a:o}.0{b:o}.0{c:o}.0{d:o}"
    yield f"{a:04}.{b:04}.{c:04}.{d:04}"
    yield f"{a}.{b}.{c}.0{d}"
    yield f"{a}.{b:#x}.0{c:o}.{d}"
    yield f"{a}.{b}.{c}.{d}."
    yield f"{a}.{b}.{c}.{d}.."
    yield f"{a}.{b}.{c}.{d}.0"
    yield f"{a}..{b}.{c}.{d}"
    yield f"{a + 256}.{b}.{c}.{d}"


def _signs(text: str) -> Iterator[str]:
    """Characters that some software normalizes or decodes to digits and dots."""
    yield text.translate(WIDE)
    yield text.translate(CIRCLED).replace("0", "⓪")
    yield text.translate(BOLD)
    yield text.translate(ARABIC)
    for dot in "。．｡․":
        yield text.replace(".", dot)
    yield text.replace(".", "%2e")
    yield "".join(f"%{ord(sign):02x}" for sign in text)
    yield text.replace("1", "%31")
    yield text.replace(".", ".\u00ad")
    yield f"\u200b{text}"
    yield f"{text}\u200b"


def _inside(text: str) -> Iterator[str]:
    """Embedded in IPv6."""
    whole = int(IPv4Address(text))
    high, low = f"{whole >> 16:x}", f"{whole & 0xFFFF:x}"
    for prefix in ("::ffff:", "::", "::ffff:0:", "64:ff9b::", "64:ff9b:1::", "0:0:0:0:0:ffff:"):
        yield f"[{prefix}{text}]"
        yield f"[{prefix}{high}:{low}]"
    yield f"[::FFFF:{high}:{low}]"
    yield f"[2002:{high}:{low}::1]"
    yield f"[2001:0:{high}:{low}::1]"
    yield f"[::ffff:{text}%25lo]"
    yield f"[::ffff:{text}%lo]"


def _around(text: str) -> Iterator[str]:
    """After text that some software takes for the host."""
    for other in ("example.com", "93.184.215.14"):
        yield f"{other}@{text}"
        yield f"{other}:443@{text}"
        yield f"{other}%40{text}"
        yield f"{other}\\@{text}"
        yield f"{other}#@{text}"
        yield f"{text}#@{other}"
        yield f"{text}\\.{other}"
        yield f"{other} {text}"
        yield f"{other}\t{text}"
        yield f"{other}\r\n{text}"
    yield f"@{text}"
    yield f":@{text}"
    yield f"{text}:"
    yield f"{text}:0"
    yield f"{text}:443:443"
    yield f"/{text}"


def _plain(text: str) -> Iterator[str]:
    yield text
    yield f"{text}:443"
    yield f"{text}:8080"
    # Names whose owner lets them resolve to the address.
    yield f"{text.replace('.', '-')}.sslip.example"
    yield f"{text}.rebind.example"
    yield "a.example"


NAMES = (
    "localhost",
    "LocalHost",
    "localhost.",
    "a.localhost",
    "localhost.localdomain",
    "localhost6",
    "ip6-localhost",
    "ip6-loopback",
    "metadata",
    "metadata.google.internal",
    "instance-data",
    "kubernetes.default.svc",
    "host.docker.internal",
    "router.lan",
    "printer.local",
    "xn--7ba.example",
)
OTHERS = {
    "[::]": "::",
    "[::1]": "::1",
    "[0:0:0:0:0:0:0:1]": "::1",
    "[0000:0000:0000:0000:0000:0000:0000:0001]": "::1",
    "[::1%25lo]": "::1",
    "[fe80::1]": "fe80::1",
    "[fe80::1%25eth0]": "fe80::1",
    "[fec0::1]": "fec0::1",
    "[fc00::1]": "fc00::1",
    "[fd00:ec2::254]": "fd00:ec2::254",
    "[ff02::1]": "ff02::1",
    "[2001:db8::1]": "2001:db8::1",
    "[100::1]": "100::1",
    "[3fff::1]": "3fff::1",
    "[::1": "::1",
    "::1": "::1",
    "0": "0.0.0.0",
    "00": "0.0.0.0",
    "0x0": "0.0.0.0",
    "0x": "0.0.0.0",
    "127": "0.0.0.127",
    "192.0.2.1": "192.0.2.1",
    "198.18.0.1": "198.18.0.1",
    "198.51.100.7": "198.51.100.7",
    "203.0.113.5": "203.0.113.5",
    "224.0.0.1": "224.0.0.1",
    "240.0.0.1": "240.0.0.1",
    "255.255.255.255": "255.255.255.255",
    "192.88.99.1": "192.88.99.1",
}


def _all() -> Iterator[tuple[str, str]]:
    for text in HIDDEN:
        for make in (_plain, _numbers, _signs, _inside, _around):
            for host in make(text):
                yield f"https://{host}/", text
    for host in NAMES:
        yield f"https://{host}/", "127.0.0.1"
        yield f"http://{host}:8080/", "::1"
    for host, address in OTHERS.items():
        yield f"https://{host}/", address
        yield f"http://{host}/", address


PRIVATE_URLS: Mapping[str, str] = dict(_all())
"""From each URL to the private address that it refers to."""
