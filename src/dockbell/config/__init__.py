"""The configuration: TOML in, frozen models out; nothing is asked or connected here.

- ``values``: the types that keys have: durations, schedules, pointers, names, URLs, paths. ``expression``: conditions
  on changes.
- ``wording``: the base of every table, and plain words for what does not fit it.
- ``secret``: values that must not be seen, URLs among them.
- ``web``: what ``[web]`` holds, and on which addresses that is safe.
- ``resources``: what is said of a resource, by default too, and how the settings of several tables are merged.
- ``tables``: the whole file and its other tables.
- ``sharing``: what sources have from ``[source_defaults]``.
- ``shared``: what processes on one store have of it in common. ``source_tables``: sources as commands are given them.
- ``toml_file``: one file, parsed. ``including``: the files that a file includes. ``place``: how a place is named.
- ``loading``: from a file to a :class:`Config`, or to every problem at once; and back, without the secrets.

Every key that the models hold works, and stands in ``config.example.toml`` with its default and its meaning. Errors
name the file, the line, the table, the key, what was got and what to do.
"""

from __future__ import annotations

from dockbell.condition.evaluation import Answer as Answer
from dockbell.config.expression import Expression as Expression
from dockbell.config.expression import Facts as Facts
from dockbell.config.expression import Program as Program
from dockbell.config.expression import ValueExpression as ValueExpression
from dockbell.config.loading import check_secrets as check_secrets
from dockbell.config.loading import find as find
from dockbell.config.loading import load as load
from dockbell.config.loading import load_local as load_local
from dockbell.config.loading import load_shared as load_shared
from dockbell.config.loading import redacted as redacted
from dockbell.config.loading import to_toml as to_toml
from dockbell.config.loading import validate as validate
from dockbell.config.place import Origins as Origins
from dockbell.config.resources import NamedEventSettings as NamedEventSettings
from dockbell.config.resources import ResourceSettings as ResourceSettings
from dockbell.config.secret import ProxyUrl as ProxyUrl
from dockbell.config.secret import Revealed as Revealed
from dockbell.config.secret import RevealedBytes as RevealedBytes
from dockbell.config.secret import Secret as Secret
from dockbell.config.secret import SecretUrl as SecretUrl
from dockbell.config.tables import Config as Config
from dockbell.config.tables import FeedSettings as FeedSettings
from dockbell.config.tables import SinkSettings as SinkSettings
from dockbell.config.tables import SourceDefaults as SourceDefaults
from dockbell.config.tables import SourceSettings as SourceSettings
from dockbell.config.tables import StoreSettings as StoreSettings
from dockbell.config.values import RETRY_SCHEDULE as RETRY_SCHEDULE
from dockbell.config.values import ConfigPath as ConfigPath
from dockbell.config.values import Duration as Duration
from dockbell.config.values import Interval as Interval
from dockbell.config.values import format_duration as format_duration
from dockbell.config.values import parse_duration as parse_duration
from dockbell.config.web import WebSettings as WebSettings
from dockbell.config.wording import Settings as Settings
from dockbell.config.wording import suggest as suggest
