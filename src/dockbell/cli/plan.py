"""``dockbell plan``: whether the budget suffices, and with what delay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from dockbell.cli.completion import complete_feed_values, complete_settings
from dockbell.cli.group import exit_if
from dockbell.cli.options import ask_store, config_option, json_option, read_followed, read_option
from dockbell.cli.printing import print_json, print_lines, print_reasons, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dockbell.admin.plan_options import Setup
    from dockbell.admin.planning import FeedFacts, FeedPlan, Origin, SourcePlan
    from dockbell.config import Config
    from dockbell.core.delays import Delay
    from dockbell.core.model import Feed
    from dockbell.core.planning.forecast import FeedForecast, Forecast

_HEADINGS: Final = ("feed", "cost", "changes/min", "every", "planned", "requests/min", "budget", "mean", "p99")
_MEASURED: Final = ("measured mean", "measured p99")
_ASSUMED: Final = "* assumed, not learned yet; set better values with --records and --changes\n"


@click.command()
@config_option
@click.option(
    "--records",
    multiple=True,
    metavar="FEED=COUNT",
    shell_complete=complete_feed_values,
    help="Plan for this many records; may be repeated.",
)
@click.option(
    "--changes",
    multiple=True,
    metavar="FEED=COUNT/UNIT",
    shell_complete=complete_feed_values,
    help="Plan for this many changes per second (/s), minute (/min) or hour (/h); may be repeated.",
)
@click.option(
    "--what-if",
    "what_if",
    multiple=True,
    metavar="SETTING=VALUE",
    shell_complete=complete_settings,
    help="Also plan with this setting, and show both plans; may be repeated.",
)
@json_option
def plan(
    config_path: str | None,
    *,
    records: tuple[str, ...],
    changes: tuple[str, ...],
    what_if: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show how often dockbell can read each feed, and the delays.

    Uses what the daemon has learned and stored, whether the daemon runs or not. The command sends no request to the
    API. If the daemon has not learned the records and changes of a feed yet, the plan uses assumed values and marks
    them with *. Set better values with --records and --changes.

    \b
    cost          requests that one reading takes
    changes/min   how often records change, as learned
    every         the configured interval; auto with its at_most
    planned       time from the start of a reading to the start of the next
    budget        the feed's part of the requests that the source may make
    mean          mean time from a change to the reading that shows it; delivery takes extra time
    p99           99 of 100 changes are read within this time
    measured      time in the last hour from when a change became visible in the API until a sink had it; shown only if
                  there were changes; ≈ marks an estimate for records without timestamps
    floor         the lowest delay that any intervals could reach with the same number of requests

    SETTING is FEED.every, FEED.at_most or FEED.weight, or requests_per_minute or share of the source. A feed with a
    crontab line runs in the background: the plan counts its requests, but does not predict its delay.

    Exits with 1, and explains why and what to do, when the budget is too small for the configuration. With --what-if,
    the exit code is for the changed plan.

    \b
    Examples:
      dockbell plan
      dockbell plan --what-if stock.every=30s
      dockbell plan --what-if requests_per_minute=600 --what-if share=0.5
      dockbell plan --records stock=50000 --changes stock=2/s --changes shipments=90/min
      dockbell plan --json | jq '.sources[].delay'
    """
    from dockbell import app
    from dockbell.admin.plan_as_json import describe_plan
    from dockbell.admin.plan_options import Setup, read_changes, read_records
    from dockbell.admin.planning import give_facts, make_plan
    from dockbell.app.next_time import next_time
    from dockbell.core.model import Feed

    config, at = read_followed(config_path), app.now()
    setup = Setup.of(config)
    feeds = [Feed(each.source, each.resource) for each in setup.feeds]
    given_records = read_option("--records", lambda: read_records(records, feeds))
    given_changes = read_option("--changes", lambda: read_changes(changes, feeds))
    other = read_option("--what-if", lambda: setup.change(what_if)) if what_if else None
    facts = give_facts(_find_facts(config, setup), given_records, given_changes, at)
    plans = make_plan(setup, facts, at=at, next_time=next_time)
    others = None if other is None else make_plan(other, facts, at=at, next_time=next_time)
    reasons = [f"{each.source}: {each.reason}" for each in others or plans if each.reason]
    if as_json:
        print_json(describe_plan(plans, others, reasons))
    else:
        _print(plans, others)
        print_reasons(reasons)
    exit_if(reasons)


