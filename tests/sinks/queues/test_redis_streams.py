"""The sink for Redis streams against Debian's Redis; what every sink promises is in ``test_conformance.py``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dockbell.core.model import Outcome, OutcomeKind
from dockbell.errors import ConfigError, SinkRejected, SinkUnavailable
from dockbell.sinks.queues.redis_streams import RedisSettings, RedisSink
from dockbell.telemetry import SinkConnected
from tests.brokers import find_free_port
from tests.redis_server import RedisServer
from tests.sinks.conftest import Facts, make_delivery, make_statement, publish

Start = Callable[..., RedisServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Yield what starts a server with some options; all end with the test."""
    servers: list[RedisServer] = []

    def start_one(*options: str) -> RedisServer:
        folder = tmp_path / f"redis-{len(servers)}"
        folder.mkdir()
        servers.append(server := RedisServer(folder, *options))
        server.start()
        return server

    yield start_one
    for server in servers:
        server.stop()


def make_sink(server: RedisServer, facts: Facts | None = None, **settings: Any) -> RedisSink:
    values = {"type": "redis", "url": f"redis://127.0.0.1:{server.port}", "timeout": "2s"} | settings
    return RedisSink("lake", RedisSettings.model_validate(values), (facts or Facts()).telemetry)


async def test_an_entry_holds_the_event_and_what_consumers_sort_by(start: Start) -> None:
    server, facts = start(), Facts()
    delivery, statement = make_delivery(1), make_statement(2)
    await publish(make_sink(server, facts), delivery, statement, make_delivery(3, replayed=True))
    redis = server.connect()
    (_, entry), (_, replayed) = redis.xrange("dockbell:main:shipments")
    assert entry["event"] == delivery.event.body.decode()
    assert {name: entry[name] for name in ("id", "type", "key")} == {
        "id": "evt_1",
        "type": "dockbell.shipment.updated",
        "key": "shp_1",
    }
    assert "replay" not in entry
    assert replayed["replay"] == "true"
    ((_, stated),) = redis.xrange("dockbell:main:stock")
    assert json.loads(stated["event"])["type"] == "dockbell.feed.gap"
    assert facts.of(SinkConnected) == [f"sink lake: connected, 127.0.0.1:{server.port}"]


async def test_the_name_of_the_stream_may_be_chosen_and_its_length_bounded(start: Start) -> None:
    server = start()
    sink = make_sink(server, stream="warehouse", max_length=100)
    await publish(sink, *map(make_delivery, range(500)))
    assert 100 <= server.connect().xlen("warehouse") < 300  # it is cut by whole nodes


async def test_what_is_not_a_stream_takes_no_entry(start: Start) -> None:
    server = start()
    server.connect().set("dockbell:main:shipments", "no stream")
    (outcome,) = await publish(make_sink(server), make_delivery())
    assert outcome.kind is OutcomeKind.FAILED
    assert "wrong kind of value" in outcome.reason


async def test_a_server_that_has_no_memory_left_takes_it_later(start: Start) -> None:
    server = start("--maxmemory", "100kb", "--maxmemory-policy", "noeviction")
    (outcome,) = await publish(make_sink(server), make_delivery())
    assert outcome.kind is OutcomeKind.FAILED
    assert "maxmemory" in outcome.reason


async def test_with_replicas_an_event_is_settled_once_so_many_have_it(start: Start) -> None:
    server = start()
    sink = make_sink(server, replicas=1)
    (outcome,) = await publish(sink, make_delivery(1))
    assert outcome == Outcome(OutcomeKind.FAILED, "0 of 1 replicas have it")
    replica = start("--replicaof", "127.0.0.1", str(server.port))
    while replica.connect().info("replication")["master_link_status"] != "up":
        pass
    (outcome,) = await publish(sink, make_delivery(2))
    assert outcome.kind is OutcomeKind.DELIVERED
    assert replica.connect().xlen("dockbell:main:shipments") == 2


# Credentials and TLS -------------------------------------------------------------------------------------------------


