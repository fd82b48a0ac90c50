from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import pytest

from dockbell.web.client import Proxies, find_network

OURS = Proxies(
    [ipaddress.ip_network("10.0.0.1"), ipaddress.ip_network("192.168.7.0/24"), ipaddress.ip_network("fd00::/8")]
)


@pytest.mark.parametrize(
    ("peer", "said", "client"),
    [
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("::ffff:10.0.0.1", ["203.0.113.9"], "203.0.113.9"),  # as a socket of both kinds shows it
        ("10.0.0.2", ["203.0.113.9"], "10.0.0.2"),  # not one of ours
        ("127.0.0.1", ["203.0.113.9"], "127.0.0.1"),
        ("", ["203.0.113.9"], ""),
        # Each adds to the end: what stands before the first stranger, the stranger has written.
        ("10.0.0.1", ["1.1.1.1, 203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["1.1.1.1, 203.0.113.9,192.168.7.8"], "203.0.113.9"),
        ("10.0.0.1", ["1.1.1.1", "203.0.113.9, fd00::1", "192.168.7.8"], "203.0.113.9"),
        ("10.0.0.1", ["192.168.7.9, 192.168.7.8"], "192.168.7.9"),
        ("10.0.0.1", ["203.0.113.9, 127.0.0.1"], "127.0.0.1"),
        # What is no address is not believed, nor what stands before it.
        ("10.0.0.1", ["203.0.113.9, unknown"], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.9, "], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.9, 1.2.3"], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.9, evil\x1b[2J"], "10.0.0.1"),
        ("10.0.0.1", ["unknown, 192.168.7.8"], "192.168.7.8"),
        # Some add the port.
        ("10.0.0.1", ["203.0.113.9:4711"], "203.0.113.9"),
        ("10.0.0.1", ["[2001:db8::9]:4711"], "2001:db8::9"),
        ("10.0.0.1", ["2001:DB8:0::9"], "2001:db8::9"),
        ("10.0.0.1", ["2001:db8::9%anything at all"], "2001:db8::9"),
        ("10.0.0.1", ["::ffff:203.0.113.9"], "203.0.113.9"),
    ],
)
def test_only_what_a_trusted_proxy_says_is_believed(peer: str, said: Sequence[str], client: str) -> None:
    assert OURS.find_client(peer, said) == client


@pytest.mark.parametrize(
    ("peer", "said", "scheme"),
    [
        ("10.0.0.1", ["https"], "https"),
        ("10.0.0.1", ["http", " HTTPS "], "https"),
        ("10.0.0.1", ["wss"], "http"),
        ("10.0.0.1", ["https, http"], "http"),
        ("10.0.0.1", [], "http"),
        ("10.0.0.2", ["https"], "http"),
    ],
)
def test_a_scheme_is_believed_of_a_trusted_proxy_only(peer: str, said: Sequence[str], scheme: str) -> None:
    assert OURS.find_scheme(peer, said, "http") == scheme


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_whoever_has_an_address_of_ipv6_has_its_whole_network(address: str, network: str) -> None:
    assert find_network(address) == network
