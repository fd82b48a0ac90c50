"""A real MQTT broker for the demo: an installed Mosquitto, else the one of the ``demo`` extra, else none."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process

HOST: Final = "127.0.0.1"
_REMEDY: Final = "pip install 'dockbell[demo]'"

_ADMIN_FOLDERS: Final = "/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"
"""Where Mosquitto stands although the PATH of plain users does not lead there."""
_START_LIMIT: Final = 10.0
_STOP_LIMIT: Final = 2.0
_LOOK_EVERY: Final = 0.02

_MOSQUITTO: Final = """\
listener {port} {host}
allow_anonymous true
persistence false
set_tcp_nodelay true
"""
_IOTCORE: Final = """\
id = 0
[router]
id = 0
max_connections = 100
max_outgoing_packet_count = 1000
max_segment_size = 104857600
max_segment_count = 10
[v5.1]
name = "v5-1"
listen = "{host}:{port}"
next_connection_delay_ms = 0
[v5.1.connections]
connection_timeout_ms = 60000
max_payload_size = 268435455
max_inflight_count = 100
"""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that runs.

    Attributes:
        name: What it is.
        port: Where it listens, on the loopback address.
    """

    name: str
    port: int

    @property
    def url(self) -> str:
        """Where it is, as sinks want it."""
        return f"mqtt://{HOST}:{self.port}"


@asynccontextmanager
async def start_broker(folder: Path) -> AsyncIterator[Broker | str]:
    """Run the first broker that starts until the block is left; where there is none, the value says why.

    Args:
        folder: For its configuration and its log.
    """
    problem = f"no broker here; {_REMEDY} brings one"
    for name, command, config in _find_brokers():
        port = _find_free_port()
        config_path = folder / f"{name}.toml"  # iotcore goes by the suffix
        config_path.write_text(config.format(host=HOST, port=port))
        log_path = folder / f"{name}.log"
        with log_path.open("wb") as log:
            process = await anyio.open_process(
                [*command, str(config_path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us: we stop it when everybody has said goodbye
            )
        try:
            if await _accepts(process, port):
                yield Broker(name, port)
                return
        finally:
            with anyio.CancelScope(shield=True):
                await _stop(process)
        problem = f"{name} did not start: {_last_line(log_path)}"
    yield problem


def _find_brokers() -> Iterator[tuple[str, list[str], str]]:
    """Yield the name of each broker that is installed, how to start it (but for its configuration), and that."""
    mosquitto = shutil.which("mosquitto") or shutil.which("mosquitto", path=_ADMIN_FOLDERS)
    if mosquitto is not None:
        yield "Mosquitto", [mosquitto, "-c"], _MOSQUITTO
    if find_spec("iotcore") is not None:
        # -P: no folder named iotcore in the working folder may stand in for it.
        yield "iotcore", [sys.executable, "-P", "-m", "iotcore", "--log-level", "CRITICAL", "--config"], _IOTCORE


def _find_free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


async def _accepts(process: Process, port: int) -> bool:
    """Wait until a broker accepts connections; return whether it came to that."""
    with anyio.move_on_after(_START_LIMIT):
        while process.returncode is None:
            with suppress(OSError):
                async with await anyio.connect_tcp(HOST, port):
                    return True
            await anyio.sleep(_LOOK_EVERY)
    return False


def _last_line(path: Path) -> str:
    return (path.read_text(errors="replace").splitlines() or ["it does not say why"])[-1]


async def _stop(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
        with anyio.move_on_after(_STOP_LIMIT):
            await process.wait()
            return
        process.kill()
    await process.wait()
