"""How the demo looks: every line as text with styles, for any width; nothing is printed here."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from dockbell.core.model import RESOURCES, ChangeKind
from dockbell.core.publishing.narrate import narrate
from dockbell.demo.arrival import HOOK, MQTT, Arrival
from dockbell.demo.figures import CHANGES, Figures, Spread
from dockbell.demo.pairing import Sighting

WIDE: Final = 100
"""From here on there is room for words; below, a sign stands for each kind of change."""

SIGNS: Final = {
    ChangeKind.CREATED: "+",
    ChangeKind.UPDATED: "~",
    ChangeKind.DELETED: "-",
    ChangeKind.RESTORED: "*",
}
CHANGE_STYLES: Final = {
    ChangeKind.CREATED: "green",
    ChangeKind.UPDATED: "yellow",
    ChangeKind.DELETED: "red",
    ChangeKind.RESTORED: "cyan",
}
SINK_STYLES: Final = {MQTT: "magenta", HOOK: "blue"}

_KEY_WIDTH: Final = 7
_DELAY_WIDTH: Final = 5
_BAR_WIDTH: Final = 24
_NARROWEST: Final = 12
_DIGITS: Final = ((10, 2), (100, 1))
_PROMPT: Final = 2.0
"""Seconds up to which an arrival is shown as quick."""


def style_of(change: str) -> str:
    """Return the colour of a kind of change."""
    return CHANGE_STYLES.get(ChangeKind(change), "")


def show_delay(seconds: float, unit: str = " s") -> str:
    """Return a delay in three digits, where they are enough."""
    digits = next((digits for below, digits in _DIGITS if seconds < below), 0)
    return f"{seconds:.{digits}f}{unit}"


class EventLines:
    """Writes events as lines whose columns stand one below the other.

    Args:
        sinks: The columns of the sinks, in order.
    """

    def __init__(self, sinks: Sequence[str]) -> None:
        self._sinks = sinks
        self._key_width = _KEY_WIDTH

    def heading(self, width: int) -> Text:
        """Return the names of the columns."""
        sinks = f"{'reached':<{self._sinks_width}}"
        type_ = f"{'event':<{self._type_width(width)}}"
        line = f"{'time':<8} {sinks} {type_} {'record':<{self._key_width}} what changed"
        return Text(_spread(line, "delay", width), "dim")

    def event(self, sighting: Sighting, delay: float, width: int) -> Text:
        """Return the line of an event: time, sinks, type, key, what changed from what to what, delay."""
        data = sighting.event["data"]
        self._key_width = max(self._key_width, cell_len(data["key"]))
        line = Text(f"{sighting.complete_at.astimezone():%H:%M:%S} ", "dim")
        line.append_text(self._name_sinks(sighting.arrived)).append(" ")
        line.append(f"{self._name_type(data, width):<{self._type_width(width)}} ", style_of(data["change"]))
        line.append(f"{data['key']:<{self._key_width}} ", "bold")
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
        line = Text(f"{arrival.at.astimezone():%H:%M:%S} ", "dim")
        line.append_text(self._name_sinks({arrival.sink: arrival.at})).append(" ")
        kind = f"feed.{data['statement']}" if width >= WIDE else "!feed"
        line.append(f"{kind:<{self._type_width(width)}} ", "yellow")
        line.append(f"{data['resource']:<{self._key_width}} ", "bold")
        told = Text(narrate(arrival.event, width=max(_NARROWEST, width - line.cell_len)))
        told.truncate(max(_NARROWEST, width - line.cell_len), overflow="ellipsis")
        return line.append_text(told)

    @property
    def _sinks_width(self) -> int:
        return max(len("reached"), len(" ".join(self._sinks)))

    def _type_width(self, width: int) -> int:
        return len("warehouse.restored") if width >= WIDE else len("~warehouse")

    def _name_type(self, data: Mapping[str, str], width: int) -> str:
        singular = RESOURCES[data["resource"]].singular
        return f"{singular}.{data['change']}" if width >= WIDE else f"{SIGNS[ChangeKind(data['change'])]}{singular}"

    def _name_sinks(self, arrived: Mapping[str, datetime]) -> Text:
        names = Text(" ").join(
            Text(sink if sink in arrived else " " * len(sink), SINK_STYLES.get(sink, "")) for sink in self._sinks
        )
        names.pad_right(self._sinks_width - names.cell_len)
        return names


def note(text: str, at: datetime, level: int) -> Text:
    """Return the line of a problem, coloured by its level of :mod:`logging`."""
    return Text(f"{at.astimezone():%H:%M:%S} ", "dim").append(text, "red" if level >= logging.ERROR else "yellow")


def header(figures: Figures, now: float, elapsed: float, limit: int, width: int) -> list[Text]:
    """Return the live header: budget, events, delay.

    Args:
        figures: What is counted.
        now: Monotonic seconds.
        elapsed: Seconds since the start.
        limit: Requests that the API allows in a minute.
        width: Columns.
    """
    minutes, seconds = divmod(int(elapsed), 60)
    bar = _draw_bar(figures.requests.within_a_minute(now) / limit)
    title = f"── dockbell demo ── {minutes}:{seconds:02} ── Ctrl-C ends it "
    return [
        Text(title + "─" * (width - len(title)), "dim"),
        Text(" requests ", "bold").append_text(bar).append(" ").append_text(show_requests(figures, now, limit)),
        Text(" events   ", "bold").append_text(show_events(figures, words=width >= WIDE)),
        Text(" delay    ", "bold").append_text(show_delays(figures.recent_delays(now), figures.records)),
    ]


def status(figures: Figures, now: float, elapsed: float, limit: int) -> list[Text]:
    """Return the header as plain lines, for what is no terminal."""
    used = show_requests(figures, now, limit)
    delays = show_delays(figures.recent_delays(now), figures.records)
    return [
        Text(f"-- {elapsed:.0f} s: requests ").append_text(used).append("; delay ").append_text(delays),
        Text(f"-- {elapsed:.0f} s: events ").append_text(show_events(figures, words=True)),
    ]


def show_requests(figures: Figures, now: float, limit: int) -> Text:
    """Return how much of the budget is used."""
    text = Text(f"{figures.requests.within_a_minute(now)} of {limit}", "bold").append(" in the last minute")
    refused = figures.requests.refused
    return text.append(f", refused {refused}", "bold red" if refused else "dim")


def show_events(figures: Figures, *, words: bool) -> Text:
    """Return how many events there were, by change and by sink."""
    text = Text(f"{figures.count():,}", "bold").append(": ")
    for change in CHANGES:
        number = f"{figures.count(change):,}"
        text.append(f"{number} {change}  " if words else f"{SIGNS[change]}{number} ", style_of(change))
    return text.append("" if words else "  ").append_text(
        Text("  ").join(
            Text(f"{sink} {inbox.events:,}", SINK_STYLES.get(sink, "")) for sink, inbox in figures.inboxes.items()
        )
    )


def show_delays(spread: Spread, records: Mapping[str, int]) -> Text:
    """Return how old the news of the last minute was, and how many records are watched for it."""
    text = Text("mean ")
    if spread.count:
        text.append(show_delay(spread.mean), "bold").append(f"  p95 {show_delay(spread.p95)}")
    else:
        text.append("-")
    return text.append(f"  watching {sum(records.values()):,} records", "dim")


def _draw_bar(share: float) -> Text:
    filled = min(_BAR_WIDTH, round(share * _BAR_WIDTH))
    style = "green" if share < 0.8 else "yellow" if share < 1 else "red"  # noqa: PLR2004  # near the limit, at it
    return Text("━" * filled, style).append("━" * (_BAR_WIDTH - filled), "bright_black")


def _delay_style(change: str, delay: float) -> str:
    # A deletion is believed at the second look: it is never quick, and that is no fault.
    return "dim" if change == ChangeKind.DELETED else "green" if delay < _PROMPT else "yellow"


def _spread(left: str, right: str, width: int) -> str:
    return f"{left}{right:>{max(len(right) + 1, width - len(left))}}"
