"""``dockbell probe``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from dockbell.cli.completing import complete_sources
from dockbell.cli.group import PROBLEM
from dockbell.cli.options import config_option, json_option, read_config
from dockbell.cli.printing import print_json, print_lines
from dockbell.cli.progress import Lines, showing
from dockbell.cli.report import print_report

if TYPE_CHECKING:
    from datetime import timedelta

    from dockbell.admin.probing import Report
    from dockbell.config import Config

_RESOURCES: Final = ("shipments", "packages", "items", "stock", "warehouses")


@click.command()
@config_option
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_sources,
    help="Only this source; may be repeated.",
)
@click.option(
    "--resource", "resources", multiple=True, type=click.Choice(_RESOURCES), help="Only this one; may be repeated."
)
@click.option("--base-url", metavar="URL", help="Probe this API instead of a configuration's.")
@click.option(
    "--api-key-env",
    metavar="NAME",
    help="With --base-url: the environment variable with the key; default: DOCKBELL_API_KEY.",
)
@click.option(
    "--requests", type=click.IntRange(1), default=40, show_default=True, help="The most requests to send to a source."
)
@click.option(
    "--apart", default="3s", metavar="DURATION", show_default=True, help="How long until a page is read again."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the TOML to this new file.")
@click.option("-v", "--verbose", is_flag=True, help="Print every finding with what speaks for it.")
@json_option
@click.pass_context
def probe(
    ctx: click.Context,
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
    """Measure how an API really behaves, and print the TOML for it.

    Reads a few pages of each resource and asks for some of them again: what identifies and dates the records, how
    lists, cursors, updated_since and clocks behave. Nothing is stored or changed; a running daemon shares the key's
    budget. Prints what was found, in short, and the configuration that fits, a reason on every line. Exits with 1 when
    the API cannot be read, or does something that dockbell cannot cope with by itself.

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
        raise click.UsageError("--api-key-env goes with --base-url; a configuration names its own key")
    if base_url is not None and (config_path is not None or sources):
        raise click.UsageError("--base-url is probed without a configuration; leave --config and --source out")
    try:
        pause = parse_duration(apart)
    except ValueError as error:
        raise click.UsageError(f"--apart {error}") from error
    if output is not None and output.exists():
        raise ConfigError(f"{output}: exists already, and is not overwritten; name another file with -o")
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
    if any(report.fails for report in reports):
        ctx.exit(PROBLEM)


async def _probe_all(
    config: Config,
    sources: Sequence[str],
    resources: Sequence[str],
    lines: Lines,
    *,
    requests: int,
    apart: timedelta,
) -> list[Report]:
    from dockbell import app
    from dockbell.admin.probing import probe as operation
    from dockbell.config import suggest
    from dockbell.errors import ConfigError
    from dockbell.telemetry import Telemetry

    for name in sources:
        if name not in config.sources:
            raise ConfigError(f'--source: "{name}" is no source; {suggest(name, config.sources)}')

    def tell(name: str, sent: int) -> None:
        lines.tell(f"asking {name}", f"{sent} of at most {requests} requests", done=sent, of=requests)

    reports = []
    for name, settings in config.sources.items():
        feeds = [
            each for each in config.feeds() if each.source == name and (not resources or each.resource in resources)
        ]
        if feeds and (not sources or name in sources):
            async with app.open_source(config, name, Telemetry()) as line:
                reports.append(
                    await operation(
                        name, settings, feeds, line, requests=requests, apart=apart, tell=partial(tell, name)
                    )
                )
    if not reports:
        raise ConfigError("--resource: is not read from these sources; enable it, or name another")
    return reports


def _describe(report: Report) -> dict[str, object]:
    findings = [
        {
            "subject": each.subject,
            "what": each.what,
            "state": each.state,
            "found": each.found,
            "evidence": each.evidence,
        }
        for each in report.findings
    ]
    return {"source": report.source, "requests": report.sent, "findings": findings, "toml": report.toml}


def _write(path: Path, toml: str) -> None:
    from dockbell.errors import ConfigError

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(toml)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{path}: cannot be written, {reason}; name another file with -o") from error
    click.echo(f"written to {path}", err=True)
