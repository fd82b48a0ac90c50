"""What a terminal shows of long work: one line for each thing that goes on, below the log; nothing anywhere else."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Final, TextIO, cast

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from dockbell.config import Config
    from dockbell.core.model import Feed
    from dockbell.telemetry import Fact

_TIMES_A_SECOND: Final = 5
_LOOK_EVERY: Final = 0.5


class Lines:
    """The lines of what goes on; without a terminal they take everything, and show nothing."""

    def __init__(self, *, is_shown: bool) -> None:
        self.is_shown = is_shown
        self._progress: Progress | None = None
        self._lines: dict[str, TaskID] = {}

    def tell(self, what: str, words: str, *, done: int = 0, of: int | None = None) -> None:
        """Show how far something has come; ``of`` is None where nothing is known of its end."""
        if not self.is_shown:
            return
        progress, total = self._progress or self._begin(), None if of is None else max(of, done)
        line = self._lines.get(what)
        if line is None:
            self._lines[what] = progress.add_task(what, total=total, completed=done, words=words)
        else:
            progress.update(line, total=total, completed=done, words=words)

    def end(self, what: str) -> None:
        line = self._lines.pop(what, None)
        if line is not None and self._progress is not None:
            self._progress.remove_task(line)
            if not self._lines:
                self.close()

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress = None
        self._lines.clear()

    def _begin(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        # While it is shown, what is written to sys.stderr appears above it.
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[words]}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True, highlight=False),
            transient=True,
            redirect_stdout=False,
            refresh_per_second=_TIMES_A_SECOND,
        )
        self._progress.start()
        return self._progress


class _Stderr(io.TextIOBase):
    """Standard error as it is at each write: the lines of what goes on take its place while they are shown."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def isatty(self) -> bool:
        return sys.stderr.isatty()


def log_stream() -> TextIO:
    """Return where the log goes beside lines of what goes on: each write to standard error as it is then."""
    return cast("TextIO", _Stderr())


class Reading:
    """Shows how far the passes of feeds have come; a listener of :class:`dockbell.telemetry.Telemetry`.

    ``expected`` is how many pages a pass of a feed had before; those of other feeds have no end that is known. From the
    page ``least`` on a pass is worth a line.
    """

    def __init__(self, lines: Lines, expected: Mapping[Feed, int] | None = None, *, least: int = 1) -> None:
        self._lines = lines
        self._expected = expected or {}
        self._least = least

    def hear(self, fact: Fact) -> None:
        from dockbell.core.model import RunKind
        from dockbell.telemetry import FeedFails, PageRead, RunEnded

        match fact:
            case PageRead(kind=RunKind.PASS) if fact.pages >= self._least:
                words = describe_pages(fact.pages, fact.records, fact.events)
                self._lines.tell(str(fact.feed), words, done=fact.pages, of=self._expected.get(fact.feed))
            case RunEnded(kind=RunKind.PASS) | FeedFails():
                self._lines.end(str(fact.feed))


def show_deliveries(lines: Lines) -> Callable[[Fact], None]:
    """Return a listener that shows how many events were delivered."""
    from dockbell.core.model import OutcomeKind
    from dockbell.telemetry import DeliverySettled

    delivered: Counter[str] = Counter()

    def hear(fact: Fact) -> None:
        if isinstance(fact, DeliverySettled) and fact.outcome.kind is OutcomeKind.DELIVERED:
            delivered[fact.sink] += 1
            lines.tell(f"sink {fact.sink}", f"{delivered[fact.sink]:,} events delivered")

    return hear


def describe_pages(pages: int, records: int, events: int) -> str:
    words = f"{pages} page{'' if pages == 1 else 's'}, {records:,} records"
    return f"{words}, {events:,} events" if events else words


@contextmanager
def showing(config: Config | None = None) -> Iterator[Lines]:
    """Show lines on standard error until the block is left, where that is a terminal; then they are wiped.

    The configuration is given where its sinks are at work: where one writes events to the same terminal, nothing else
    is shown.
    """
    writes_there = config is not None and any(sink.type == "stdout" for sink in config.sinks.values())
    lines = Lines(is_shown=sys.stderr.isatty() and not (writes_there and sys.stdout.isatty()))
    try:
        yield lines
    finally:
        lines.close()


async def load_expected(config: Config) -> Mapping[Feed, int]:
    """Return how many pages the last complete pass of each feed had; nothing where there is no store yet."""
    from dockbell import app
    from dockbell.errors import StoreError

    try:
        read_store = await app.open_read_store(config)
    except StoreError:
        return {}
    async with aclosing(read_store):
        return {state.feed: state.full.pages for state in await read_store.load_feeds() if state.full is not None}


async def watch_passes(config: Config, lines: Lines, feeds: Sequence[Feed]) -> None:
    """Show how far the daemon has come with the passes of feeds, of which some may leave meanwhile, until cancelled."""
    import anyio

    from dockbell import app

    expected = await load_expected(config)
    async with aclosing(await app.open_read_store(config)) as read_store:
        while True:
            reached = await read_store.load_reached()
            for feed in feeds:
                found, done, words = reached.get(feed), 0, "waiting for the daemon"
                if found is not None:
                    done, words = found.pages, describe_pages(found.pages, found.records, found.events)
                lines.tell(str(feed), words, done=done, of=expected.get(feed))
            await anyio.sleep(_LOOK_EVERY)
