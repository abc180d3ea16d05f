"""Which addresses may be called: the internet's own. Whatever leads back inside is refused in every spelling."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mellea_responses.media.address import host_of, is_public

INNER = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.0.3",
    "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
    "192.168.1.1", "198.18.0.1", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.255", "240.0.0.1",
    "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::a00:1", "100::1", "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1",
    "2002:7f00:1::", "2002:808:808::1", "2620:4f:8000::1",
    "2600:1f00::5efe:7f00:1", "2600:1f00::200:5efe:a00:1", "3ffe::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254",
    "fd20:ce::254", "fe80::1", "fe80::1%eth0", "2606:4700::1%eth0", "fec0::1", "ff02::1", "ff0e::1",
]  # fmt: skip
OUTER = [
    "1.1.1.1", "8.8.8.8", "93.184.216.34", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "126.0.0.1",
    "128.0.0.1", "168.63.129.15", "223.255.255.1", "2606:4700:4700::1111", "2a00:1450:4001::200e", "2400::1",
]  # fmt: skip


@pytest.mark.parametrize("text", INNER)
def test_an_inner_address_is_not_public(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", OUTER)
def test_an_address_of_the_internet_is_public(text: str) -> None:
    assert is_public(ip_address(text))


@given(st.ip_addresses(v=4).map(int))
def test_no_dress_of_an_ipv4_address_in_ipv6_is_public(number: int) -> None:
    dresses = [
        number,
        0xFFFF << 32 | number,
        0xFFFF << 48 | number,
        0x64FF9B << 96 | number,
        0x64FF9B0001 << 80 | number,
        0x2002 << 112 | number << 80 | 1,
        0x20010000 << 96 | number << 64 | (number ^ 0xFFFFFFFF),
        0x2600 << 112 | 0x5EFE << 32 | number,
    ]

    assert not any(is_public(IPv6Address(dress)) for dress in dresses)


@given(st.ip_addresses())
def test_what_python_calls_private_is_never_public(address: IPv4Address | IPv6Address) -> None:
    if address.is_private or address.is_multicast or address.is_reserved or address.is_loopback:
        assert not is_public(address)


@pytest.mark.parametrize(
    "host",
    [
        "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "0177.0.1", "127.1", "127.0.1", "127.000.000.001",
        "127.0.0.1.", "0x7f.0x0.0x0.0x1", "1.2.3", "1.2.3.4.5", "256.1.1.1", "example.0x7f", "example.1",
        "::1%lo", "fe80::1%25eth0", "::1%", "[::1]", "1::2::3",
        "localhost", "localhost.", "example.org.", "example..org", ".example.org", "-a.org", "a-.org",
        "a" * 64 + ".org", "a." * 130 + "org",
        "", ".", "exa mple.org", "exämple.org", "example.org\\@10.0.0.1", "example.org:80", "a/b.c",
        "EXAMPLE.ORG", "127。0。0。1", "a%2eb.org",
    ],
)  # fmt: skip
def test_a_host_in_any_odd_spelling_is_none(host: str) -> None:
    assert host_of(host) is None


def test_a_host_is_an_address_or_a_name_with_a_dot() -> None:
    assert host_of("8.8.8.8") == IPv4Address("8.8.8.8")
    assert host_of("2606:4700::1111") == IPv6Address("2606:4700::1111")
    for name in ("example.org", "xn--bcher-kva.example", "a_b.c-d.example.co.uk", "3com.com", "127.0.0.1.nip.io"):
        assert host_of(name) == name
