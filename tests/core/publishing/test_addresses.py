from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dockbell.core.publishing.addresses import Address, AddressRules, parse_network

OPEN = AddressRules()
STRICT = AddressRules(strict=True)
DENYING = AddressRules((ip_network("10.0.0.0/8"), ip_network("fd12::/16")))

ADDRESSES = st.ip_addresses()
IPV4 = st.ip_addresses(v=4)


def reason(rules: AddressRules, address: str) -> str | None:
    objection = rules.judge(ip_address(address))
    return objection.reason if objection else None


def embed(address: IPv4Address) -> list[IPv6Address]:
    """Return the forms of IPv6 that stand for an address of IPv4."""
    value = int(address)
    low, high = value & 0xFFFFFF, value >> 16
    return [
        IPv6Address(0xFFFF << 32 | value),  # mapped
        IPv6Address(0xFFFF << 48 | value),  # translated
        IPv6Address(0x2002 << 112 | value << 80),  # 6to4
        IPv6Address(0x64FF9B << 96 | value),  # NAT64, and its forms with a prefix of a network's own:
        IPv6Address(0x64FF9B0001 << 80 | 0xFFFE << 64 | value),
        IPv6Address(0x64FF9B0001 << 80 | high << 64 | (value & 0xFFFF) << 40),
        IPv6Address(0x64FF9B0001 << 80 | (value >> 24) << 64 | low << 32),
        IPv6Address(0x64FF9B0001 << 80 | value << 24),
        IPv6Address(0x20010000 << 96 | value ^ 0xFFFFFFFF),  # Teredo
    ]


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("0.0.0.0", "unspecified"),  # noqa: S104  # dialled, it is this machine
        ("0.1.2.3", "unspecified"),
        ("169.254.169.254", "link-local"),
        ("169.254.170.2", "link-local"),
        ("100.100.100.200", "cloud metadata"),
        ("168.63.129.16", "cloud metadata"),
        ("192.0.0.192", "cloud metadata"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("255.255.255.255", "broadcast"),
        ("::", "unspecified"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("febf:ffff::1", "link-local"),
        ("fd00:ec2::254", "cloud metadata"),
        ("fd00:ec2::254%eth0", "cloud metadata"),
        ("fd20:ce::254", "cloud metadata"),
        ("fd00:42::42", "cloud metadata"),
        ("ff02::1", "multicast"),
        ("::169.254.169.254", "link-local"),
        ("::ffff:0.0.0.0", "unspecified"),
        ("64:ff9b::", "unspecified"),
        ("2002::", "unspecified"),
    ],
)
def test_what_is_no_receiver_is_refused_whatever_is_permitted(address: str, why: str) -> None:
    assert reason(OPEN, address) == reason(STRICT, address) == reason(DENYING, address) == why


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("10.0.0.7", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("127.0.0.1", "loopback"),
        ("100.64.0.1", "shared by a carrier"),
        ("192.0.0.9", "reserved"),
        ("192.0.2.1", "documentation"),
        ("192.88.99.1", "6to4 relay"),
        ("198.19.255.255", "benchmarking"),
        ("240.0.0.1", "reserved"),
        ("::1", "loopback"),
        ("fd12:3456::1", "private"),
        ("fec0::1", "reserved"),
        ("64:ff9b::8.8.8.8", "NAT64"),
        ("64:ff9b:1::8.8.8.8", "NAT64"),
        ("2002:808:808::1", "6to4"),
        ("::ffff:8.8.8.8", "IPv4 in IPv6"),
        ("2001::1", "reserved"),
        ("2001:db8::1", "documentation"),
        ("3fff:fff::1", "documentation"),
        ("4000::1", "reserved"),
        ("100::1", "reserved"),
    ],
)
def test_what_is_not_public_is_refused_by_strict_alone(address: str, why: str) -> None:
    assert reason(OPEN, address) is None
    assert reason(STRICT, address) == f"not public, {why}"


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "192.88.98.1", "223.255.255.255", "2606:4700::1", "2001:200::1"],
)
def test_what_is_public_is_refused_by_nothing(address: str) -> None:
    assert reason(STRICT, address) is None


def test_an_operator_s_ranges_are_refused() -> None:
    assert reason(DENYING, "10.255.0.1") == reason(DENYING, "fd12::1") == "in deny_networks"
    assert reason(DENYING, "11.0.0.1") is None
    assert str(DENYING.judge(ip_address("10.0.0.1"))) == "in deny_networks (10.0.0.0/8)"


@given(IPV4)
def test_an_address_within_another_is_judged_too(address: IPv4Address) -> None:
    rules = AddressRules((IPv4Network((address, 32)),))
    assume(address not in IPv4Network("0.0.0.0/8"))
    assert all(rules.judge(outer) for outer in embed(address))
    if OPEN.judge(address):
        assert all(OPEN.judge(outer) for outer in embed(address))


@pytest.mark.parametrize("address", ["192.168.5.4", "10.0.0.1", "8.8.8.8"])
def test_a_network_s_own_nat64_may_lead_to_its_receivers(address: str) -> None:
    nat64 = [outer for outer in embed(IPv4Address(address)) if outer in IPv6Network("64:ff9b::/32")]
    assert len(nat64) == 5
    assert not any(OPEN.judge(outer) for outer in nat64)


@given(ADDRESSES)
def test_strict_refuses_what_is_refused_without_it_and_what_python_calls_private(address: Address) -> None:
    if OPEN.judge(address) or not address.is_global:
        assert STRICT.judge(address)


@given(st.sampled_from(["64:ff9b::/96", "2002::/16", "192.88.99.0/24", "3fff::/20"]), st.data())
def test_strict_refuses_what_python_takes_for_public(network: str, data: st.DataObject) -> None:
    assert STRICT.judge(data.draw(st.ip_addresses(network=network)))


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.7", "10.0.0.7/32"),
        ("FD00:0::/8", "fd00::/8"),
        ("::/0", "::/0"),
    ],
)
def test_a_range_is_read(text: str, network: str) -> None:
    assert parse_network(text) == ip_network(network)


@pytest.mark.parametrize("text", ["", "lan", "10.0.0.0/33", "10.0.0", "10.0.0.0-10.0.0.9"])
def test_what_is_no_range_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=f'must be a range of addresses such as "10.0.0.0/8" or .*, got "{text}"'):
        parse_network(text)


def test_an_address_in_the_place_of_its_range_is_told_with_the_range() -> None:
    with pytest.raises(
        ValueError, match=r'must begin with the first address of its range, "10\.0\.0\.0/8", got "10\.1\.'
    ):
        parse_network("10.1.2.3/8")
