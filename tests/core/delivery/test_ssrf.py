"""Which URLs and addresses are allowed."""

from __future__ import annotations

import ast
import sys
from ipaddress import IPv4Address, IPv6Address, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.core.delivery import ssrf
from ductile.core.delivery.ssrf import Forbidden, ParsedUrl, check_addresses, is_allowed, parse_url

PUBLIC = ("93.184.215.14", "1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "2a00:1450:4001:82a::200e")
NOT_PUBLIC = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "this network",
    "10.0.0.1": "private",
    "100.64.0.1": "carrier-grade NAT",
    "100.127.255.255": "carrier-grade NAT",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "169.254.169.254": "link-local: metadata",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.1": "protocol assignments",
    "192.0.2.1": "documentation",
    "192.88.99.1": "6to4 relay",
    "192.168.0.1": "private",
    "198.18.0.1": "benchmark",
    "198.19.255.255": "benchmark",
    "198.51.100.1": "documentation",
    "203.0.113.1": "documentation",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "broadcast",
    "::": "unspecified",
    "::1": "loopback",
    "::7f00:1": "IPv4-compatible",
    "::5db8:d70e": "IPv4-compatible, of a public one",
    "::ffff:127.0.0.1": "IPv4-mapped",
    "::ffff:93.184.215.14": "IPv4-mapped, of a public one",
    "::ffff:0:127.0.0.1": "IPv4-translated",
    "64:ff9b::7f00:1": "NAT64",
    "64:ff9b::5db8:d70e": "NAT64, of a public one",
    "64:ff9b:1::1": "NAT64 for local use",
    "100::1": "discard",
    "100:0:0:1::1": "dummy",
    "2001::1": "Teredo",
    "2001:0:4136:e378:8000:63bf:80ff:fffe": "Teredo",
    "2001:2::1": "benchmark",
    "2001:10::1": "ORCHID",
    "2001:20::1": "ORCHID",
    "2001:db8::1": "documentation",
    "2002:7f00:1::": "6to4 of loopback",
    "2002:5db8:d70e::1": "6to4 of a public one",
    "3fff::1": "documentation",
    "5f00::1": "segment routing",
    "fc00::1": "unique local",
    "fd00:ec2::254": "unique local: metadata",
    "fe80::1": "link-local",
    "fe80::1%eth0": "with a scope",
    "2606:4700:4700::1111%1": "with a scope",
    "fec0::1": "site-local",
    "ff02::1": "multicast",
    "ff0e::1": "multicast, global",
    "4000::1": "unassigned",
    "": "nothing",
    "example.com": "a name",
    "127.1": "short",
    "2130706433": "decimal",
    "0x7f000001": "hex",
    "017700000001": "octal",
    "127.0.0.01": "leading zero",
}


@pytest.mark.parametrize("text", PUBLIC)
def test_public_address_is_allowed(text: str) -> None:
    assert is_allowed(text)


@pytest.mark.parametrize("text", NOT_PUBLIC, ids=[f"{t} {why}" for t, why in NOT_PUBLIC.items()])
def test_other_addresses_are_forbidden(text: str) -> None:
    assert not is_allowed(text)


@given(st.ip_addresses())
def test_allowed_address_is_global_and_not_multicast(
    found: IPv4Address | IPv6Address,
) -> None:
    if is_allowed(str(found)):
        assert found.is_global
        special = (found.is_multicast, found.is_reserved, found.is_private, found.is_loopback)
        assert not any((*special, found.is_link_local, found.is_unspecified))


@given(st.ip_addresses(network="2000::/3"))
def test_address_with_an_embedded_address_is_forbidden(found: IPv6Address) -> None:
    if is_allowed(str(found)):
        assert found.sixtofour is None
        assert found.teredo is None
        assert found.ipv4_mapped is None


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.1.2.3", "10.0.0.0/8"),
        ("127.0.0.1", "127.0.0.1/32"),
        ("::1", "::1/128"),
        ("fd00::5", "fd00::/8"),
        ("169.254.169.254", "0.0.0.0/0"),
    ],
)
def test_address_in_an_allowed_network_is_allowed(text: str, network: str) -> None:
    assert is_allowed(text, (network,))


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.1.2.3", "10.0.0.0/16"),
        ("127.0.0.1", "::/0"),
        ("::ffff:10.0.0.1", "10.0.0.0/8"),
        ("::1", "127.0.0.0/8"),
        ("fe80::1%eth0", "fe80::/10"),
    ],
)
def test_address_outside_the_allowed_network_is_forbidden(text: str, network: str) -> None:
    assert not is_allowed(text, (network,))


