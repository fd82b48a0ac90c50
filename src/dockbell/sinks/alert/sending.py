"""Sends messages through Apprise: a program that reads them from its standard input, and writes what came of each.

It is a process of its own, so that it can be ended whatever a service does, and the 20 MB of Apprise are in memory only
while messages are sent. It is started by the path of this file, and imports nothing of dockbell: that would take 0.3 s.
"""

from __future__ import annotations

import logging
import re
import socket
import sys
import warnings
from contextlib import suppress
from io import StringIO
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

_UNREACHED: Final = "connection error"
"""Stands in the log line of each of Apprise's services that had no connection, or no answer in time."""
_STATUS: Final = re.compile(r"error=(\d{3})\b")
_HTTP, _HTTPS = 80, 443


class Message(msgspec.Struct, frozen=True):
    url: str
    title: str  # without it nothing is sent: the service is only connected to
    body: str
    kind: str  # ``failure``, ``warning``, ``success`` or ``info``
    seconds: float  # that the service may take to connect, and to answer


class Answer(msgspec.Struct, frozen=True):
    """What came of it; of what a service says only a status is passed on: it may quote the URL."""

    is_sent: bool = False
    is_reached: bool = True
    reason: str = ""
    service: str = ""  # what the URL leads to, as Apprise calls it, such as ``Slack``; empty where it does not know it


def main() -> None:
    """Answer each line with a line, to the end of the input."""
    for line in sys.stdin.buffer:
        answer = answer_message(msgspec.json.decode(line, type=Message))
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


def answer_message(message: Message) -> Answer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import apprise  # noqa: PLC0415  # the daemon imports this module for its types

        asset = apprise.AppriseAsset(app_id="dockbell", app_desc="dockbell", async_mode=False)
        service = apprise.Apprise.instantiate(message.url, asset=asset)
    if service is None:
        return Answer(reason="Apprise does not understand the url")
    name = str(service.service_name)
    if not message.title:
        is_reached = _can_connect(service, message.seconds)
        return Answer(is_reached=is_reached, reason="" if is_reached else _tell_unreached(service), service=name)
    service.socket_connect_timeout = service.socket_read_timeout = message.seconds
    log = StringIO()
    logger = logging.getLogger("apprise")
    logger.handlers, logger.propagate = [logging.StreamHandler(log)], False
    if service.notify(
        title=message.title, body=message.body, notify_type=message.kind, body_format=apprise.NotifyFormat.TEXT
    ):
        return Answer(is_sent=True, service=name)
    said = log.getvalue()
    if _UNREACHED in said.lower():
        return Answer(is_reached=False, reason=_tell_unreached(service), service=name)
    status = _STATUS.search(said)
    return Answer(
        reason=f"the service refused it, status {status[1]}" if status else "the service did not accept it",
        service=name,
    )


def _can_connect(service: Any, seconds: float) -> bool:
    """Return whether the server of a service takes connections; also where Apprise does not say where it is."""
    address = _find_address(service)
    if address is None:
        return True
    with suppress(OSError), socket.create_connection(address, timeout=seconds):
        return True
    return False


def _tell_unreached(service: Any) -> str:
    """Return that a service cannot be reached, with its host, unless the url has a secret in the place of a host."""
    host, _ = _find_address(service) or ("", 0)
    is_host = host != service.host or "host" in service.template_tokens
    return f"{host} cannot be reached" if host and is_host and "{" not in host else "cannot be reached"


def _find_address(service: Any) -> tuple[str, int] | None:
    host = getattr(service, "smtp_host", None) or service.host or ""
    if "." in host or host == "localhost":
        return host, service.port or (_HTTPS if service.secure else _HTTP)
    for name in ("notify_url", "webhook_url", "cloud_notify_url"):  # of a service that is in one place for all
        parts = urlsplit(getattr(service, name, None) or "")
        if parts.hostname:
            return parts.hostname, parts.port or _HTTPS
    return None


if __name__ == "__main__":
    main()
