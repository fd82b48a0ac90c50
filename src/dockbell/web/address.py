"""Who asks, as an address: the other end of the connection, or whom a proxy names that is believed. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeAlias

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_NETWORK_OF_ONE: Final = 64
"""Whoever has an IPv6 address has all of these."""


class Proxies:
    """Those that are believed when they say for whom they ask.

    Args:
        networks: Where they are.
    """

    def __init__(self, networks: Iterable[Network]) -> None:
        self._networks = tuple(networks)

    def __contains__(self, address: str) -> bool:
        parsed = _parse(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def find_client(self, peer: str, forwarded_for: Sequence[str]) -> str:
        """Return for whom somebody asks.

        Each proxy adds, at the end, the address from which it was asked. So what the last one says is looked at first,
        and the one before it is believed only if it is one of ours too. What is no address ends the search: whatever
        stands before it, anybody may have written.

        Args:
            peer: The other end of the connection.
            forwarded_for: The values of ``X-Forwarded-For``, in order.
        """
        found = peer
        said = [each.strip() for value in forwarded_for for each in value.split(",")]
        while found in self and said:
            address = _parse(_strip_port(said.pop()))
            if address is None:
                break
            found = str(address)
        return found

    def find_scheme(self, peer: str, forwarded_proto: Sequence[str], scheme: str) -> str:
        """Return by which scheme somebody asks: as a proxy says, if it is one of ours and says one.

        Args:
            peer: The other end of the connection.
            forwarded_proto: The values of ``X-Forwarded-Proto``, in order.
            scheme: That of the connection.
        """
        said = forwarded_proto[-1].strip().lower() if forwarded_proto else ""
        return said if said in ("http", "https") and peer in self else scheme


def find_network(address: str) -> str:
    """Return what stands for all addresses of the one who has this one."""
    parsed = _parse(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, _NETWORK_OF_ONE), strict=False))
    return address if parsed is None else str(parsed)


def read_all(headers: Collection[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """Return the values of a header, in order."""
    return [value.decode("latin-1") for each, value in headers if each == name]


def _parse(text: str) -> _Address | None:
    """Return an address, one of IPv4 that is written as IPv6 in its own form; None where it is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv4Address):
        return address
    # What follows a % is the name of an interface, or whatever else somebody likes to write.
    return address.ipv4_mapped or ipaddress.IPv6Address(int(address))


def _strip_port(text: str) -> str:
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text
