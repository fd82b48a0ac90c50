"""``dockbell init``."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from dockbell.cli.group import exit_if
from dockbell.cli.options import read_option
from dockbell.cli.printing import print_lines, print_reasons
from dockbell.cli.probe import measure, print_report
from dockbell.cli.progress import showing

if TYPE_CHECKING:
    from collections.abc import Callable

    from dockbell.admin.initialising import Files, FirstSink
    from dockbell.admin.probing import Report
    from dockbell.config import Config

_KEY_VARIABLE: Final = "DOCKBELL_API_KEY"
_KEY_FILE: Final = "dockbell.key"
_TOKEN_FILE: Final = "dockbell.token"
_LISTEN: Final = "127.0.0.1:8470"
_ADDRESS: Final = "URL of the API, without /v1"
_TOKEN_BYTES: Final = 32
_REQUESTS: Final = 40
_APART: Final = timedelta(seconds=1)
_PATIENCE: Final = 15
_EXAMPLES: Final = {
    "mqtt": "mqtt://broker.example.com:1883, or mqtts:// with TLS",
    "webhook": "https://erp.example.com/hooks/dockbell",
}
_VERIFY: Final = """\
{secret} contains the secret that signs the events; the receiver verifies each event with it:
  from standardwebhooks import Webhook
  event = Webhook(open("{secret}").read().strip()).verify(body, headers)\