async def test_a_password_is_shown_and_a_wrong_one_loses_nothing(start: Start, tmp_path: Path) -> None:
    server = start("--requirepass", "open sesame")
    (tmp_path / "password").write_text("wrong")
    sink = make_sink(server, password={"file": str(tmp_path / "password")})
    with pytest.raises(SinkRejected, match="invalid username-password pair"):
        await sink.probe()
    (outcome,) = await publish(sink, make_delivery())
    assert outcome.kind is OutcomeKind.UNREACHABLE
    assert "wrong" not in outcome.reason
    (tmp_path / "password").write_text("open sesame")
    (outcome,) = await publish(sink, make_delivery())
    assert outcome.kind is OutcomeKind.DELIVERED


async def test_a_user_who_may_not_add_entries_loses_nothing(start: Start) -> None:
    server = start()
    server.connect().execute_command("ACL SETUSER bell on >secret ~* +ping +info")
    (outcome,) = await publish(make_sink(server, username="bell", password="secret"), make_delivery())
    assert outcome.kind is OutcomeKind.UNREACHABLE
    assert "has no permissions" in outcome.reason


async def test_it_speaks_tls_and_checks_the_certificate(start: Start, certificate: Path) -> None:
    port, pem = find_free_port(), str(certificate)
    options = ("--tls-port", str(port), "--tls-cert-file", pem, "--tls-key-file", pem, "--tls-auth-clients", "no")
    server = start(*options, "--tls-ca-cert-file", pem)
    url = f"rediss://localhost:{port}"
    (outcome,) = await publish(make_sink(server, url=url, ca_file=pem), make_delivery())
    assert outcome.kind is OutcomeKind.DELIVERED
    with pytest.raises(SinkRejected, match="certificate"):
        await make_sink(server, url=url).probe()


async def test_an_attempt_that_began_before_its_connection_was_lost_leaves_nothing_open(start: Start) -> None:
    server = start()
    sink = make_sink(server)
    lost = await sink._connect()
    await sink._lose(lost)
    pool: Any = lost.connection_pool
    other = await pool.get_connection()
    await other.send_command("PING")
    await sink._publish(lost, make_delivery())
    assert await other.read_response() == b"PONG"
    await pool.release(other)
    await sink._publish(lost, make_delivery(2))
    redis = server.connect()
    assert redis.xlen("dockbell:main:shipments") == 2
    assert [client for client in redis.client_list() if client["name"] == "dockbell"] == []


# Probing and settings ------------------------------------------------------------------------------------------------


async def test_a_probe_says_which_server_answers(start: Start) -> None:
    server = start()
    found = await make_sink(server).probe()
    assert found.startswith(f"127.0.0.1:{server.port} answers as Redis 7.")
    server.stop()
    with pytest.raises(SinkUnavailable, match="connection refused"):
        await make_sink(server).probe()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "http://redis"}, 'must be a URL such as "rediss://redis.example.com:6379/0"'),
        ({"url": "redis://me:hush@redis"}, "must not contain a user or password; use the keys username and password"),
        ({"url": "redis://redis/zero"}, "must end with the host and port, or with the number of a database"),
        ({"username": "me"}, "username needs a password"),
        ({"key_file": "a.key"}, "key_file needs a cert_file"),
        ({"ca_file": "ca.pem"}, 'ca_file and cert_file need a url that begins with "rediss:"'),
        ({"stream": "{key}"}, "must be a name, which may contain {source} and {resource}"),
        ({"stream": ""}, "must be a name"),
        ({"max_length": 0}, "must be at least 1"),
    ],
)
def test_settings_that_cannot_work_are_told(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem) as error:
        RedisSettings.model_validate({"type": "redis", "url": "redis://redis"} | settings)
    assert "hush" not in str(error.value)


def test_a_certificate_that_cannot_be_used_is_told_at_the_start() -> None:
    settings = RedisSettings.model_validate({"type": "redis", "url": "rediss://redis", "ca_file": "/no/such.pem"})
    with pytest.raises(ConfigError, match=r"\[sinks.lake\]: cannot use ca_file, no such file or directory"):
        RedisSink("lake", settings, Facts().telemetry)
