"""Which addresses a client may make this server call: those that everybody on the internet can call as well."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Address = IPv4Address | IPv6Address

_INNER = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # between a provider and its customers
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # where one cloud's machines find their own host
        "169.254.0.0/16",  # link-local, and the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocols' own, and the metadata of another cloud
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # multicast tunnels
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "2001::/23",  # protocols' own, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3ffe::/16",  # the 6bone that was
        "3fff::/20",  # documentation
    )
)
_UNICAST = ip_network("2000::/3")
"""All that is global in IPv6. Loopback, unique local, link-local, site-local, multicast, IPv4 in every dress but 6to4
and Teredo, and NAT64 are outside."""
_ISATAP = (0x00005EFE, 0x02005EFE)
"""The third quarter of an IPv6 address that ends with an IPv4 address to tunnel to."""

_LABEL = r"(?!-)[a-z0-9_-]{1,63}(?<!-)"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})+")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


def is_public(address: Address) -> bool:
    """Whether the address is one of the internet's, and not of this machine, its networks or a way into them."""
    if isinstance(address, IPv6Address) and (
        address not in _UNICAST or address.scope_id or (int(address) >> 32 & 0xFFFFFFFF) in _ISATAP
    ):
        return False
    # Two judges: Python's own knows fewer networks in some versions, and may know newer ones in others.
    return address.is_global and not any(address in network for network in _INNER if network.version == address.version)


def host_of(host: str) -> Address | str | None:
    """The host of a web address as an address or as a name to look up; None where it is neither.

    An address has one spelling: in decimal, octal, hexadecimal, in fewer than four numbers or with a zone it is none.
    A name has a dot and no trailing one, so that no search domain is asked for it.

    Args:
        host: In lower case and ASCII, without brackets.
    """
    if "%" in host:
        return None
    try:
        return ip_address(host)
    except ValueError:
        pass
    if len(host) > 253 or not _NAME.fullmatch(host) or _NUMBER.fullmatch(host.rpartition(".")[2]):
        return None
    return host