"""


@click.command()
@click.argument("path", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--base-url", metavar="URL", help="URL of the API, without /v1 and what follows it.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the API key.")
@click.option("--api-key-file", metavar="FILE", type=click.Path(path_type=Path), help="File that holds the API key.")
@click.option("--name", metavar="NAME", help="Name of this dockbell in the source of its events; default: dockbell.")
@click.option("--sink", type=click.Choice(["none", "mqtt", "webhook", "stdout"]), help="Where to send events first.")
@click.option("--sink-url", metavar="URL", help="URL of the broker or the receiver.")
@click.option("--listen", metavar="ADDRESS", help=f"Address of the status page; default: {_LISTEN}.")
@click.option("--no-page", is_flag=True, help="Do not configure a status page.")
@click.option("--no-probe", is_flag=True, help="Assume the defaults; do not contact the API or the receiver.")
@click.option("--force", is_flag=True, help="Replace an existing configuration.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing; use the defaults for options that you omit.")
def init(
    path: Path | None,
    *,
    base_url: str | None,
    api_key_env: str | None,
    api_key_file: Path | None,
    name: str | None,
    sink: str | None,
    sink_url: str | None,
    listen: str | None,
    no_page: bool,
    no_probe: bool,
    force: bool,
    yes: bool,
) -> None:
    """Write a first working configuration to PATH.

    On a terminal, the command asks for everything that you do not set with an option: the API's address, its key, where
    to send events, and whether to set up a status page. It sends the API at most 40 requests to learn how the API
    behaves, tries the broker, and writes a commented TOML file with the settings that are worth changing. It stores
    secrets in files next to the TOML file that only you can read: dockbell.key with the key that you typed,
    dockbell.token for the page, and receiver.secret for a webhook. PATH defaults to $DOCKBELL_CONFIG, else
    ./dockbell.toml. The command never replaces an existing file without --force.

    Exits with 1 and writes nothing when the API is not reachable or refuses the key, unless you choose to write the
    file anyway. Exits with 1 but writes the file when the broker is not reachable.

    \b
    Examples:
      dockbell init
      dockbell init --base-url https://api.example.com --api-key-env DOCKBELL_API_KEY --yes
      dockbell init /etc/dockbell.toml --base-url https://api.example.com --api-key-file /run/secrets/key --yes
      dockbell init --base-url http://127.0.0.1:8480 --sink mqtt --sink-url mqtt://127.0.0.1 --no-page
    """
    import secrets

    from dockbell.admin.initialising import Files, Plan, compose
    from dockbell.app import load_config
    from dockbell.core.publishing.signature import mint

    if api_key_env is not None and api_key_file is not None:
        raise click.UsageError("--api-key-env and --api-key-file: pass only one of them")
    if no_page and listen is not None:
        raise click.UsageError("--listen and --no-page: pass only one of them")
    asking = _Asking(is_asking=sys.stdin.isatty() and sys.stdout.isatty() and not yes)
    files = Files(path or Path(os.environ.get("DOCKBELL_CONFIG") or "dockbell.toml"), replace=force)
    files.refuse_existing()
    if asking.is_asking:
        click.echo(
            f"dockbell init asks a few questions and writes {files.path}. Ctrl-C stops it without writing anything.\n"
        )
    url = asking.ask("--base-url", base_url, _ADDRESS, check=_check_base_url)
    key, usable = _choose_key(asking, files, api_key_env, api_key_file)
    report, unmeasured = (None, "--no-probe") if no_probe else _look(asking, url, usable)
    while report is None and not unmeasured:
        url = asking.ask("--base-url", None, _ADDRESS, default=url, check=_check_base_url)
        key, usable = _choose_key(asking, files, None, None)
        report, unmeasured = _look(asking, url, usable)
    name = asking.ask("--name", name, "Name of this dockbell, in the source of its events", default="dockbell")
    first = _choose_sink(asking, sink, sink_url)
    is_reached = first is None or no_probe or _try_sink(first, url, usable)
    while not is_reached and asking.choose("Try again, or keep this sink?", ("again", "keep")) == "again":
        first = _choose_sink(asking, None, None)
        is_reached = first is None or _try_sink(first, url, usable)
    address = "" if no_page else _choose_page(asking, listen)
    if first is not None and first.secret:
        files.secrets[first.secret] = mint(secrets.token_bytes(_TOKEN_BYTES))
    if address:
        files.secrets[_TOKEN_FILE] = secrets.token_urlsafe(_TOKEN_BYTES)
    plan = Plan(name, url, key, report, unmeasured, sink=first, listen=address, token=_TOKEN_FILE if address else "")
    written = files.write(compose(plan), load_config)
    click.echo(f"\nwritten: {', '.join(map(str, written))}")
    _tell_what_is_next(files, first, address, key)
    exit_if(not is_reached)


# What is asked -------------------------------------------------------------------------------------------------------


class _Asking:
    """Asks on a terminal what no option says; elsewhere it takes the default."""

    def __init__(self, *, is_asking: bool) -> None:
        self.is_asking = is_asking

    def ask(
        self,
        option: str,
        given: str | None,
        question: str,
        *,
        default: str | None = None,
        choices: tuple[str, ...] = (),
        check: Callable[[str], str] = str,
    ) -> str:
        if given is None and self.is_asking:
            kind = click.Choice(choices) if choices else None
            read = None if choices else _as_answer(check)
            answer: str = click.prompt(question, default=default, type=kind, value_proc=read)
            return answer
        if given is None and default is None:
            raise click.UsageError(f"{option} is missing")
        return read_option(option, lambda: check(given or default or ""))

    def choose(self, question: str, choices: tuple[str, ...]) -> str:
        """Return one of some words, the first by default; the last where no terminal can be asked."""
        answer: str = (
            click.prompt(question, default=choices[0], type=click.Choice(choices)) if self.is_asking else choices[-1]
        )
        return answer

    def confirm(self, question: str, *, default: bool) -> bool:
        return click.confirm(question, default=default) if self.is_asking else default


def _as_answer(check: Callable[[str], str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        try:
            return check(text)
        except ValueError as error:
            raise click.UsageError(str(error)) from error  # asked again

    return read


def _try_out(base_url: str, sinks: dict[str, object] | None = None) -> Config:
    """Return a configuration with what was answered.

    Raises:
        ValueError: What is wrong, without where it would stand in a file that is not there yet.
    """
    from dockbell.app import configure
    from dockbell.errors import ConfigError

    try:
        return configure(base_url, "unknown", sinks=sinks)
    except ConfigError as error:
        raise ValueError(str(error).rpartition("] ")[2].partition(": ")[2]) from error


def _check_base_url(text: str) -> str:
    return _try_out(text).sources["main"].base_url


def _choose_key(
    asking: _Asking, files: Files, variable: str | None, file: Path | None
) -> tuple[dict[str, str], object]:
    """Return where the configuration finds the key, and where we do as long as it is not there."""
    if variable is not None:
        return {"env": variable}, {"env": variable}
    if file is not None:
        absolute, folder = file.absolute(), files.path.absolute().parent
        shown = absolute.relative_to(folder) if absolute.is_relative_to(folder) else absolute
        return {"file": str(shown)}, {"file": str(absolute)}
    is_set = bool(os.environ.get(_KEY_VARIABLE))
    if is_set and asking.confirm(f"Use the API key in the environment variable {_KEY_VARIABLE}?", default=True):
        return {"env": _KEY_VARIABLE}, {"env": _KEY_VARIABLE}
    if not asking.is_asking:
        raise click.UsageError(f"--api-key-env or --api-key-file is missing; pass one, or set {_KEY_VARIABLE}")
    files.refuse_existing(_KEY_FILE)
    typed: str = click.prompt(f"API key (hidden; stored in {files.path.with_name(_KEY_FILE)})", hide_input=True)
    files.secrets[_KEY_FILE] = typed.strip()
    files.rewrite.add(_KEY_FILE)
    return {"file": _KEY_FILE}, typed.strip()


def _choose_sink(asking: _Asking, kind: str | None, url: str | None) -> FirstSink | None:
    from dockbell.admin.initialising import KINDS, FirstSink

    if kind is None and url is not None:
        raise click.UsageError("--sink-url requires --sink")
    kind = asking.ask("--sink", kind, "Where to send events first", default="none", choices=tuple(KINDS))
    if kind == "none":
        return None
    if kind == "stdout":
        return FirstSink(kind)

    def check(text: str) -> str:
        _try_out("http://127.0.0.1", {"first": _as_table(FirstSink(kind, text))})
        return text

    return FirstSink(kind, asking.ask("--sink-url", url, f"Its URL, such as {_EXAMPLES[kind]}", check=check))


def _as_table(first: FirstSink) -> dict[str, object]:
    """Return ``[sinks.NAME]`` as it can be used before its secret is there."""
    from dockbell.core.publishing.signature import mint

    return first.table() | ({"secret": mint(bytes(_TOKEN_BYTES))} if first.secret else {})


def _choose_page(asking: _Asking, listen: str | None) -> str:
    if listen is None and not asking.confirm(f"Serve a status page on http://{_LISTEN}?", default=True):
        return ""
    from dockbell.config import WebSettings
    from dockbell.errors import ConfigError

    try:
        return WebSettings.model_validate({"listen": listen or _LISTEN, "token": "unknown"}).listen
    except (ValueError, ConfigError) as error:
        raise click.UsageError(f"--listen: must be an address and a port such as {_LISTEN}, got {listen}") from error


# What is looked at ---------------------------------------------------------------------------------------------------


def _look(asking: _Asking, url: str, key: object) -> tuple[Report | None, str]:
    """Measure how the API behaves; return the report, or why there is none and the operator wants to go on without.

    Neither where the operator wants to try again.
    """
    from functools import partial

    import anyio

    from dockbell.admin.initialising import SOURCE
    from dockbell.app import configure
    from dockbell.errors import ConfigError, DockbellError

    config = configure(url, key)
    try:
        with showing() as lines:
            report = anyio.run(
                partial(measure, config, SOURCE, lines, "probing the API", requests=_REQUESTS, apart=_APART)
            )
    except ConfigError:
        raise
    except DockbellError as error:
        return None, _go_on_without(asking, str(error))
    if report.advice is None:
        reason = next(each.evidence for each in report.findings if each.state == "fails")
        return None, _go_on_without(asking, reason)
    click.echo()
    print_report(report)
    click.echo()
    return report, ""


def _go_on_without(asking: _Asking, reason: str) -> str:
    """Return the reason why nothing was measured, where the operator wants the configuration all the same.

    It is empty where the operator wants to try again.
    """
    from dockbell.errors import DockbellError

    if asking.is_asking:
        print_reasons([reason], err=True)
        match asking.choose("Try again, write the configuration anyway, or stop?", ("again", "write", "stop")):
            case "again":
                return ""
            case "write":
                return reason
    raise DockbellError(
        f"{reason}; nothing was written; --no-probe writes the configuration without contacting the API"
    )


def _try_sink(first: FirstSink, url: str, key: object) -> bool:
    """Look whether the sink would reach its receiver, without an event; return whether it does."""
    import anyio

    from dockbell import app
    from dockbell.errors import DockbellError
    from dockbell.telemetry import Telemetry

    config = app.configure(url, key, sinks={first.name: _as_table(first)})

    async def probe() -> str:
        with anyio.fail_after(_PATIENCE):
            return await app.open_sink(config, first.name, Telemetry(), aside=True).probe()

    try:
        print_lines(f"sink {first.name}: {anyio.run(probe)}")
    except (DockbellError, TimeoutError) as error:
        reason = str(error) or f"no answer within {_PATIENCE} s"
        print_reasons([f"sink {first.name}: {reason}"], err=True)
        return False
    return True


# What is told --------------------------------------------------------------------------------------------------------


def _tell_what_is_next(files: Files, first: FirstSink | None, address: str, key: dict[str, str]) -> None:
    if first is not None and first.secret:
        click.echo(f"\n{_VERIFY.format(secret=files.path.with_name(first.secret))}")
    option = "" if files.path == Path("dockbell.toml") else f" --config {files.path}"
    lines = [(f"dockbell check{option}", "see what would fail"), (f"dockbell run{option}", "run the daemon")]
    if first is not None and first.kind != "stdout":
        lines.insert(1, (f"dockbell test {first.name}{option}", "send a marked event to the sink"))
    width = max(len(command) for command, _ in lines)
    click.echo("\nnext:")
    for command, words in lines:
        click.echo(f"  {command:<{width}}   {words}")
    if address:
        click.echo(f"status page: http://{address}; its token is in {files.path.with_name(_TOKEN_FILE)}")
    if "env" in key:
        click.echo(f"each command needs the API key in the environment variable {key['env']}")
