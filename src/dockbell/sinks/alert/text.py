"""What an alert says to people: a title, what happened, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from dockbell.core.document import decode
from dockbell.core.model import JSON, Event, NoticeKind
from dockbell.core.moment import parse_moment
from dockbell.core.printable import printable
from dockbell.core.publishing.narrate import NOTICE_SUBJECTS, narrate

_WIDTH: Final = 1000
_TITLES: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    (NoticeKind.UNREACHABLE, "source"): (
        "source {name} does not answer",
        "dockbell sees no changes until it answers. Nothing is lost: dockbell continues where it stopped.",
    ),
    (NoticeKind.UNREACHABLE, "sink"): (
        "sink {name} cannot deliver",
        "Its events wait; dockbell delivers them when the receiver accepts them.",
    ),
    (NoticeKind.REFUSED, "feed"): ("{name} cannot be read", '"dockbell status" shows whether it is still so.'),
    (NoticeKind.REFUSED, "source"): (
        "feeds of source {name} cannot be read",
        '"dockbell status" shows which are still not read.',
    ),
    (NoticeKind.HELD, "feed"): (
        "changes of {name} wait for a decision",
        'Run "dockbell deletes" and "dockbell drift".',
    ),
    (NoticeKind.DEAD_LETTER, "sink"): ("sink {name} has a dead letter", 'Run "dockbell dead {name}".'),
    (NoticeKind.DIED, "process"): (
        "process {name} did not shut down cleanly",
        "dockbell is running again and continues where it was. Its log may have details.",
    ),
    (NoticeKind.OVERRUN, "sink"): (
        "sink {name} has lost events",
        "It accepted nothing for too long, and starts again with the stored records.",
    ),
    (NoticeKind.PAUSED, "sink"): ("sink {name} is paused", '"dockbell resume {name}" resumes it.'),
    (NoticeKind.GAP, "source"): (
        "feeds of source {name} were not read for a while",
        "dockbell now reads what changed meanwhile; of several changes of one record, it sees the last.",
    ),
    (NoticeKind.DISK, "store"): ("the disk of the store is nearly full", ""),
    (NoticeKind.CROWDED, "server"): ("the web server has too many connections", ""),
}
"""The title of each kind of notice, by what it is about, and what follows from it or what to do."""


_SUBJECTS: Final[Mapping[str, str]] = {
    "feed": "{name}",
    "sink": "Sink {name}",
    "source": "Source {name}",
    "process": "Process {name}",
    "store": "The {name}",
    "server": "The {name} server",
}
"""What an end is told of, as the subject of its sentence."""


class Text(NamedTuple):
    title: str
    body: str
    kind: str  # ``failure``, ``warning``, ``success`` or ``info``, as Apprise calls them


def write_text(event: Event, *, repeated: int = 0) -> Text:
    """Return what an event says to people; the last line names it.

    Args:
        event: A notice, or any other.
        repeated: How many notices of the same alert were not sent since the last that was.
    """
    document = decode(event.body)
    data = document["data"]
    name = printable(document["source"].split("/")[2])
    dockbell = "dockbell" if name == "dockbell" else f"dockbell {name}"
    title, lines, kind = _describe_notice(data) if document["type"].startswith("dockbell.notice.") else _tell(event)
    if repeated:
        lines.append(f"{repeated} more of this kind since the last message.")
    at = parse_moment(document["time"])
    assert at is not None
    lines.append("")
    lines.append(f"{at.astimezone():%Y-%m-%d %H:%M:%S %Z}, {dockbell}")
    revision = f" r{event.revision}" if event.is_of_record else ""
    lines.append(f"{document['partitionkey']} #{event.sequence}{revision} {event.id}")
    return Text(f"{dockbell}: {title}", "\n".join(lines), kind)


def _describe_notice(data: JSON) -> tuple[str, list[str], str]:
    subject = next(each for each in NOTICE_SUBJECTS if each in data)
    name, reason = printable(str(data[subject])), printable(str(data["reason"]))
    is_over = data["statement"] == NoticeKind.RECOVERED
    title, advice = _TITLES.get((data.get("resolves", data["statement"]), subject), (f"{subject} {{name}}", ""))
    title, times = title.format(name=name), f" ({data['count']} times)" if data["count"] > 1 else ""
    if is_over:
        return f"resolved: {title}", [f"{_SUBJECTS.get(subject, '{name}').format(name=name)} {reason}."], "success"
    if data["statement"] == NoticeKind.PAUSED:
        reason = f"Paused {reason}." if reason == "by an operator" else f"Paused: {reason}"
    elif data["statement"] == NoticeKind.DEAD_LETTER and data["count"] > 1:
        title, times = f"sink {name} has {data['count']} new dead letters", ""
        reason = f"The last: {reason}"
    is_grave = data["statement"] in (NoticeKind.UNREACHABLE, NoticeKind.REFUSED, NoticeKind.OVERRUN, NoticeKind.DISK)
    lines = [f"{reason}{times}", *([advice.format(name=name)] if advice else [])]
    return title, lines, "failure" if is_grave else "warning"


def _tell(event: Event) -> tuple[str, list[str], str]:
    """Return the text of a record's event, of a statement about a feed, or of a test."""
    if event.change == "test":
        return f"a test of sink {printable(event.key)}", ["Sent by an operator: no record changed."], "info"
    subject = printable(f"{event.feed}/{event.key}" if event.key else str(event.feed))
    return (
        f"{event.type.removeprefix('dockbell.')} {subject}",
        [narrate(decode(event.body), width=_WIDTH)],
        "info",
    )
