"""The configuration: TOML in, frozen models out; nothing is asked or connected here.

- ``values``: the types that keys have: durations, schedules, pointers, names, URLs, paths. ``expression``: conditions
  on changes.
- ``wording``: the base of every table, and plain words for what does not fit it.
- ``secret``: values that must not be seen, URLs among them.
- ``web``: what ``[web]`` holds, and on which addresses that is safe.
- ``tables``: the whole file, what its tables hold, and how those of a feed are merged.
- ``loading``: from a file to a :class:`Config`, or to every problem at once; and back, without the secrets.

Every key that the models hold works, and stands in ``config.example.toml`` with its default and its meaning. Errors
name the file, the table, the key, what was got and what to do.
"""

from __future__ import annotations

from dockbell.condition.evaluation import Answer
from dockbell.config.expression import Expression, Facts
from dockbell.config.loading import check_secrets, find, load, redacted, to_toml, validate
from dockbell.config.secret import ProxyUrl, Revealed, RevealedBytes, Secret, SecretUrl
from dockbell.config.tables import (
    Config,
    FeedSettings,
    NamedEventSettings,
    ResourceSettings,
    SinkSettings,
    SourceSettings,
    StoreSettings,
)
from dockbell.config.values import RETRY_SCHEDULE, ConfigPath, Duration, Interval, format_duration, parse_duration
from dockbell.config.web import WebSettings
from dockbell.config.wording import suggest

__all__ = [
    "RETRY_SCHEDULE",
    "Answer",
    "Config",
    "ConfigPath",
    "Duration",
    "Expression",
    "Facts",
    "FeedSettings",
    "Interval",
    "NamedEventSettings",
    "ProxyUrl",
    "ResourceSettings",
    "Revealed",
    "RevealedBytes",
    "Secret",
    "SecretUrl",
    "SinkSettings",
    "SourceSettings",
    "StoreSettings",
    "WebSettings",
    "check_secrets",
    "find",
    "format_duration",
    "load",
    "parse_duration",
    "redacted",
    "suggest",
    "to_toml",
    "validate",
]
