from __future__ import annotations

from typing import Any

import pytest

from dockbell.config import Config, SinkSettings, redacted, validate
from dockbell.config.values import show
from dockbell.config.web import WebSettings, is_loopback, normalise_host
from dockbell.errors import ConfigError


def _load(**web: Any) -> Config:
    source = {"base_url": "https://api.example.com", "api_key": "k"}
    return validate({"sources": {"main": source}, "web": web}, lambda _: SinkSettings)


def test_nothing_listens_without_the_table() -> None:
    assert _load().model_copy(update={"web": None}).web is None
    assert Config.model_fields["web"].default is None


@pytest.mark.parametrize(
    ("listen", "address", "url"),
    [
        ("127.0.0.1:8470", ("127.0.0.1", 8470), "http://127.0.0.1:8470"),
        ("localhost:0", ("localhost", 0), "http://localhost:0"),
        ("[::1]:65535", ("::1", 65535), "http://[::1]:65535"),
        ("0.0.0.0:80", ("0.0.0.0", 80), "http://127.0.0.1:80"),  # noqa: S104  # nobody listens
        ("[::]:80", ("::", 80), "http://[::1]:80"),
        ("dock.example.com:8470", ("dock.example.com", 8470), "http://dock.example.com:8470"),
    ],
)
def test_an_address_is_taken_apart(listen: str, address: tuple[str, int], url: str) -> None:
    web = _load(listen=listen, token="t").web
    assert web is not None
    assert (web.address, web.base_url) == (address, url)


def test_how_others_reach_it_may_be_told() -> None:
    assert WebSettings(url="https://public.example.com/bell/").base_url == "https://public.example.com/bell"


@pytest.mark.parametrize(
    "listen",
    ["", 8470, "8470", ":8470", "127.0.0.1", "::1:8470", "[::x]:1", "[1]:1", "http://a:1", "a b:1"],
)
def test_what_is_no_address_is_said_so(listen: object) -> None:
    with pytest.raises(ConfigError, match=r"\[web\] listen: must be an address and a port such as") as error:
        _load(listen=listen)
    assert str(error.value).endswith(f", got {show(listen)}")


def test_a_port_that_cannot_be_is_told_with_those_that_can() -> None:
    with pytest.raises(ConfigError, match=r'\[web\] listen: must have a port from 0 to 65535, got "127.0.0.1:65536"$'):
        _load(listen="127.0.0.1:65536")


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.1.2.3:1", "localhost:1", "LocalHost:1", "[::1]:1"])
def test_on_loopback_no_token_is_needed(listen: str) -> None:
    assert _load(listen=listen).web == WebSettings(listen=listen)


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "[::]:1", "192.168.0.7:1", "dock.example.com:1", "127.1:1"])
def test_anywhere_else_a_token_is_needed(listen: str) -> None:
    with pytest.raises(ConfigError) as error:
        _load(listen=listen)
    remedy = 'add token = { env = "DOCKBELL_WEB_TOKEN" }, or listen on 127.0.0.1'
    assert (
        str(error.value) == f"configuration: [web] token: missing, because other machines can reach {listen}; {remedy}"
    )
    assert _load(listen=listen, token={"env": "DOCKBELL_WEB_TOKEN"}).web is not None


@pytest.mark.parametrize("name", ["a.example.com:80", "https://a", "*", "*.example.com", "", "a/b", ".a", "::1"])
def test_what_is_no_name_of_a_host_is_said_so(name: str) -> None:
    with pytest.raises(ConfigError, match=r"\[web\] hosts\[0\]: must be a name such as .* without a port, got "):
        _load(hosts=[name])


def test_the_token_is_not_shown() -> None:
    config = _load(token="canary", hosts="dock.example.com")
    assert redacted(config)["web"] == {
        "listen": "127.0.0.1:8470",
        "token": "***",
        "hosts": ["dock.example.com"],
        "trusted_proxies": [],
    }


def test_trusted_proxies_are_addresses_and_networks() -> None:
    web = _load(trusted_proxies=["10.0.0.1", "192.168.0.0/24", "fd00::/8", "::1"]).web
    assert web is not None
    assert list(map(str, web.proxy_networks)) == ["10.0.0.1/32", "192.168.0.0/24", "fd00::/8", "::1/128"]
    assert _load(trusted_proxies="10.0.0.1").web == WebSettings(trusted_proxies=("10.0.0.1",))
    assert WebSettings().trusted_proxies == ()


@pytest.mark.parametrize(
    "given", ["*", "", "proxy.example.com", "10.0.0.1:80", "10.0.0", "10.0.0.0/33", "[::1]", "unix:"]
)
def test_what_is_no_address_of_a_proxy_is_said_so_with_what_to_write(given: str) -> None:
    with pytest.raises(ConfigError) as error:
        _load(trusted_proxies=["10.0.0.1", given])
    assert str(error.value) == (
        "configuration: [web] trusted_proxies[1]: must be an address or a network such as"
        f' "10.0.0.1" or "192.168.0.0/24", got "{given}"; write the address that the proxy connects from'
    )


def test_a_network_begins_with_its_first_address() -> None:
    with pytest.raises(ConfigError) as error:
        _load(trusted_proxies=["192.168.0.7/24"])
    assert str(error.value) == (
        "configuration: [web] trusted_proxies[0]: must begin with the first address of its network,"
        ' got "192.168.0.7/24"; write "192.168.0.0/24"'
    )


@pytest.mark.parametrize(
    ("host", "normal"),
    [
        ("A.Example.COM.", "a.example.com"),
        ("[::0:1]", "::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
    ],
)
def test_hosts_are_compared_in_one_form(host: str, normal: str) -> None:
    assert normalise_host(host) == normal


@pytest.mark.parametrize(("host", "is_so"), [("localhost", True), ("::1", True), ("10.0.0.1", False), ("x", False)])
def test_what_is_loopback(host: str, is_so: bool) -> None:
    assert is_loopback(host) is is_so


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, ""),
        ({"listen": "[::1]:8470"}, ""),
        ({"listen": "localhost:8470"}, ""),
        ({"listen": "0.0.0.0:8470", "token": "t"}, ""),
        ({"listen": "[::]:8470", "token": "t"}, ""),
        ({"listen": "192.0.2.1:0", "token": "t"}, ""),
        ({"listen": "192.0.2.1:8470", "token": "t"}, "http://192.0.2.1:8470"),
        ({"listen": "bell:8470", "token": "t"}, "http://bell:8470"),
        ({"url": "https://bell.example.com/a"}, "https://bell.example.com/a"),
    ],
)
def test_others_are_told_only_of_an_address_that_leads_them_here(settings: dict[str, Any], url: str) -> None:
    assert WebSettings.model_validate(settings).public_url == url
