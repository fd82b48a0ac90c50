"""Certificates, both ways, and what happens when they change."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from dockbell.core.model import Outcome, OutcomeKind
from dockbell.errors import ConfigError, SinkError, SinkRejected, SinkUnavailable
from dockbell.telemetry import SinkConnected, SinkFails
from tests.brokers import Subscriber, accepts, find_free_port, wait_until
from tests.sinks.conftest import Facts, make_delivery, running
from tests.sinks.mqtt.conftest import make_sink, needs_mosquitto, open_mosquitto, until

pytestmark = [needs_mosquitto, pytest.mark.usefixtures("quick_backoff")]


@dataclass(frozen=True)
class Authority:
    """A certificate authority of our own, in a folder."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.pem"

    def found(self) -> Authority:
        """Make its key and its certificate."""
        self._openssl(f"req -x509 -subj /CN=authority -keyout {self.folder}/ca.key -out {self.certificate}")
        return self

    def issue(self, name: str, days: int = 2) -> Path:
        """Return a PEM file with a certificate for a name, and its key."""
        path = self.folder / f"{name}.pem"
        self._openssl(
            f"req -x509 -subj /CN={name} -addext subjectAltName=DNS:{name} -CA {self.certificate}"
            f" -CAkey {self.folder}/ca.key -keyout {path}.key -out {path}.crt -days {days}"
        )
        path.write_text(Path(f"{path}.key").read_text() + Path(f"{path}.crt").read_text())
        return path

    def _openssl(self, command: str) -> None:
        text = command.split()
        more = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        subprocess.run(["openssl", *text, *more], check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority")).found()


def lines_of(authority: Authority, *more: str) -> tuple[str, ...]:
    server = authority.issue("localhost")
    return f"cafile {authority.certificate}", f"certfile {server}", f"keyfile {server}", *more


async def test_a_client_certificate_opens_the_door(tmp_path: Path, authority: Authority) -> None:
    client = authority.issue("dockbell")
    with open_mosquitto(tmp_path, *lines_of(authority, "require_certificate true")) as broker:
        url, ca_file = f"mqtts://localhost:{broker.port}", str(authority.certificate)
        async with running(make_sink(url, ca_file=ca_file, cert_file=str(client))) as run:
            run.deliver(make_delivery(state=b"{}"))
            assert await run.until_settled(1) == [Outcome(OutcomeKind.DELIVERED)]
        with pytest.raises(SinkError, match=rf"localhost:{broker.port}: "):
            await make_sink(url, ca_file=ca_file).probe()
        with pytest.raises(SinkRejected, match="certificate not accepted"):
            await make_sink(url).probe()
        with pytest.raises(SinkRejected, match=r"certificate not accepted, .*127\.0\.0\.1"):
            await make_sink(f"mqtts://127.0.0.1:{broker.port}", ca_file=ca_file).probe()


async def test_certificates_that_change_are_read_at_the_next_connection(tmp_path: Path, authority: Authority) -> None:
    stranger = Authority(tmp_path).found()
    facts = Facts()
    ca_file, cert_file = tmp_path / "trusted.pem", tmp_path / "ours.pem"
    ca_file.write_bytes(stranger.certificate.read_bytes())
    cert_file.write_bytes(stranger.issue("dockbell").read_bytes())
    with open_mosquitto(tmp_path, *lines_of(authority, "require_certificate true")) as broker:
        url = f"mqtts://localhost:{broker.port}"
        async with running(make_sink(url, facts, ca_file=str(ca_file), cert_file=str(cert_file))) as run:
            run.deliver(make_delivery())
            await facts.until(SinkFails, 1)
            assert "certificate not accepted, " in facts.of(SinkFails)[0]
            ca_file.write_bytes(authority.certificate.read_bytes())
            await until(lambda: "certificate not accepted" not in facts.of(SinkFails)[-1])
            cert_file.write_text("half a file")
            await until(lambda: "cannot use the client certificate" in facts.of(SinkFails)[-1])
            cert_file.write_bytes(authority.issue("dockbell").read_bytes())
            assert await run.until_settled(1) == [Outcome(OutcomeKind.DELIVERED)]
    assert len(facts.of(SinkConnected)) == 1


async def test_a_broker_without_tls_is_told(tmp_path: Path) -> None:
    with open_mosquitto(tmp_path) as broker, pytest.raises(SinkError, match=r"127.0.0.1:\d+: "):
        await make_sink(f"mqtts://127.0.0.1:{broker.port}").probe()


def test_the_context_is_a_new_one_for_each_connection(authority: Authority) -> None:
    sink = make_sink("mqtts://localhost", ca_file=str(authority.certificate))
    contexts = [sink._make_login().trust for _ in range(2)]
    assert all(isinstance(context, ssl.SSLContext) for context in contexts)
    assert contexts[0] is not contexts[1]


@needs_mosquitto
async def test_over_tls_many_are_delivered_to_a_broker_of_a_known_authority(tmp_path: Path, certificate: Path) -> None:
    lines = (f"certfile {certificate}", f"keyfile {certificate}", "max_inflight_messages 1000")
    with open_mosquitto(tmp_path, *lines) as broker:
        url = f"mqtts://localhost:{broker.port}"
        async with running(make_sink(url, ca_file=str(certificate), in_flight=200)) as run:
            run.deliver(*(make_delivery(number, state=b"{}") for number in range(500)))
            await run.until_settled(500)
        with pytest.raises(SinkRejected, match=r"certificate not accepted, self.signed certificate"):
            await make_sink(url).probe()
    assert run.fates == [OutcomeKind.DELIVERED] * 500


async def test_over_tls_large_events_arrive_whole_and_in_order(tmp_path: Path, certificate: Path) -> None:
    port, bodies = find_free_port(), [bytes([number]) * 2_000_000 for number in range(20)]
    lines = (f"listener {port} 127.0.0.1", f"certfile {certificate}", f"keyfile {certificate}")
    with open_mosquitto(tmp_path, *lines) as broker, Subscriber(broker, "dockbell/event/#") as subscriber:
        wait_until(lambda: accepts("127.0.0.1", port), "mosquitto does not accept TLS")
        async with running(make_sink(f"mqtts://localhost:{port}", ca_file=str(certificate))) as run:
            run.deliver(*(make_delivery(number, body=body) for number, body in enumerate(bodies)))
            await run.until_settled(20)
        received = await subscriber.until(lambda all_: len(all_) == 20)
    assert run.fates == [OutcomeKind.DELIVERED] * 20
    assert [each.payload for each in received] == bodies


def test_a_file_that_cannot_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[sinks.floor\]: cannot use ca_file, no such file or directory, got /"):
        make_sink("mqtts://localhost", ca_file=str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError, match=r"\[sinks.floor\]: cannot use the client certificate, no such file"):
        make_sink("mqtts://localhost", cert_file=str(tmp_path / "none.pem"))


async def test_a_broker_that_speaks_no_tls_is_told_by_what_to_change(tmp_path: Path) -> None:
    with open_mosquitto(tmp_path) as broker:
        hint = "; if the broker does not use TLS on this port, url must begin with mqtt:"
        with pytest.raises(SinkUnavailable, match=hint):
            await make_sink(f"mqtts://localhost:{broker.port}").probe()
