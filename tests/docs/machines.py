"""What stands in for a container engine and for systemd where their documents are walked through.

Both run right here what the files of ``docs/operations`` say, with the places of containers and of the machine replaced
by places in the stage's folder. What only they can do, users, mounts and limits, is read by ``tests/acceptance``.
"""

from __future__ import annotations

import getpass
import shutil
from typing import Final

from tests.brokers import find_free_port
from tests.docs.markdown import ROOT, find_blocks
from tests.docs.stage import KEY, Stage

_OPERATIONS: Final = ROOT / "docs" / "operations"

_DOCKER: Final = """\
#!/bin/sh
set -eu
case "$1 $2" in
"compose up")
  setsid mosquitto -c compose/mosquitto.conf >broker.log 2>&1 & echo $! >broker.pid
  setsid dockbell run >daemon.log 2>&1 & echo $! >daemon.pid ;;
"compose exec") shift 3; exec "$@" ;;
"compose down")
  for name in daemon broker; do
    pid=$(cat $name.pid)
    kill "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
  done ;;
*) exit 64 ;;
esac
"""

_SYSTEMCTL: Final = """\
#!/bin/sh
set -eu
cd "{folder}"
say() {{ sed -n "s/^$1=//p" units/dockbell.service; }}
case $1 in
daemon-reload) systemd-analyze verify --man=no units/dockbell.service ;;
enable | start)
  credential=$(say LoadCredential)
  mkdir -p credentials
  cp "${{credential#*:}}" "credentials/${{credential%%:*}}"
  setsid $(say ExecStart) >daemon.log 2>&1 & echo $! >daemon.pid
  until grep -q " runs: " daemon.log; do kill -0 "$(cat daemon.pid)"; sleep 0.05; done ;;
status) kill -0 "$(cat daemon.pid)" ;;
reload) exec $(say ExecReload) ;;
stop) kill "$(cat daemon.pid)"; while kill -0 "$(cat daemon.pid)" 2>/dev/null; do sleep 0.05; done ;;
restart) "$0" stop; "$0" start ;;
*) exit 64 ;;
esac
"""


def use_containers(stage: Stage) -> None:
    """Let ``docker compose`` run a broker and the daemon by the files beside compose.yaml."""
    port, folder = find_free_port(), stage.folder / "compose"
    shutil.copytree(_OPERATIONS / "compose", folder, ignore=shutil.ignore_patterns("secrets"))
    (folder / "secrets").mkdir()
    (folder / "secrets" / "api-key").write_text(KEY)  # else it is asked for
    here = {
        "/run/secrets": f"{folder}/secrets",
        "/mosquitto/config": str(folder),
        "/mosquitto/data/": f"{stage.folder}/",
        "/var/lib/dockbell": str(stage.folder),
        "listener 1883": f"listener {port} 127.0.0.1\nuser {getpass.getuser()}",
        "mqtt://broker:1883": f"mqtt://127.0.0.1:{port}",
        "0.0.0.0:8470": "127.0.0.1:8470",
    }
    for path in (folder / "mosquitto.conf", folder / "config" / "dockbell.toml"):
        text = path.read_text(encoding="utf-8")
        for shown, place in here.items():
            text = text.replace(shown, place)
        path.write_text(stage.fit(text))
    stage.env["DOCKBELL_CONFIG"] = str(folder / "config" / "dockbell.toml")
    _put(stage, "docker", _DOCKER)
    stage.stack.callback(stage.perform, "docker compose down")


def use_systemd(stage: Stage) -> None:
    """Let ``systemctl`` do what the unit says, and have at hand what is to be installed."""
    stage.replaced |= {
        "/etc/dockbell": f"{stage.folder}/etc",
        "/etc/systemd/system": f"{stage.folder}/units",
        "/opt/dockbell": f"{stage.folder}/opt",
        "/run/credentials/dockbell.service": f"{stage.folder}/credentials",
        "/var/lib/dockbell": str(stage.folder),
        "-g dockbell ": "",
        "sudo -u dockbell ": "env ",
    }
    for name in ("docs/operations", "opt/bin", "units"):
        (stage.folder / name).mkdir(parents=True)
    shutil.copy(stage.folder / "bin" / "dockbell", stage.folder / "opt" / "bin")
    unit = (_OPERATIONS / "dockbell.service").read_text(encoding="utf-8")
    (stage.folder / "docs" / "operations" / "dockbell.service").write_text(stage.fit(unit))
    (shown,) = [block for block in find_blocks(stage.document) if block.language == "toml"]
    (stage.folder / "dockbell.toml").write_text(stage.fit(shown.text))
    (stage.folder / "api-key").write_text(KEY)
    _put(stage, "systemctl", _SYSTEMCTL.format(folder=stage.folder))
    _put(stage, "journalctl", f"#!/bin/sh\nexec cat {stage.folder}/daemon.log\n")
    stage.stack.callback(stage.perform, "systemctl stop dockbell")


def _put(stage: Stage, name: str, text: str) -> None:
    path = stage.folder / "bin" / name
    path.write_text(text)
    path.chmod(0o755)
