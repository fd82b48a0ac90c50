"""``dockbell check`` and ``probe``: what would fail, and how an API behaves; nothing is stored or changed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from dockbell.cli.completion import RESOURCES, complete_sources
from dockbell.cli.group import NotFound, exit_if
from dockbell.cli.options import config_option, json_option, read_config
from dockbell.cli.printing import print_json, print_lines, print_table
from dockbell.cli.progress import Lines, showing
from dockbell.core.counting import count_of

if TYPE_CHECKING:
    from datetime import timedelta

    from dockbell.admin.probing import Finding, Report
    from dockbell.config import Config

_COLUMNS: Final = ("subject", "what", "state", "found", "evidence")
_row: Final = attrgetter(*_COLUMNS)
_OF_ALL: Final = ("budget", "clock", "latency")
_IN_SHORT: Final = ("records", "key", "updated_at", "updated_since")


@click.command()
@config_option
@json_option
@click.option("--show/--no-show", default=True, help="First print the configuration in effect; default: --show.")
def check(config_path: str | None, *, as_json: bool, show: bool) -> None:
    """Print the configuration and report what would fail.

    Looks at the store, tries the address of [web] unless a process holds the store, requests one page of each feed, and
    connects to each sink without delivering. Changes nothing, does not disturb a running daemon, and prints no secrets.

    Exits with 1 when something would fail. Two findings are only warnings: a file that others can read or write but
    should not, and a pointer in drop, ignore, unordered, fields or redact that matches nothing in the records.

    \b
    Examples:
      dockbell check
      dockbell check --no-show --config /etc/dockbell.toml
    """
    import anyio

    from dockbell import app
    from dockbell.admin import check as operation
    from dockbell.config import find, redacted, to_toml
    from dockbell.telemetry import Telemetry

    config = read_config(config_path)
    if show and not as_json:
        click.echo(to_toml(redacted(config)))
    findings = anyio.run(
        partial(
            operation.check,
            config,
            probe_store=partial(app.probe_store, config),
            open_source=partial(app.open_source, config),
            open_sink=lambda name: app.open_sink(config, name, Telemetry()),
            probe_web=None if config.web is None else partial(app.probe_web, config, config.web),
            path=find(config_path, os.environ),
        )
    )
    if as_json:
        described = [
            {"what": each.subject, "fails": each.fails, "warns": each.warns, "detail": each.detail} for each in findings
        ]
        print_json({"config": redacted(config), "findings": described} if show else {"findings": described})
    else:
        print_table(("what", "state", "detail"), [(each.subject, each.state, each.detail) for each in findings])
    exit_if(any(each.fails for each in findings))


@click.command()
@config_option
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_sources,
    help="Probe only this source; may be repeated.",
)
@click.option(
    "--resource",
    "resources",
    multiple=True,
    type=click.Choice(RESOURCES),
    help="Probe only this resource; may be repeated.",
)
@click.option("--base-url", metavar="URL", help="Probe this API instead of a configured one.")
@click.option(
    "--api-key-env",
    metavar="NAME",
    help="With --base-url: environment variable that holds the key; default: DOCKBELL_API_KEY.",
)
@click.option(
    "--requests", type=click.IntRange(1), default=40, show_default=True, help="Maximum number of requests per source."
)
@click.option(
    "--apart", default="3s", metavar="DURATION", show_default=True, help="Time to wait before reading a page again."
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write the TOML to this file, which must not exist."
)
@click.option("-v", "--verbose", is_flag=True, help="Print every finding with its evidence.")
@json_option
def probe(
    config_path: str | None,
    *,
    sources: tuple[str, ...],
    resources: tuple[str, ...],
    base_url: str | None,
    api_key_env: str | None,
    requests: int,
    apart: str,
    output: Path | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Measure how an API behaves and print the TOML for it.

    Reads a few pages of each resource, and some of them again. The command finds out which fields identify and date the
    records, and how lists, cursors, updated_since and clocks behave. It stores and changes nothing. Its requests and
    those of a running daemon share the key's budget. It prints a summary of the findings and the matching
    configuration, with a reason on every line. Exits with 1 when the API cannot be read, or when the API does something
    that dockbell cannot handle by itself.

    \b
    Examples:
      dockbell probe --base-url https://api.example.com -o dockbell.toml
      dockbell probe --resource stock --requests 10 --verbose
      dockbell probe --source main --json
    """
    import anyio

    from dockbell import app
    from dockbell.admin.probing import KEY_VARIABLE
    from dockbell.config import parse_duration
    from dockbell.errors import ConfigError

    if api_key_env is not None and base_url is None:
        raise click.UsageError("--api-key-env requires --base-url; a configuration has its own key")
    if base_url is not None and (config_path is not None or sources):
        raise click.UsageError("--base-url works without a configuration; remove --config and --source")
    try:
        pause = parse_duration(apart)
    except ValueError as error:
        raise click.UsageError(f"--apart {error}") from error
    if output is not None and output.exists():
        raise ConfigError(f"{output}: already exists; choose another file with -o")
    key = {"env": api_key_env or KEY_VARIABLE}
    config = read_config(config_path) if base_url is None else app.configure(base_url, key)
    with showing() as lines:
        reports = anyio.run(partial(_probe_all, config, sources, resources, lines, requests=requests, apart=pause))
    if as_json:
        print_json({"sources": [_describe(report) for report in reports]})
    else:
        for report in reports:
            print_report(report, verbose=verbose)
    toml = "\n".join(report.toml for report in reports if report.toml)
    if output is not None and toml:
        _write(output, toml)
    elif toml and not as_json:
        print_lines(f"\n{toml.rstrip()}")
    exit_if(any(report.fails for report in reports))