@pytest.mark.parametrize(
    ("url", "target", "authority"),
    [
        ("https://example.com", ParsedUrl(True, "example.com", 443, "/", False), "example.com"),
        ("HTTPS://Example.COM/A", ParsedUrl(True, "example.com", 443, "/A", False), "example.com"),
        ("http://a.b/", ParsedUrl(False, "a.b", 80, "/", False), "a.b"),
        ("http://a:443/x?y=%20", ParsedUrl(False, "a", 443, "/x?y=%20", False), "a:443"),
        ("https://a?b=/c", ParsedUrl(True, "a", 443, "/?b=/c", False), "a"),
        ("https://a_b.c-d.e:444", ParsedUrl(True, "a_b.c-d.e", 444, "/", False), "a_b.c-d.e:444"),
        ("https://xn--bcher-kva.ch", ParsedUrl(True, "xn--bcher-kva.ch", 443, "/", False), None),
        ("https://1.2.3.4:8443/", ParsedUrl(True, "1.2.3.4", 8443, "/", True), "1.2.3.4:8443"),
        ("https://[2A00::0:1]/", ParsedUrl(True, "2a00::1", 443, "/", True), "[2a00::1]"),
        ("https://[2a00::1]:81/", ParsedUrl(True, "2a00::1", 81, "/", True), "[2a00::1]:81"),
        ("https://1a.2b", ParsedUrl(True, "1a.2b", 443, "/", False), None),
        ("https://a/\u007e%00", ParsedUrl(True, "a", 443, "/~%00", False), "a"),
    ],
)
def test_parts_of_a_url(url: str, target: ParsedUrl, authority: str | None) -> None:
    assert parse_url(url) == target
    assert parse_url(url).authority == (authority or target.host)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "//example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://a/",
        "javascript:alert(1)",
        "https:example.com",
        "https:///path",
        "https://",
        "https://:443/",
        "https://a:0/",
        "https://a:65536/",
        "https://a:/",
        "https://a:99999999/",
        "https://a:-1/",
        "https://a:8 0/",
        "https://a b/",
        " https://a/",
        "https://a/ ",
        "https://a/\n",
        "https://a/\r\nHost: b",
        "https://a/\tb",
        "https://a/\x00",
        "https://a/#fragment",
        "https://a#@b/",
        "https://a\\b/",
        "https://a/\\b",
        "https://user@a/",
        "https://user:password@a/",
        "https://@a/",
        "https://a@/",
        "https://ä.example/",
        "https://example。com/",
        "https://a/ä",
        "https://\u212aelvin.example/",
        "https://a%2eb/",
        "https://.a/",
        "https://a./",
        "https://a..b/",
        "https://-a/",
        "https://a-/",
        f"https://{'a' * 64}.b/",
        f"https://{'a.' * 130}b/",
        "https://[::1/",
        "https://::1/",
        "https://[]/",
        "https://[::1]x/",
        "https://[1.2.3.4]/",
        "https://[::g]/",
        "https://[fe80::1%25eth0]/",
        "https://[fe80::1%eth0]/",
        "https://[v1.a]/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://017700000001/",
        "https://127.1/",
        "https://127.0.0.01/",
        "https://127.0.0.0x1/",
        "https://127.0.0.1./",
        "https://1.2.3.4.5/",
        "https://a/" + "x" * 8192,
    ],
)
def test_unusual_url_is_refused(url: str) -> None:
    with pytest.raises(Forbidden):
        parse_url(url, ("0.0.0.0/0", "::/0"))


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST",
        "a.localhost",
        "localhost.localdomain",
        "ip6-localhost",
        "ip6-loopback",
        "printer.local",
        "metadata.google.internal",
        "nas.lan",
        "router.home",
        "router.home.arpa",
        "wiki.intranet",
    ],
)
def test_local_name_needs_an_allowed_network(host: str) -> None:
    with pytest.raises(Forbidden):
        parse_url(f"https://{host}/")
    assert parse_url(f"https://{host}/", ("127.0.0.0/8",)).host == host.lower()


def test_one_forbidden_address_forbids_the_name() -> None:
    target = parse_url("https://example.com/")
    assert check_addresses(target, PUBLIC) == PUBLIC
    with pytest.raises(Forbidden):
        check_addresses(target, (*PUBLIC, "10.0.0.1"))
    with pytest.raises(Forbidden):
        check_addresses(target, ())


def test_error_does_not_contain_the_address() -> None:
    with pytest.raises(Forbidden) as refusal:
        check_addresses(parse_url("https://example.com/"), ("10.11.12.13",))
    assert "10.11" not in str(refusal.value)


def test_error_names_the_config_key() -> None:
    with pytest.raises(Forbidden, match=r"not in a network of gateway\.allowed_networks"):
        check_addresses(parse_url("https://example.com/"), ("10.11.12.13",))


def test_plain_http_needs_an_allowed_network() -> None:
    plain = parse_url("http://example.com/")
    with pytest.raises(Forbidden, match="without TLS"):
        check_addresses(plain, ("93.184.215.14",))
    assert check_addresses(plain, ("93.184.215.14",), ("93.184.215.14/32",))
    assert check_addresses(plain, ("10.0.0.1",), ("10.0.0.0/8",))
    assert check_addresses(plain, ("93.184.215.14",), plain=True)
    with pytest.raises(Forbidden):
        check_addresses(plain, ("10.0.0.1",), plain=True)


def test_tables_do_not_overlap() -> None:
    for table in (ssrf.NOT_PUBLIC_4, ssrf.NOT_PUBLIC_6):
        for one in table:
            assert not any(one.overlaps(other) for other in table if other is not one)
    assert all(n.subnet_of(ssrf.PUBLIC_6) for n in ssrf.NOT_PUBLIC_6)
    assert ip_network("2000::/3") == ssrf.PUBLIC_6


def test_file_imports_only_the_standard_library() -> None:
    tree = ast.parse(Path(ssrf.__file__).read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {
        a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names
    }
    assert {str(module).partition(".")[0] for module in modules} <= sys.stdlib_module_names
