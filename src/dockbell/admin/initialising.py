"""The first configuration: its text, with a comment on every line, and how it is put in place with its secrets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from dockbell.admin.probing import Finding, Report, State
from dockbell.admin.probing.advising import Line, write_table
from dockbell.config import Config, Origins, check_secrets
from dockbell.config.resources import BUILT_IN
from dockbell.config.tables import SourceSettings
from dockbell.core.model import RESOURCES
from dockbell.core.reading.response import clean
from dockbell.errors import ConfigError
from dockbell.host.ownership import OPEN_TO_ALL, PRIVATE, check_owner, find_intruder, write_draft

SOURCE: Final = "main"
"""What the source of a first configuration is called."""
KINDS: Final = {"none": "", "mqtt": "broker", "webhook": "receiver", "stdout": "screen"}
"""The kinds of a first sink, each with what it is called."""

_SHOWN: Final = ("every", "key", "updated_at")
_TOLD: Final = ("key", "updated_at", "updated_since", "bound", "precision of since", "end of list", "order when reread")
"""What is worth a comment where it could not be found out."""
_HEAD: Final = """\
# The configuration of dockbell, written by "dockbell init"; edit it as you need. "dockbell check" reports what would
# fail, "dockbell run" starts the daemon. config.example.toml has every key with its default.
"""
_NAME: Final = "name of this dockbell in the source of its events"
_STORE: Final = (
    Line("url", "sqlite:///dockbell.db", "where to store snapshots and events; relative to this file's folder"),
    Line("keep_events", "7d", "how long to keep events; longer while a sink waits for them"),
)
_MEASURED: Final = """\
# Measured with {sent} requests; the rest is assumed. "dockbell probe" measures again, and prints more details.
"""
_UNMEASURED: Final = """\
# Not measured: {reason}.
# The rest is assumed. No key is set, so dockbell learns what identifies the records: until a complete pass proves the
# key unique, dockbell publishes no deletions, and no events at all unless the key is the record's own id.
# "dockbell probe" finds the key.
"""
_TYPES: Final = {
    "mqtt": "publishes each event, and retains the latest state of each record",
    "webhook": "sends each event as a signed POST",
    "stdout": "writes each event to standard output as a line of JSON",
}
_MQTT: Final = """\
# username = "dockbell"                      # if the broker requires one; its password, in a file:
# password = {{ file = "{name}.password" }}
# state_topic = ""                           # "" turns off the retained latest state of each record
"""
_START: Final = """\
# start = "state"                            # first sends each stored record once; default: "now"
# resources = ["shipments", "stock"]         # only these; default: all
"""
_NO_SINK: Final = """\
# [sinks.receiver]                           # where to send events; without a sink, clients can only pull them
# type = "webhook"
# url = "https://erp.example.com/hooks/dockbell"
# secret = { file = "receiver.secret" }      # created with "dockbell secret"
"""


class FirstSink(msgspec.Struct, frozen=True):
    """Where the events go: ``kind`` is one of :data:`KINDS`, but none; the URL is empty for standard output."""

    kind: str
    url: str = ""

    @property
    def name(self) -> str:
        return KINDS[self.kind]

    @property
    def secret(self) -> str:
        """The file with what signs its deliveries; empty where nothing does."""
        return f"{self.name}.secret" if self.kind == "webhook" else ""

    def table(self) -> dict[str, object]:
        """Return ``[sinks.NAME]``."""
        secret = {"file": self.secret} if self.secret else None
        settings = {"type": self.kind, "url": self.url, "secret": secret}
        return {key: value for key, value in settings.items() if value}


class Plan(msgspec.Struct, frozen=True):
    """What a first configuration is to say."""

    name: str
    base_url: str
    api_key: Mapping[str, str]  # where its key is: ``{"env": NAME}`` or ``{"file": PATH}``
    report: Report | None = None  # what was measured of the API; None where nothing was
    unmeasured: str = ""  # why nothing was
    sink: FirstSink | None = None
    listen: str = ""  # where the status page listens; empty for no page
    token: str = ""  # the file with what the page asks for


# The text ------------------------------------------------------------------------------------------------------------


def compose(plan: Plan) -> str:
    """Return the configuration as TOML, a comment on every line."""
    tables = [_HEAD, write_table((), [Line("name", plan.name, _NAME)]), write_table(("store",), _STORE)]
    if plan.listen:
        lines = [Line("listen", plan.listen, "address of the status page, metrics and pull feeds")]
        if plan.token:
            why = "token for the page; without it, the page is read-only"
            lines.append(Line("token", {"file": plan.token}, why))
        tables.append(write_table(("web",), lines))
    tables.append(write_table(("sources", SOURCE), _describe_account(plan)))
    report = plan.report
    if report is None or report.advice is None:
        tables.append(_UNMEASURED.format(reason=clean(plan.unmeasured)) + _describe_defaults())
    else:
        tables.append(_MEASURED.format(sent=report.sent).rstrip("\n"))
        tables += [
            write_table(("resources", resource), _describe_feed(resource, lines, report.findings))
            for resource, lines in report.advice.feeds.items()
        ]
    tables.append(_NO_SINK if plan.sink is None else _describe_sink(plan.sink))
    return "\n".join(table.strip("\n") + "\n" for table in tables)


def _describe_account(plan: Plan) -> Iterator[Line]:
    advice = None if plan.report is None else plan.report.advice
    lines = {} if advice is None else {line.key: line for line in advice.account}
    accepted = "accepted" if advice is not None else "not tried"
    yield Line("base_url", plan.base_url, lines["base_url"].reason if lines else "URL without /v1")
    yield Line("api_key", dict(plan.api_key), f"{accepted}; dockbell reads it again when the API refuses it")
    default = SourceSettings.model_fields["requests_per_minute"].default
    yield lines.get(
        "requests_per_minute", Line("requests_per_minute", default, "assumed: limit of the API for this key")
    )
    yield Line("share", SourceSettings.model_fields["share"].default, "share of the limit that dockbell uses")


def _describe_feed(resource: str, lines: Sequence[Line], findings: Sequence[Finding]) -> Iterator[Line]:
    """Yield what is worth setting: what is no default, and what people look for first."""
    usual = BUILT_IN[resource]
    for line in lines:
        value = tuple(line.value) if isinstance(line.value, list) else line.value
        if not line.key or line.key in _SHOWN or value != getattr(usual, line.key):
            yield line
    for each in findings:
        if each.subject == f"{SOURCE}/{resource}" and each.state is State.UNTOLD and each.what in _TOLD:
            yield Line("", None, f"unknown: {each.what}; {each.evidence}")


def _describe_defaults() -> str:
    hows = {True: "how often to poll", False: "how often to read the whole list"}
    return "\n".join(
        write_table(("resources", name), [Line("every", settings.every, hows[RESOURCES[name].polled])])
        for name, settings in BUILT_IN.items()
    )


def _describe_sink(sink: FirstSink) -> str:
    lines = {
        "type": Line("type", sink.kind, _TYPES[sink.kind]),
        "url": Line("url", sink.url, "where to send events"),
        "secret": Line("secret", {"file": sink.secret}, "signs the events; the receiver verifies them with it"),
    }
    table = write_table(("sinks", sink.name), [lines[key] for key in sink.table()])
    return table + (_MQTT.format(name=sink.name) if sink.kind == "mqtt" else "") + _START


# The files -----------------------------------------------------------------------------------------------------------


@dataclass
class Files:
    """The files of a first configuration: all of them come to be, or none.

    Each is written beside its place first. They are put there when nothing is left that could be refused: new secrets,
    which can be taken away again, the configuration, and at last the secrets that replace others, so that what was
    there is not lost before its successor is of use.

    With ``replace`` a configuration that is there is replaced, and so is what ``rewrite`` names.
    """

    path: Path
    replace: bool = False
    secrets: dict[str, str] = field(default_factory=dict)
    """What is written for its owner alone, by the names of files beside the configuration; what is there already is
    kept, and used."""
    rewrite: set[str] = field(default_factory=set)  # which of these are replaced all the same

    def refuse_existing(self, *names: str) -> None:
        """Refuse to go on where the configuration, or one of these files beside it, is there and is to be kept.

        Nor where others could replace what is written: the configuration says to whom the API's key is shown.

        Raises:
            ConfigError: It is, or they could.
        """
        folder = self.path.absolute().parent
        if folder.is_dir() and (found := find_intruder(folder, folder.stat().st_uid)):
            raise ConfigError(f"{self.path}: not written, {found}")
        for path in (self.path, *(self.path.with_name(name) for name in names)):
            if not self.replace and os.path.lexists(path):
                raise ConfigError(f"{path}: already exists; choose another file, or add --force")

    def write(self, text: str, load: Callable[[Path], Config]) -> Sequence[Path]:
        """Write everything once the text has proven to be a configuration; return the files that are new.

        Raises:
            ConfigError: ``load`` refuses it, or something cannot be written.
        """
        drafts: dict[Path, Path] = {}
        made: list[Path] = []
        try:
            drafts[self.path] = write_draft(self.path, text, OPEN_TO_ALL)
            config = load(drafts[self.path]).read_from(Origins(str(self.path)))
            replaced, new = self._draft_secrets(drafts)
            check_secrets(config, {str(path.absolute()): draft for path, draft in drafts.items()})
            for path in new:
                _put_in_place(drafts[path], path, replace=False)
                made.append(path)
            _put_in_place(drafts[self.path], self.path, replace=self.replace)
            made.clear()  # they are in use from now on
            for path in replaced:
                _put_in_place(drafts[path], path, replace=True)
        except BaseException as error:
            for path in (*made, *drafts.values()):
                path.unlink(missing_ok=True)
            if isinstance(error, OSError):
                reason = (error.strerror or str(error)).lower()
                raise ConfigError(f"{self.path}: cannot be written, {reason}; choose another file") from error
            raise
        return [self.path, *new]

    def _draft_secrets(self, drafts: dict[Path, Path]) -> tuple[list[Path], list[Path]]:
        """Write drafts of the secrets that are not to be kept; return which replace a file, and which are new."""
        replaced: list[Path] = []
        new: list[Path] = []
        for name, secret in self.secrets.items():
            path = self.path.with_name(name)
            is_there = os.path.lexists(path)
            if is_there and name not in self.rewrite:
                check_owner(path)  # who has made a secret knows it
                continue
            if path.is_dir():
                raise ConfigError(f"{path}: is a folder; move it away")
            drafts[path] = write_draft(path, f"{secret}\n", PRIVATE)
            (replaced if is_there else new).append(path)
        return replaced, new


def _put_in_place(draft: Path, path: Path, *, replace: bool) -> None:
    """Let a draft become a file at once; one that is there already is left alone unless it is to be replaced."""
    if replace:
        draft.replace(path)
    else:
        try:
            os.link(draft, path)  # unlike a rename, it never replaces
        except FileExistsError:
            raise ConfigError(f"{path}: already exists; add --force") from None
        draft.unlink()
    with suppress(OSError):  # some file systems sync no folders
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
