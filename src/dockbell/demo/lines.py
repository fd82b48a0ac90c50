"""How the demo looks: every line as text with styles, for any width, the last page, and the screen."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Final, Self

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from dockbell.core.model import RESOURCES, ChangeKind
from dockbell.core.publishing.narrate import narrate
from dockbell.demo.account import Balance
from dockbell.demo.arrival import HOOK, MQTT, Arrival, Figures, Sighting, Spread

WIDE: Final = 100  # from here on there is room for words; below, a sign stands for each kind of change

CHANGES: Final = (ChangeKind.CREATED, ChangeKind.UPDATED, ChangeKind.DELETED, ChangeKind.RESTORED)
SIGNS: Final = dict(zip(CHANGES, "+~-*", strict=True))
CHANGE_STYLES: Final = dict(zip(CHANGES, ("green", "yellow", "red", "cyan"), strict=True))
SINK_STYLES: Final = {MQTT: "magenta", HOOK: "blue"}

_KEY_WIDTH: Final = 7
_DELAY_WIDTH: Final = 5
_BAR_WIDTH: Final = 24
_NARROWEST: Final = 12
_DIGITS: Final = ((10, 2), (100, 1))
_PROMPT: Final = 2.0  # seconds up to which an arrival is shown as quick


def style_of(change: str) -> str:
    return CHANGE_STYLES.get(ChangeKind(change), "")


def show_delay(seconds: float, unit: str = " s") -> str:
    """Return a delay in three digits, where they are enough."""
    digits = next((digits for below, digits in _DIGITS if seconds < below), 0)
    return f"{seconds:.{digits}f}{unit}"


class EventLines:
    """Writes events as lines whose columns stand one below the other."""

    def __init__(self, sinks: Sequence[str]) -> None:
        self._sinks = sinks
        self._key_width = _KEY_WIDTH

    def heading(self, width: int) -> Text:
        sinks = f"{'reached':<{self._sinks_width}}"
        type_ = f"{'event':<{self._type_width(width)}}"
        line = f"{'time':<8} {sinks} {type_} {'record':<{self._key_width}} what changed"
        return Text(f"{line}{'delay':>{max(_DELAY_WIDTH + 1, width - len(line))}}", "dim")

    def event(self, sighting: Sighting, delay: float, width: int) -> Text:
        """Return the line of an event: time, sinks, type, key, what changed from what to what, delay."""
        data = sighting.event["data"]
        self._key_width = max(self._key_width, cell_len(data["key"]))
        kind = Text(self._name_type(data, width), style_of(data["change"]))
        line = self._begin(sighting.complete_at, sighting.arrived, kind, data["key"], width)
        room = max(_NARROWEST, width - line.cell_len - _DELAY_WIDTH - 1)
        told = Text("the same event, later" if sighting.is_late else narrate(sighting.event, width=room))
        told.truncate(room, overflow="ellipsis", pad=True)  # by cells: some letters take two
        line.append_text(told)
        line.append(f" {show_delay(delay, 's'):>{_DELAY_WIDTH}}", _delay_style(data["change"], delay))
        if sighting.is_late:
            line.stylize("dim")
        return line

    def statement(self, arrival: Arrival, width: int) -> Text:
        """Return the line of a statement about a feed: time, sink, type, resource, what is said."""
        data = arrival.event["data"]
        kind = Text(f"feed.{data['statement']}" if width >= WIDE else "!feed", "yellow")
        line = self._begin(arrival.at, {arrival.sink: arrival.at}, kind, data["resource"], width)
        room = max(_NARROWEST, width - line.cell_len)
        told = Text(narrate(arrival.event, width=room))
        told.truncate(room, overflow="ellipsis")
        return line.append_text(told)

    @property
    def _sinks_width(self) -> int:
        return max(len("reached"), len(" ".join(self._sinks)))

    def _type_width(self, width: int) -> int:
        return len("warehouse.restored") if width >= WIDE else len("~warehouse")

    def _name_type(self, data: Mapping[str, str], width: int) -> str:
        singular = RESOURCES[data["resource"]].singular
        return f"{singular}.{data['change']}" if width >= WIDE else f"{SIGNS[ChangeKind(data['change'])]}{singular}"

    def _begin(self, at: datetime, arrived: Mapping[str, datetime], kind: Text, subject: str, width: int) -> Text:
        line = Text(f"{at.astimezone():%H:%M:%S} ", "dim")
        for sink in self._sinks:
            line.append(f"{sink if sink in arrived else '':<{len(sink)}} ", SINK_STYLES.get(sink, ""))
        line.pad_right(self._sinks_width - len(" ".join(self._sinks)))
        kind.pad_right(self._type_width(width) + 1 - kind.cell_len)
        return line.append_text(kind).append(f"{subject:<{self._key_width}} ", "bold")


def note(text: str, at: datetime, level: int) -> Text:
    """Return the line of a problem, coloured by its level of :mod:`logging`."""
    return Text(f"{at.astimezone():%H:%M:%S} ", "dim").append(text, "red" if level >= logging.ERROR else "yellow")


def header(figures: Figures, now: float, elapsed: float, limit: int, width: int, *, page_url: str) -> list[Text]:
    """Return the live header: where the page is, budget, events, delay.

    ``now`` is monotonic seconds, ``elapsed`` those since the start, ``limit`` the requests allowed in a minute.
    """
    minutes, seconds = divmod(int(elapsed), 60)
    share = figures.requests.within_a_minute(now) / limit
    filled = min(_BAR_WIDTH, round(share * _BAR_WIDTH))
    style = "green" if share < 0.8 else "yellow" if share < 1 else "red"  # noqa: PLR2004  # near the limit, at it
    bar = Text("━" * filled, style).append("━" * (_BAR_WIDTH - filled), "bright_black")
    title = f"── dockbell demo ── {minutes}:{seconds:02} ── {page_url} ── Ctrl-C ends it "
    return [
        Text(title + "─" * (width - len(title)), "dim"),
        Text(" requests ", "bold").append_text(bar).append(" ").append_text(show_requests(figures, now, limit)),
        Text(" events   ", "bold").append_text(show_events(figures, words=width >= WIDE)),
        Text(" delay    ", "bold").append_text(show_delays(figures, now, words=width >= WIDE)),
    ]


def status(figures: Figures, now: float, elapsed: float, limit: int) -> list[Text]:
    """Return the header as plain lines, for what is no terminal."""
    used = show_requests(figures, now, limit)
    delays = show_delays(figures, now, words=True)
    return [
        Text(f"-- {elapsed:.0f} s: requests ").append_text(used).append("; delay ").append_text(delays),
        Text(f"-- {elapsed:.0f} s: events ").append_text(show_events(figures, words=True)),
    ]


def show_requests(figures: Figures, now: float, limit: int) -> Text:
    text = Text(f"{figures.requests.within_a_minute(now)} of {limit}", "bold").append(" in the last minute")
    refused = figures.requests.refused
    return text.append(f", refused {refused}", "bold red" if refused else "dim")


def show_events(figures: Figures, *, words: bool) -> Text:
    text = Text(f"{figures.count():,}", "bold").append(": ")
    for change in CHANGES:
        number = f"{figures.count(change):,}"
        text.append(f"{number} {change}  " if words else f"{SIGNS[change]}{number} ", style_of(change))
    return text.append("" if words else "  ").append_text(
        Text("  ").join(
            Text(f"{sink} {inbox.events:,}", SINK_STYLES.get(sink, "")) for sink, inbox in figures.inboxes.items()
        )
    )


def show_delays(figures: Figures, now: float, *, words: bool) -> Text:
    """Return how long changes of the last minute took to the receivers, and how long dockbell says that they took."""
    arrived, measured = figures.recent_delays(now), figures.recent_measured(now)
    text = Text("p50 ").append(show_delay(arrived.median) if arrived.count else "-", "bold" if arrived.count else "")
    text.append(f"  p99 {show_delay(arrived.p99)}" if arrived.count else "")
    if measured.count:
        text.append(f"  dockbell measures {show_delay(measured.median)}, {show_delay(measured.p99)}", "dim")
    return text.append(f"  watching {sum(figures.records.values()):,} records" if words else "", "dim")


def _delay_style(change: str, delay: float) -> str:
    # A deletion is believed at the second look: it is never quick, and that is as it should be.
    return "dim" if change == ChangeKind.DELETED else "green" if delay < _PROMPT else "yellow"


_LABEL_WIDTH: Final = 10
_NEXT_STEPS: Final = (
    ("dockbell init", "asks for your API, broker or webhook"),
    ("dockbell check && dockbell run", "what would fail, and then the daemon"),
    ("docs/guarantees.md", "what dockbell guarantees, and when"),
)


def is_clean(figures: Figures, balance: Balance) -> bool:
    """Return whether nothing was lost, invented, forged, missing, nor asked too often."""
    gaps = sum(inbox.gaps for inbox in figures.inboxes.values())
    return not (balance.lost or balance.invented or figures.forged or figures.requests.refused or gaps)


def write_summary(
    figures: Figures, balance: Balance, elapsed: float, limit: int, kept: Path | None
) -> Iterator[RenderableType]:
    """Yield the parts of the last page; ``kept`` is the folder that stays, if one does."""
    yield Text()
    yield Rule(f"summary of {elapsed:.0f} s", style="dim", align="left")
    yield _tabulate(figures)
    yield Text()
    for number, text in enumerate(_describe_inboxes(figures)):
        yield _label("" if number else "arrived", text)
    yield _label("delay", _describe(figures.delays(), "since updated_at"))
    if figures.delays(deletions=True).count:
        yield _label("deletions", _describe(figures.delays(deletions=True), "take two passes"))
    requests = figures.requests
    refused = Text(f"{requests.refused} refused (429)", "bold red" if requests.refused else "")
    busiest = f"{requests.total:,}, at most {requests.busiest} of {limit} in a minute, "
    yield _label("requests", Text(busiest).append_text(refused))
    yield Text()
    yield from _show_balance(balance)
    yield Text()
    if kept is not None:
        yield Text("explore what was kept", "bold")
        yield Text(f"  dockbell status --config {kept / 'dockbell.toml'}")
        yield Text(f"  dockbell events --config {kept / 'dockbell.toml'}")
    yield Text("next", "bold")
    for what, meaning in _NEXT_STEPS:
        yield Text(f"  {what:<38} ").append(meaning, "dim")


def _tabulate(figures: Figures) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", min_width=_LABEL_WIDTH)
    for change in CHANGES:
        table.add_column(change, justify="right", style=style_of(change))
    table.add_column("mean delay", justify="right")
    table.add_column("when deleted", justify="right")
    for resource in RESOURCES:
        counts = [figures.events[resource, change] for change in CHANGES]
        spreads = (figures.delays(resource), figures.delays(resource, deletions=True))
        delays = [show_delay(spread.mean) if spread.count else "-" for spread in spreads]
        table.add_row(resource, *(f"{count:,}" for count in counts), *delays)
    return table


def _label(label: str, text: Text) -> Text:
    return Text(f"{label:<{_LABEL_WIDTH}} ", "bold").append_text(text)


def _describe_inboxes(figures: Figures) -> Iterator[Text]:
    for sink, inbox in figures.inboxes.items():
        text = Text(f"{sink} {inbox.events:,}", SINK_STYLES.get(sink, ""))
        if sink == HOOK and inbox.events and not figures.forged:
            text.append(", every signature genuine", "")
        if inbox.repeated:
            text.append(f", {inbox.repeated} repeated and known by their revision")
        if inbox.gaps:
            text.append(f", {inbox.gaps} gaps", "bold red")
        if owed := figures.count() - inbox.events:
            text.append(f", {owed:,} not yet", "bold yellow")
        yield text
    if figures.forged:
        yield Text(f"{figures.forged} refused because of their signature", "bold red")


def _describe(spread: Spread, meaning: str) -> Text:
    if not spread.count:
        return Text("-")
    shown = {"mean": spread.mean, "p50": spread.median, "p99": spread.p99, "max": spread.longest}
    text = Text("  ").join(Text(f"{name} ").append(show_delay(value), "bold") for name, value in shown.items())
    return text.append(f"  {meaning}", "dim")


def _show_balance(balance: Balance) -> Iterator[Text]:
    parts = [
        ("arrived", balance.arrived, "", "each shown by its own event"),
        ("overtaken", balance.overtaken, "", "changed again, or back, before it could be read"),
        ("on its way", balance.underway, "", "made since the last complete reading"),
        ("lost", balance.lost, "bold red", "stayed visible and was not shown"),
    ]
    if balance.held:
        parts.insert(3, ("held", balance.held, "yellow", "deletions held by the mass deletion breaker"))
    width = len(f"{balance.made:,}")
    yield _label("account", Text(f"{balance.made:>{width},} changes made in the sandbox, by its own log"))
    for sign, (name, number, alarm, meaning) in zip("=" + "+" * len(parts), parts, strict=False):
        yield _label(
            f"{sign:>{_LABEL_WIDTH}}",
            Text(f"{number:>{width},} {name:<10}  ", alarm if number else "").append(meaning, "dim"),
        )
    events = balance.arrived + balance.invented
    text = Text(f"{events:>{width},} events arrived, ")
    yield _label("", text.append(f"{balance.invented} of them invented", "bold red" if balance.invented else ""))


_PIPED_WIDTH: Final = 100


class _Outlet(Console):
    """A console that raises at a closed pipe as at any other error."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Screen:
    """Standard output: on a terminal lines scroll above a live header, elsewhere they are plain lines.

    ``on_lost`` is called when the pipe or terminal is closed.
    """

    def __init__(self, on_lost: Callable[[], None]) -> None:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an arrow must not end the demo
        self._console = _Outlet(highlight=False)
        self._on_lost = on_lost
        self._live: Live | None = None
        if sys.stdout.isatty() and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
        elif "COLUMNS" not in os.environ:
            self._console.width = _PIPED_WIDTH

    def __enter__(self) -> Self:
        if self._live:
            self._try(self._live.start)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._try(self._live.stop)

    @property
    def is_live(self) -> bool:
        """Whether there is a header that can be renewed."""
        return self._live is not None

    @property
    def width(self) -> int:
        return self._console.width

    def show(self, *things: RenderableType) -> None:
        """Print lines; the header stays below them."""
        for thing in things:
            # Text has its length already; what else there is, such as tables, is fitted.
            self._try(partial(self._console.print, thing, soft_wrap=isinstance(thing, Text)))

    def renew(self, header: Sequence[Text]) -> None:
        if self._live:
            for line in header:
                line.no_wrap, line.overflow = True, "crop"
            self._live.update(Group(*header))
            self._try(self._live.refresh)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError:
            # What is printed from now on, and what the interpreter flushes at its end, goes nowhere.
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), sys.stdout.fileno())
            self._on_lost()
