"""The last page of the demo: what arrived, how quickly, at what cost, and whether the account balances."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from dockbell.core.model import RESOURCES
from dockbell.demo.account import Balance
from dockbell.demo.figures import CHANGES, Figures, Spread
from dockbell.demo.lines import SINK_STYLES, show_delay, style_of

_LABEL_WIDTH = 10


def is_clean(figures: Figures, balance: Balance) -> bool:
    """Return whether everything was as promised: nothing lost, invented, forged, missing, nor asked too often."""
    gaps = sum(inbox.gaps for inbox in figures.inboxes.values())
    return not (balance.lost or balance.invented or figures.forged or figures.requests.refused or gaps)


def write_summary(
    figures: Figures, balance: Balance, elapsed: float, limit: int, kept: Path | None
) -> Iterator[RenderableType]:
    """Yield the parts of the summary.

    Args:
        figures: What was counted.
        balance: What became of the sandbox's changes.
        elapsed: Seconds that the demo took.
        limit: Requests that the API allows in a minute.
        kept: The folder that stays, if one does.
    """
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
    yield from _show_next(kept)


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
        if sink == "hook" and not figures.forged:
            text.append(", every signature genuine", "")
        if inbox.repeated:
            text.append(f", {inbox.repeated} repeated and known by their revision")
        if inbox.gaps:
            text.append(f", {inbox.gaps} gaps", "bold red")
        if owed := figures.count() - inbox.events:
            text.append(f", {owed:,} not yet", "bold yellow")
        yield text
    if figures.forged:
        yield Text(f"{figures.forged} refused for their signature", "bold red")


def _describe(spread: Spread, meaning: str) -> Text:
    if not spread.count:
        return Text("-")
    shown = {"mean": spread.mean, "p50": spread.median, "p95": spread.p95, "max": spread.longest}
    text = Text("  ").join(Text(f"{name} ").append(show_delay(value), "bold") for name, value in shown.items())
    return text.append(f"  {meaning}", "dim")


def _show_balance(balance: Balance) -> Iterator[Text]:
    parts = [
        ("arrived", balance.arrived, "", "each shown by an event of its own"),
        ("overtaken", balance.overtaken, "", "changed again, or back, before it could be read"),
        ("on its way", balance.underway, "", "made since the last complete reading"),
        ("lost", balance.lost, "bold red", "stayed visible and was not shown"),
    ]
    if balance.held:
        parts.insert(3, ("held", balance.held, "yellow", "deletions that the breaker against mass deletion holds back"))
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


def _show_next(kept: Path | None) -> Iterator[Text]:
    if kept is not None:
        yield Text("look at what is kept", "bold")
        yield Text(f"  dockbell status --config {kept / 'dockbell.toml'}")
        yield Text(f"  dockbell events --config {kept / 'dockbell.toml'}")
    steps = (
        ("dockbell init", "asks for your API, broker or webhook"),
        ("dockbell check && dockbell run", "what would fail, and then the daemon"),
        ("docs/guarantees.md", "what is promised, and when"),
    )
    yield Text("next", "bold")
    for what, meaning in steps:
        yield Text(f"  {what:<38} ").append(meaning, "dim")