async def _probe_all(
    config: Config, sources: Sequence[str], resources: Sequence[str], lines: Lines, *, requests: int, apart: timedelta
) -> list[Report]:
    from dockbell.config import suggest
    from dockbell.errors import ConfigError

    for name in sources:
        if name not in config.sources:
            raise NotFound(f'--source: unknown source "{name}"; {suggest(name, config.sources)}')
    meant = {each.source for each in config.feeds() if not resources or each.resource in resources}
    chosen = [name for name in config.sources if name in meant and (not sources or name in sources)]
    if not chosen:
        raise ConfigError("--resource: not read from these sources; enable it, or choose another")
    return [
        await measure(config, name, lines, f"probing {name}", resources, requests=requests, apart=apart)
        for name in chosen
    ]


async def measure(
    config: Config,
    name: str,
    lines: Lines,
    what: str,
    resources: Sequence[str] = (),
    *,
    requests: int,
    apart: timedelta,
) -> Report:
    """Measure one source by these resources, else by all of them; show under ``what`` how many requests were sent."""
    from dockbell import app
    from dockbell.admin import probing
    from dockbell.telemetry import Telemetry

    def tell(sent: int) -> None:
        lines.tell(what, f"{sent} of at most {requests} requests", done=sent, of=requests)

    feeds = [each for each in config.feeds() if each.source == name and (not resources or each.resource in resources)]
    async with app.open_source(config, name, Telemetry()) as line:
        return await probing.probe(name, config.sources[name], feeds, line, requests=requests, apart=apart, tell=tell)


def _describe(report: Report) -> dict[str, object]:
    findings = [dict(zip(_COLUMNS, _row(each), strict=True)) for each in report.findings]
    return {"source": report.source, "requests": report.sent, "findings": findings, "toml": report.toml}


def _write(path: Path, toml: str) -> None:
    from dockbell.errors import ConfigError

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(toml)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{path}: cannot be written, {reason}; choose another file with -o") from error
    click.echo(f"written to {path}", err=True)


def print_report(report: Report, *, verbose: bool = False) -> None:
    """Print what was found of a source: a row for each feed, and what is worth a look; or every finding."""
    if verbose:
        _print_findings(report.findings)
        return
    found: dict[str, dict[str, str]] = {}
    for each in report.findings:
        found.setdefault(each.subject, {})[each.what] = each.found
    account = found.pop(report.source)
    words = [
        f"{count_of(report.sent, 'request')} sent",
        *(f"{name}: {account[name]}" for name in _OF_ALL if name in account),
    ]
    print_lines(f"{report.source}: {'; '.join(words)}\n")
    rows = [(feed, *(told.get(name) for name in _IN_SHORT)) for feed, told in found.items() if "key" in told]
    if rows:
        print_table(("feed", *_IN_SHORT), rows)
    notes = [each for each in report.findings if each.state in ("note", "fails")]
    if notes:
        click.echo()
        _print_findings(notes)


def _print_findings(findings: Sequence[Finding]) -> None:
    print_table(("where", *_COLUMNS[1:]), [_row(each) for each in findings])
