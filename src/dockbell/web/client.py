"""The client of a request: its address, and whether it has proven that it may ask.

Its address is the other end of the connection, or the one that a trusted proxy names.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec


class Principal(msgspec.Struct, frozen=True):
    """The client of a request."""

    peer: str  # its address; behind a trusted proxy, the one that the proxy names
    proxy: str = ""  # the address of that proxy; empty where there is none
    is_known: bool = False  # it has shown the token, or the cookie of a session
    csrf: str | None = None  # the CSRF word of its session; None where it has shown the token itself

    def __str__(self) -> str:
        """Return both addresses, for the log."""
        return f"{self.peer} through {self.proxy}" if self.proxy else self.peer


Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_NETWORK_OF_ONE: Final = 64
"""Bits of an IPv6 prefix: the owner of one address usually has all addresses of its /64."""


class Proxies:
    """The trusted proxies, by their networks."""

    def __init__(self, networks: Iterable[Network]) -> None:
        self._networks = tuple(networks)

    def __contains__(self, address: str) -> bool:
        parsed = _parse(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def find_client(self, peer: str, forwarded_for: Sequence[str]) -> str:
        """Return the address of the client.

        Each proxy appends the address that asked it. So the last entry is read first, and the one before it only if the
        last is a trusted proxy too. An entry that is no address ends the search: a client may have forged what stands
        before it.
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
        """Return the scheme of a request: as a trusted proxy says, else that of the connection."""
        said = forwarded_proto[-1].strip().lower() if forwarded_proto else ""
        return said if said in ("http", "https") and peer in self else scheme


def find_network(address: str) -> str:
    """Return the network that an address counts for: its /64 for IPv6, itself for IPv4."""
    parsed = _parse(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, _NETWORK_OF_ONE), strict=False))
    return address if parsed is None else str(parsed)


def read_all(headers: Collection[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1") for each, value in headers if each == name]


def _parse(text: str) -> _Address | None:
    """Return an address, with mapped IPv4 addresses as IPv4; None where the text is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv4Address):
        return address
    # By its number: a client may write anything as the interface after the %.
    return address.ipv4_mapped or ipaddress.IPv6Address(int(address))


def _strip_port(text: str) -> str:
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text
