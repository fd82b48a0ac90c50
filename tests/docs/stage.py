"""Where a document is walked through: a folder, the servers that it speaks of, and what its reader would type."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from dockbell.app import load_config
from dockbell.errors import ConfigError
from tests.brokers import MOSQUITTO, Mosquitto, find_free_port, make_broker
from tests.brokers import started as started_broker
from tests.cli.programs import started
from tests.docs.markdown import ROOT, Block, read

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEY: Final = "sandbox"
PASSWORD: Final = "floor-password"

_PATIENCE: Final = 60
_LASTING: Final[tuple[tuple[str, str], ...]] = (
    (r"dockbell sandbox", r"http://[0-9.:]+"),
    (r"dockbell run", r" runs: "),
    (r"(python|node) \w*receiver", ""),
    (r"python (mirror|follow)", ""),
    (r"mosquitto_sub|sh watch\.sh", ""),
    (r"curl -N", ""),
    (r"dockbell events --follow", ""),
)
"""Commands that go on: by how they begin, with what they print once they are ready. Theirs is another terminal."""

_FRAGMENTS: Final = (
    "",
    '[sinks.any]\ntype = "stdout"\n',
    '[sinks.any]\ntype = "webhook"\nurl = "http://127.0.0.1:9/"\n',
    "[resources.shipments]\n",
)
"""What keys without a table are keys of: the first that they fit."""


@dataclass
class Program:
    """A command that goes on; what it prints goes to a file."""

    command: str
    process: subprocess.Popen[bytes]
    printed: Path

    @property
    def text(self) -> str:
        """What it has printed."""
        return self.printed.read_text(encoding="utf-8")

    def until(self, pattern: str) -> re.Match[str]:
        """Return the first match in what it prints, once there is one."""
        end = time.monotonic() + _PATIENCE
        while (match := re.search(pattern, self.text, re.MULTILINE)) is None:
            assert self.process.poll() is None, f"{self.command}: it ended: {self.text}"
            assert time.monotonic() < end, f"{self.command}: no {pattern!r} in {self.text}"
            time.sleep(0.05)
        return match

    def end(self) -> None:
        """End it with whatever it has started."""
        with suppress(ProcessLookupError):  # it has ended by itself, and nothing is left of its group
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Stage:
    """Walks through one document.

    What the document calls ``api.example.com``, ``broker.example.com``, ``erp.example.com`` and by a port of its own is
    on this machine, each started when the document speaks of it. ``make_database`` returns the URL of a database of
    PostgreSQL.
    """

    document: str
    folder: Path
    stack: ExitStack
    certificate: Path
    make_database: Callable[[], str]
    config: str = ""
    replaced: dict[str, str] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)
    printed: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the folder what the reader's would be, and start what the document speaks of."""
        self.text = read(self.document)
        self.ports = {name: find_free_port() for name in ("8480", "8470", "8000", "8001")}
        self.env = dict(os.environ) | {
            "DOCKBELL_API_KEY": KEY,
            "DOCKBELL_URL": f"http://127.0.0.1:{self.ports['8470']}",
            "ERP_WEBHOOK_SECRET": SECRET,
            "FLOOR_PASSWORD": PASSWORD,
            "PORT": str(self.ports["8000"]),
            "PYTHONUNBUFFERED": "1",
        }
        self._put_on_path()
        for example in (ROOT / "docs" / "examples").iterdir():
            shutil.copy(example, self.folder)
        for shown, port in self.ports.items():
            self.replaced |= {f":{shown}": f":{port}", f'"127.0.0.1", {shown}': f'"127.0.0.1", {port}'}
        if "api.example.com" in self.text:
            self.start_api()
        if "broker.example.com" in self.text:
            self.start_broker()
        receiver = f"http://127.0.0.1:{self.ports['8000']}/"
        self.replaced |= {
            "https://erp.example.com/hooks/dockbell": receiver,
            "https://erp.example.com/dockbell": receiver,
        }

    def start_api(self) -> str:
        """Start a sandbox, where there is none yet, and return where it is."""
        shown = "https://api.example.com"
        if shown not in self.replaced:
            options = ("--port", "0", "--records", "2000", "--activity", "10")
            sandbox = self.stack.enter_context(started(self.folder, "sandbox", *options))
            self.replaced[shown] = sandbox.until("http://[0-9.:]+")[0]
        return self.replaced[shown]

    def start_broker(self) -> str:
        """Start a broker, with TLS and a password where the document has these, and return where it is."""
        shown = "mqtt://broker.example.com:1883"
        if "mqtts://broker.example.com" in self.text:
            passwords = self.folder / "passwords"
            passwords.touch(mode=0o600)
            subprocess.run(["mosquitto_passwd", "-b", passwords, "dockbell", PASSWORD], check=True)
            lines = (
                f"certfile {self.certificate}",
                f"keyfile {self.certificate}",
                f"password_file {passwords}",
                "allow_anonymous false",
            )
            broker = self.stack.enter_context(started_broker(Mosquitto(self.folder, lines, host="127.0.0.1")))
            shutil.copy(self.certificate, self.folder / "ca.pem")
            self.replaced["mqtts://broker.example.com:8883"] = f"mqtts://localhost:{broker.port}"
            self.replaced["-h broker.example.com -p 8883"] = f"-h localhost -p {broker.port}"
        elif shown not in self.replaced:
            broker = self.stack.enter_context(started_broker(make_broker(self.folder)))
            self.replaced[shown] = broker.url
            self.replaced["-h broker.example.com"] = f"-h {broker.host} -p {broker.port}"
        return self.replaced.get(shown, "")

    def fit(self, text: str) -> str:
        """Return what the document shows with the addresses that there are here."""
        for shown, here in sorted(self.replaced.items(), key=lambda each: -len(each[0])):
            text = text.replace(shown, here)
        return text

    # Files ------------------------------------------------------------------------------------------------------------

    def save(self, block: Block) -> None:
        """Write a program to the file that the line before it names."""
        (name,) = re.findall(r"`([\w.-]+\.(?:py|mjs|js))`", block.lead)
        (self.folder / name).write_text(self.fit(block.text))

    def configure(self, block: Block) -> None:
        """Load a configuration, or a part of one, as the daemon would; it is the one from now on, if none runs."""
        text = self.fit(block.text)
        if not re.search(r"(?m)^\[sources\.\w+\]", text):
            own = f'[sources.main]\nbase_url = "{self.start_api()}"\napi_key = "{KEY}"\n'
            text = self._complete(text, own)
        (self.folder / "shown.toml").write_text(text)
        load_config(self.folder / "shown.toml")
        if not self.config:
            (self.folder / "dockbell.toml").write_text(text)

    def _complete(self, text: str, own: str) -> str:
        """Return a part of a configuration in a whole one."""
        problems = []
        for context in _FRAGMENTS if re.match(r"\w+ = ", text.lstrip()) else ("",):
            whole = f"{own}{context}{text}"
            (self.folder / "tried.toml").write_text(whole)
            try:
                load_config(self.folder / "tried.toml")
            except ConfigError as error:
                problems.append(str(error))
            else:
                return whole
        raise AssertionError(f"{self.document}: is no part of a configuration: {problems}: {text}")

    # Commands ---------------------------------------------------------------------------------------------------------

    def perform(self, command: str, *, code: int = 0) -> None:
        """Do what a line says: to its end, or until it is ready where it goes on."""
        line = self.fit(command)
        if match := re.fullmatch(r"export (\w+)=(.*)", line):
            shown = self._bash(f'{line}; printf %s "${match[1]}"')
            self.env[match[1]] = shown.stdout
            return
        for pattern, ready in _LASTING:
            if re.search(rf"(^|&& ){pattern}", command):
                self._start(line, ready)
                return
        done = self._bash(line)
        end = time.monotonic() + _PATIENCE
        while re.search(r"\bdockbell status\b", line) and done.returncode != code and time.monotonic() < end:
            done = self._bash(line)  # its reader looks again, too
        self.printed.append((command, done.stdout + done.stderr))
        assert done.returncode == code, f"{command}: exit code {done.returncode}: {done.stdout} {done.stderr}"

    def until(self, command: str, pattern: str) -> None:
        """Wait until what a command prints has a pattern; at once where it has ended."""
        for program in self.programs:
            if program.command.startswith(self.fit(command)):
                program.until(pattern)
                return
        said = [text for line, text in self.printed if line.startswith(command)]
        assert said, f"{command} is not in {self.document}"
        assert any(re.search(pattern, text, re.MULTILINE) for text in said), f"{command}: no {pattern!r} in {said}"

    def wait(self, holds: Callable[[], object], what: str) -> None:
        """Wait until something holds."""
        end = time.monotonic() + _PATIENCE
        while not holds():
            assert time.monotonic() < end, what
            time.sleep(0.1)

    def ask(self, *words: str) -> object:
        """Return what a command prints as JSON."""
        return json.loads(self._bash(" ".join(["dockbell", *words, "--json"])).stdout)

    def get(self, path: str) -> httpx.Response:
        """Ask the daemon's web server."""
        return httpx.get(f"http://127.0.0.1:{self.ports['8470']}{path}", trust_env=False)

    def _start(self, line: str, ready: str) -> None:
        if "dockbell sandbox" in line and "--port" not in line:
            line += f" --port {self.ports['8480']}"
        printed = self.folder / f"{len(self.programs)}.out"
        with printed.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", line],
                cwd=self.folder,
                env=self.env,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        program = Program(line, process, printed)
        self.stack.callback(program.end)
        self.programs.append(program)
        if ready:
            program.until(ready)
        if "receiver.py" in line:
            self.wait(self._is_receiving, f"{line}: does not listen: {program.text}")

    def _is_receiving(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.ports["8000"])).close()
        except OSError:
            return False
        return True

    def _bash(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )

    def _put_on_path(self) -> None:
        """Let ``dockbell`` and ``python`` be those that run the tests."""
        programs = self.folder / "bin"
        programs.mkdir()
        for name, words in {"dockbell": "-m dockbell", "python": "", "python3": ""}.items():
            path = programs / name
            path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            path.chmod(0o755)
        found = [programs, *([Path(MOSQUITTO).parent] if MOSQUITTO else [])]
        self.env["PATH"] = os.pathsep.join([*map(str, found), self.env["PATH"]])
