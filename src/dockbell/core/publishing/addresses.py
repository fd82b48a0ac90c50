"""Which addresses may be dialled: a receiver's name may resolve to a machine that must not be reached.

Ranges are written out, after the registries of special-purpose addresses (RFC 6890, RFC 8190) and the clouds' own
documentation: ``ipaddress.is_global`` takes NAT64, 6to4 and others for public, and knows no metadata services.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, TypeAlias

import msgspec

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network


def parse_network(text: str) -> Network:
    """Return the range that text such as ``10.0.0.0/8`` or ``fd00::/8`` names, or a lone address; else ValueError."""
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f'must be a range of addresses such as "10.0.0.0/8" or "fd00::/8", got "{text}"') from None
    try:
        return ip_network(text)
    except ValueError:
        raise ValueError(f'must begin with the first address of its range, "{network}", got "{text}"') from None


_NEVER: Final[dict[Network, str]] = {
    ip_network(text): name
    for text, name in {
        "0.0.0.0/8": "unspecified",
        "169.254.0.0/16": "link-local",
        "100.100.100.200/32": "cloud metadata",  # Alibaba
        "168.63.129.16/32": "cloud metadata",  # Azure
        "192.0.0.192/32": "cloud metadata",  # Oracle
        "224.0.0.0/4": "multicast",
        "255.255.255.255/32": "broadcast",
        "::/128": "unspecified",
        "fe80::/10": "link-local",
        "fd00:ec2::/32": "cloud metadata",  # Amazon: ::254, and the other services of an instance beside it
        "fd20:ce::254/128": "cloud metadata",  # Google
        "fd00:42::42/128": "cloud metadata",  # Scaleway
        "ff00::/8": "multicast",
    }.items()
}
"""Ranges without receivers of events: never dialled, whatever the operator permits."""

# https://www.iana.org/assignments/iana-ipv4-special-registry, https://www.iana.org/assignments/iana-ipv6-special-registry
_NOT_PUBLIC: Final[dict[Network, str]] = {
    ip_network(text): name
    for text, name in {
        "10.0.0.0/8": "private",
        "100.64.0.0/10": "shared by a carrier",
        "127.0.0.0/8": "loopback",
        "172.16.0.0/12": "private",
        "192.0.0.0/24": "reserved",
        "192.0.2.0/24": "documentation",
        "192.88.99.0/24": "6to4 relay",
        "192.168.0.0/16": "private",
        "198.18.0.0/15": "benchmarking",
        "198.51.100.0/24": "documentation",
        "203.0.113.0/24": "documentation",
        "240.0.0.0/4": "reserved",
        "::1/128": "loopback",
        "::ffff:0:0/96": "IPv4 in IPv6",
        "64:ff9b::/96": "NAT64",
        "64:ff9b:1::/48": "NAT64",
        "2001::/23": "reserved",
        "2001:db8::/32": "documentation",
        "2002::/16": "6to4",
        "3fff::/20": "documentation",
        "fc00::/7": "private",
        # All the rest outside 2000::/3, the only part that is assigned for the public network.
        "::/3": "reserved",
        "4000::/2": "reserved",
        "8000::/1": "reserved",
    }.items()
}
"""What ``strict`` refuses besides; the first that holds an address names it."""

_MAPPED: Final = (ip_network("::/96"), ip_network("::ffff:0:0/96"), ip_network("::ffff:0:0:0/96"))
_NAT64: Final = ip_network("64:ff9b::/96")
_LOCAL_NAT64: Final = ip_network("64:ff9b:1::/48")
_IPV4_BITS: Final = 32


class Objection(msgspec.Struct, frozen=True):
    """Why an address must not be dialled (``link-local``, ``in deny_networks`` …), and the range that says so."""

    reason: str
    network: Network

    def __str__(self) -> str:
        return f"{self.reason} ({self.network})"


class AddressRules(msgspec.Struct, frozen=True):
    """What an operator permits; ``strict`` refuses what is not public, and IPv6 that stands for IPv4."""

    denied: tuple[Network, ...] = ()
    strict: bool = False

    def judge(self, address: Address) -> Objection | None:
        """Return what speaks against an address, or None; of IPv6, also what speaks against one of IPv4 within it."""
        for each in (address, *_find_embedded(address)):
            for network, reason in _NEVER.items():
                if each in network:
                    return Objection(reason, network)
            for network in self.denied:
                if each in network:
                    return Objection("in deny_networks", network)
        if self.strict:
            for network, reason in _NOT_PUBLIC.items():
                if address in network:
                    return Objection(f"not public, {reason}", network)
        return None


def _find_embedded(address: Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses that packets to an IPv6 address may come to."""
    if isinstance(address, IPv4Address):
        return
    if address.sixtofour is not None:
        yield address.sixtofour
    elif address.teredo is not None:
        yield address.teredo[1]
    elif address in _NAT64 or (int(address) > 1 and any(address in network for network in _MAPPED)):
        yield IPv4Address(int(address) % (1 << _IPV4_BITS))
    elif address in _LOCAL_NAT64:
        # https://www.rfc-editor.org/rfc/rfc6052#section-2.2: where it stands depends on the length of the prefix, which
        # only its network knows; bits 64 to 71 are left out, and what follows it is zero. What lies in 0.0.0.0/8 was
        # read by the wrong length.
        bits = f"{int(address):0128b}"
        for text in (bits[48:64] + bits[72:], bits[56:64] + bits[72:], bits[72:], bits[96:]):
            value, rest = int(text[:_IPV4_BITS], 2), text[_IPV4_BITS:]
            if value >> 24 and "1" not in rest:
                yield IPv4Address(value)
