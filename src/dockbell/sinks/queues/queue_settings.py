"""What ``[sinks.NAME]`` of each kind of queue has: the files of TLS, and names that are made of an event."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import ClassVar, Final, Self
from urllib.parse import urlsplit

from pydantic import model_validator

from dockbell.config import ConfigPath, Interval, SinkSettings
from dockbell.config.values import parse_duration
from dockbell.core.model import Event
from dockbell.net.network import make_trust

EVENT_FIELDS: Final = ("source", "resource", "key", "change")
"""What a name may hold, each in braces, see :func:`fill_name`."""


class QueueSettings(SinkSettings):
    """The keys that all of them have.

    Attributes:
        tls_scheme: That of a ``url`` which is reached by TLS.
    """

    tls_scheme: ClassVar[str]
    url: str
    ca_file: ConfigPath | None = None
    cert_file: ConfigPath | None = None
    key_file: ConfigPath | None = None
    timeout: Interval = parse_duration("10s")

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        if self.key_file and not self.cert_file:
            raise ValueError("key_file needs a cert_file")
        if (self.ca_file or self.cert_file) and not self.is_tls:
            raise ValueError(f'ca_file and cert_file need a url that begins with "{self.tls_scheme}:"')
        return self

    @property
    def is_tls(self) -> bool:
        return urlsplit(self.url).scheme == self.tls_scheme

    def find_trust(self, sink: str) -> ssl.SSLContext | None:
        """Return whom a sink trusts by TLS, None without it; ConfigError where a file cannot be used."""
        if not self.is_tls:
            return None
        files = {"ca_file": self.ca_file, "cert_file": self.cert_file, "key_file": self.key_file}
        return make_trust(f"[sinks.{sink}]", **files)


def find_rest(template: str, fields: Sequence[str], *, filled: str = "") -> str:
    """Return what is left of a template once its fields are filled; braces in it are of no field."""
    for field in fields:
        template = template.replace(f"{{{field}}}", filled)
    return template


def list_fields(fields: Sequence[str]) -> str:
    """Return the fields that a template may hold, for a message: ``{source}, {resource} and {key}``."""
    *first, last = (f"{{{field}}}" for field in fields)
    return f"{', '.join(first)} and {last}"


def fill_name(template: str, event: Event) -> str:
    """Return a name in which dots are borders; a statement about a feed has ``-`` for a key."""
    change = event.type.rpartition(".")[2]
    names = {"source": event.feed.source, "resource": event.feed.resource, "key": event.key, "change": change}
    return template.format(**{field: value.replace(".", "%2E") or "-" for field, value in names.items()})