def _find_facts(config: Config, setup: Setup) -> Mapping[Feed, FeedFacts]:
    from dockbell import app
    from dockbell.admin.planning import assume_facts, load_facts
    from dockbell.errors import StoreMissing

    try:
        return ask_store(config, partial(load_facts, feeds=setup.feeds, at=app.now(), sinks=config.sinks))
    except StoreMissing:
        return assume_facts(setup.feeds)


def _print(plans: Sequence[SourcePlan], others: Sequence[SourcePlan] | None) -> None:
    for before, after in zip(plans, others or plans, strict=True):
        click.echo(f"{'source' if len(before.sources) == 1 else 'sources'} {before.source}\n")
        pairs = zip(before.feeds, after.feeds, strict=True)
        rows = [
            [_both(*cells) for cells in zip(_row(old, before), _row(new, after), strict=True)] for old, new in pairs
        ]
        is_measured = after.measured is not None
        headings = (*_HEADINGS, *_MEASURED) if is_measured else _HEADINGS
        print_table(headings, [row[: len(headings)] for row in rows])
        click.echo()
        if any("*" in cell for row in rows for cell in row[1:3]):
            click.echo(_ASSUMED)
        totals = zip(_list_totals(before), _list_totals(after), strict=True)
        print_lines("\n".join(f"{name:<11} {_both(old, new)}" for (name, old), (_, new) in totals))
        click.echo()
        lines = list(after.explain()) if after.reason else [after.advice]
        print_lines("\n".join([*lines, ""]))


def _both(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"


def _row(each: FeedPlan, plan: SourcePlan) -> Sequence[str]:
    from dockbell.core.planning.forecast import in_words, per_minute

    return (
        each.feed.resource if len(plan.sources) == 1 else str(each.feed),
        f"{each.demand.cost:.3g}{_mark(each.cost_from)}",
        f"{per_minute(each.demand.rate)}{_mark(each.facts.changes_from)}",
        each.every,
        "-" if each.planned is None else in_words(each.planned.interval),
        per_minute(each.requests),
        f"{each.requests / plan.supply.total:.1%}",
        "-" if each.delay is None else in_words(each.delay.mean),
        "-" if each.delay is None else in_words(each.delay.p99),
        *_list_measured(each.facts),
    )


def _list_measured(facts: FeedFacts) -> tuple[str, str]:
    from dockbell.admin.delays import write_delay

    delay, write = facts.delays.whole, partial(write_delay, is_estimated=not facts.is_dated)
    return ("-", "-") if delay is None else (write(delay.mean), write(delay.p99))


def _mark(origin: Origin) -> str:
    from dockbell.admin.planning import Origin

    return "*" if origin is Origin.ASSUMED else ""


def _list_totals(plan: SourcePlan) -> Iterator[tuple[str, str]]:
    """Yield the name and the words of each total; those of the requests are of a minute."""
    from dockbell.core.planning.forecast import per_minute

    supply = plan.supply
    yield "budget", f"{per_minute(supply.total)} requests a minute ({plan.settings.share:g} of {supply.limit})"
    yield "feeds", per_minute(plan.division.used)
    yield "background", per_minute(supply.taken) + _list_background(plan)
    yield "reserve", per_minute(supply.reserve)
    yield "spare", per_minute(plan.spare)
    yield "delay", _say_delay(plan.delay)
    if plan.measured is not None:
        yield "measured", _say_delay(plan.measured)
    yield "floor", _say_delay(plan.floor)


def _list_background(plan: SourcePlan) -> str:
    from dockbell.core.planning.forecast import per_minute

    kinds: dict[str, float] = {}
    for each in plan.supply.background:
        kinds[each.kind] = kinds.get(each.kind, 0.0) + each.requests
    told = ", ".join(f"{kind} {per_minute(requests)}" for kind, requests in kinds.items())
    return f" ({told})" if told else ""


def _say_delay(delay: FeedForecast | Forecast | Delay) -> str:
    from dockbell.core.planning.forecast import in_words

    return f"mean {in_words(delay.mean)}, p99 {in_words(delay.p99)}"
