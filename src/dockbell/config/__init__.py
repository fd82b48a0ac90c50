"""The configuration: TOML in, frozen models out; nothing is asked or connected here.

- ``values``: the types that keys have: durations, pointers, names, URLs, paths. ``cron``: schedules. ``expression``:
  conditions on changes.
- ``wording``: the base of every table, and plain words for what does not fit it.
- ``secret``: values that must not be seen, URLs among them.
- ``web``: what ``[web]`` holds, and on which addresses that is safe.
- ``feeds``: what the tables of resources and sources hold, and how those of a feed are merged. ``tables``: the others.
- ``loading``: from a file to a :class:`Config`, or to every problem at once. ``printing``: back, without the secrets.

Every key that the models hold works, and stands in ``config.example.toml`` with its default and its meaning. Errors
name the file, the table, the key, what was got and what to do.
"""

from __future__ import annotations

from dockbell.condition.evaluation import Answer
from dockbell.config.expression import Expression, Facts, LooksAt, unite
from dockbell.config.feeds import FeedSettings, NamedEventSettings, ResourceSettings, SourceSettings
from dockbell.config.loading import check_secrets, find, load, validate
from dockbell.config.printing import redacted, to_toml
from dockbell.config.secret import ProxyUrl, Revealed, RevealedBytes, Secret, SecretUrl
from dockbell.config.tables import Config, SinkSettings, StoreSettings
from dockbell.config.values import (
    SCHEDULE,
    ConfigPath,
    Duration,
    Interval,
    Names,
    Pointer,
    Pointers,
    Table,
    find_taken,
    format_duration,
    parse_duration,
)
from dockbell.config.web import WebSettings
from dockbell.config.wording import Settings, suggest

__all__ = [
    "SCHEDULE",
    "Answer",
    "Config",
    "ConfigPath",
    "Duration",
    "Expression",
    "Facts",
    "FeedSettings",
    "Interval",
    "LooksAt",
    "NamedEventSettings",
    "Names",
    "Pointer",
    "Pointers",
    "ProxyUrl",
    "ResourceSettings",
    "Revealed",
    "RevealedBytes",
    "Secret",
    "SecretUrl",
    "Settings",
    "SinkSettings",
    "SourceSettings",
    "StoreSettings",
    "Table",
    "WebSettings",
    "check_secrets",
    "find",
    "find_taken",
    "format_duration",
    "load",
    "parse_duration",
    "redacted",
    "suggest",
    "to_toml",
    "unite",
    "validate",
]
