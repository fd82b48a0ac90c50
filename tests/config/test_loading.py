from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dockbell.config import Config, SinkSettings, check_secrets, find, load, validate
from dockbell.errors import ConfigError

Read = Callable[[str], Config]
Problems = Callable[[str], list[str]]

SOURCE = '[sources.main]\nbase_url = "https://api.example.com"\napi_key = "k"\n'
POINTER = 'must be a JSON pointer such as "/id" or "/address/city"'
DURATION = 'must be a duration such as "90s", "5m", "24h" or "7d"'
AUTO_OR_DURATION = DURATION.replace("be a", 'be "auto" or a')
NAME = 'must be made of a-z, 0-9, "-" and "_", and begin with a letter or digit'
FIVE = ("shipments", "packages", "items", "stock", "warehouses")
SECRET = 'text, { env = "NAME" } or { file = "path" }'
URL = 'must be a URL such as "https://api.example.com"'
PORT = "must have a port from 1 to 65535"
PROXY = 'must be a URL such as "http://proxy.example.com:3128"'
DATABASE = 'must name a database, "postgresql://user@host/database"'
STORE = (
    'must name a file, "sqlite:///relative.db" or "sqlite:////absolute.db",'
    ' or a database, "postgresql://user@host/database"'
)
DISAGREE = "libraries disagree whether 0 is Sunday or Monday; use mon, tue, wed, thu, fri, sat, sun"
OFFERED = 'must be "shipments", "packages", "items", "stock", "warehouses" or "notices"'
CHANGE = 'must be "created", "updated", "deleted", "restored", "snapshot", "reconciled", "gap", "rebaselined" or "held"'
SHIPMENTS = "does not apply: the API serves single records of shipments only; remove it"
PASSED = "does not apply: the API takes no updated_since here, so every run reads the whole list; remove it"
SIGNALLED = "does not apply: only stock and packages have a signal; remove it"
STOCK_SIGNAL = 'must be one of "auto", "off", "items"'
PACKAGES_SIGNAL = 'must be one of "auto", "off", "shipments"'


def _refuse_sinks(kind: str) -> type[SinkSettings]:
    raise ConfigError(f'sink type "{kind}": unknown')


# Finding -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "environ", "path"),
    [
        ("a.toml", {"DOCKBELL_CONFIG": "b.toml"}, "a.toml"),
        (None, {"DOCKBELL_CONFIG": "b.toml"}, "b.toml"),
        (None, {"DOCKBELL_CONFIG": ""}, "dockbell.toml"),
        (None, {}, "dockbell.toml"),
    ],
)
def test_the_option_comes_before_the_variable_before_the_folder(
    option: str | None, environ: dict[str, str], path: str
) -> None:
    assert find(option, environ) == Path(path)


# Reading -------------------------------------------------------------------------------------------------------------


def _problem_of(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, _refuse_sinks)
    return str(caught.value)


def test_a_file_that_is_not_there_is_named_with_two_ways_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    remedy = 'not found; run "dockbell init" to create one, or "dockbell demo" to try dockbell'
    assert _problem_of(Path("dockbell.toml")) == f"./dockbell.toml: {remedy}"
    assert _problem_of(tmp_path / "a.toml") == f"{tmp_path}/a.toml: {remedy}"


def test_what_cannot_be_read_as_a_file_is_named(tmp_path: Path) -> None:
    assert (
        _problem_of(tmp_path) == f"{tmp_path}: cannot be read, is a directory; make it readable, or choose another file"
    )


def test_a_syntax_error_shows_no_secret(problems: Problems) -> None:
    for text in ("api_key = hush\n", 'api_key = "hush\n', "api_key = hush hush\n", "api_key = {env = hush}\n"):
        assert "hush" not in problems(text)[0]


def test_a_file_in_another_encoding_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b'# one\nname = "Z\xfcrich"\n')
    assert _problem_of(path) == f"{path}: line 2: not UTF-8; save it as UTF-8"


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"\xef\xbb\xbf" + SOURCE.encode())
    assert list(load(path, _refuse_sinks).sources) == ["main"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name = \n", "line 1, column 8: name has no value; add one"),
        ("[store]\nurl 5\n", "line 2, column 5: expected key = value"),
        ("name = [1,", "end of the file: no TOML value; write one, text in quotes"),
        ("name = # none\n", "line 1, column 8: name has no value; add one"),
        ("[a]\nurl = http://x # y\n", 'line 2, column 7: text must be in quotes, url = "…"'),
        ("a = { every = 5m, x = 1 }\n", 'line 1, column 15: text must be in quotes, every = "…"'),
        ('a = "x = y"\nevery = 5 min\n', 'line 2, column 9: text must be in quotes, every = "…"'),
        ("name = “acme”\n", 'line 1, column 8: quotes must be straight, name = "…"'),
        ("enabled = yes\n", "line 1, column 11: enabled must be true or false, got yes"),
        ("every = True\n", "line 1, column 9: every must be true or false, got True"),
        ('a = ["x", "it\'s]\n', "line 1, column 11: this text has no closing quote; add it"),
        ('a = "x', "line 1, column 5: this text has no closing quotes; add them"),
        ('a = """x"""\nb = 1\nc = """\ny\n', "line 3, column 5: this text has no closing quotes; add them"),
        ('a = ["x" "y"]\n', 'line 1, column 10: expected a comma or "]"'),
        ("a = { b = 1 c = 2 }\n", 'line 1, column 13: expected a comma or "}"'),
        ("a = { b = 1,\n  c = 2 }\n", "line 1, column 5: a table in braces must be on one line; close it there, or"),
        ("a = 08470\n", "line 1, column 6: expected the end of the line after the value"),
        ('a = "C:\\dir"\n', "line 1, column 8: unescaped backslash; double it, or put the text in single quotes"),
        (
            "[resources.stock]\n[resources.stock]\n",
            "line 2, column 17: [resources.stock] is already defined; put all its keys in one table",
        ),
        ("[a]\nb.c = 1\n[a.b]\n", "line 3, column 5: [a.b] is already defined; put all its keys in one table"),
        ("[a.b]\nx=1\n[a]\nb.y=1\n", "line 4, column 6: [a.b] is already defined; put all its keys in one table"),
        ("[a]\nb = {}\n[a.b.c]\n", "line 3, column 7: [a.b.c] is already defined; put all its keys in one table"),
        ("a = {}\na.b = 1\n", "line 2, column 8: a already has a value in braces or brackets; add to that value"),
        ("a = 1\na = 2\n", "line 2, column 6: this key already has a value; remove one of them"),
        (f"name = {'9' * 5000}", "not TOML: exceeds the limit (4300 digits) for integer string conversion"),
    ],
)
def test_what_is_not_toml_is_refused_with_line_and_column(text: str, problem: str, problems: Problems) -> None:
    (got,) = problems(text)
    assert got.startswith(problem)


# Checking ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "[sources]: no source is configured; add [sources.main] with base_url and api_key"),
        ("[sources]", "[sources]: no source is configured; add [sources.main] with base_url and api_key"),
        ("sources = 5", "[sources]: must be a table, got a whole number"),
        ('name = "Acme"\n' + SOURCE, f'name: {NAME}, got "Acme"'),
        ("name = 5\n" + SOURCE, "name: must be text in quotes, got a whole number"),
        ('nmae = "acme"\n' + SOURCE, 'nmae: unknown key; did you mean "name"?'),
        (SOURCE + "[metrics]", f"metrics: unknown table; available: {', '.join(Config.model_fields)}"),
        (SOURCE + "[resource.items]", 'resource: unknown table; did you mean "resources"?'),
        (
            SOURCE + SOURCE.replace("main", "other") + "share = 0.5",
            (
                "[sources.other] share: must be 0.9 as in [sources.main], which has the same api_key, got 0.5;"
                " sources with one key share its budget"
            ),
        ),
    ],
)
def test_the_whole_is_checked(text: str, problem: str, problems: Problems) -> None:
    assert problems(text) == [problem]


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ('keep_events = "a week"', f'keep_events: {DURATION}, got "a week"'),
        ("keep_events = 7", f"keep_events: {DURATION}, got 7"),
        ('url = "postgresql://u:hush@h"', f'url: {DATABASE}, got "postgresql://***@h"'),
        ('url = "postgresql:///?host=/run"', f'url: {DATABASE}, got "postgresql:///?***"'),
        ('url = "postgres:h/d"', f'url: {DATABASE}, got "postgres:h/d"'),
        ('url = "dockbell.db"', f'url: {STORE}, got "dockbell.db"'),
        ('url = "sqlite://dockbell.db"', f'url: {STORE}, got "sqlite://dockbell.db"'),
        ('url = "sqlite:///"', f'url: {STORE}, got "sqlite:///"'),
        ('url = "sqlite:///:memory:"', f'url: {STORE}, got "sqlite:///:memory:"'),
        ('url = "sqlite:///a?mode=ro"', f'url: {STORE}, got "sqlite:///a?***"'),
    ],
)
def test_the_store_is_checked(key: str, problem: str, problems: Problems) -> None:
    assert problems(f"{SOURCE}[store]\n{key}") == [f"[store] {problem}"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[sources.main]\napi_key = "k"', "[sources.main] base_url: missing; add it"),
        ('[sources.main]\nbase_url = "https://h"', "[sources.main] api_key: missing; add it"),
        ("[sources]\nmain = 5", "[sources.main]: must be a table, got a whole number"),
        (SOURCE.replace("main", "Main"), f'[sources.Main]: {NAME}, got "Main"'),
        (SOURCE.replace("main", '"a b"'), f'[sources."a b"]: {NAME}, got "a b"'),
    ],
)
def test_the_table_of_sources_is_checked(text: str, problem: str, problems: Problems) -> None:
    assert problems(text) == [problem]


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("requests_per_minute = 0", "requests_per_minute: must be at least 1, got 0"),
        ('requests_per_minute = "300"', 'requests_per_minute: must be a whole number, got "300"'),
        ("requests_per_minute = true", "requests_per_minute: must be a whole number, got true"),
        ("request_per_minute = 5", 'request_per_minute: unknown key; did you mean "requests_per_minute"?'),
        ("Base-URL = 5", 'Base-URL: unknown key; did you mean "base_url"?'),
        ("share = 0", "share: must be more than 0.0, got 0"),
        ("share = 1.5", "share: must be at most 1.0, got 1.5"),
        ("share = nan", "share: must be a number, got NaN"),
        ('timeout = "0s"', "timeout: must be longer than 0s, got 0s"),
        ('user_agent = "a\\nb"', 'user_agent: must be printable ASCII, got "a\\nb"'),
        ('ca_file = ""', "ca_file: must not be empty"),
        ('proxy = "socks5://u:hush@h"', f'proxy: {PROXY}, got "socks5://***@h"'),
    ],
)
def test_a_source_is_checked(key: str, problem: str, problems: Problems) -> None:
    assert problems(SOURCE + key) == [f"[sources.main] {problem}"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[resources.shipmnts]", '[resources.shipmnts]: unknown table; did you mean "shipments"?'),
        ("[resources.orders]", f"[resources.orders]: unknown table; available: {', '.join(FIVE)}"),
        ('[resources]\nevery = "1s"', f"[resources.every]: unknown key; available: {', '.join(FIVE)}"),
        ("[sources.main.resources.stok]", '[sources.main.resources.stok]: unknown table; did you mean "stock"?'),
        ('[resources.stock]\nreconcile = "24h"', f"[resources.stock] reconcile: {PASSED}"),
        ('[resources.warehouses]\nlookback = "auto"', f"[resources.warehouses] lookback: {PASSED}"),
        ('[resources.items]\ndetail = ["stock"]', f"[resources.items] detail: {SHIPMENTS}"),
        ("[resources.packages]\ndetail = []", f"[resources.packages] detail: {SHIPMENTS}"),
        ('[resources.items]\nsignal = "auto"', f"[resources.items] signal: {SIGNALLED}"),
        ('[resources.stock]\nsignal = "shipments"', f'[resources.stock] signal: {STOCK_SIGNAL}, got "shipments"'),
        ('[resources.packages]\nsignal = "items"', f'[resources.packages] signal: {PACKAGES_SIGNAL}, got "items"'),
        ('[resources.stock]\ndetail_timeout = "5m"', f"[resources.stock] detail_timeout: {SHIPMENTS}"),
        ('[resources.warehouses]\ndetail = "x"', f"[resources.warehouses] detail: {SHIPMENTS}"),
        (
            "\n".join(f"[resources.{name}]\nenabled = false" for name in FIVE),
            "[sources.main]: reads nothing; enable one of its resources",
        ),
    ],
)
def test_the_tables_of_resources_are_checked(text: str, problem: str, problems: Problems) -> None:
    assert problems(SOURCE + text) == [problem]


@pytest.mark.parametrize("table", ["[resources.items]", "[sources.main.resources.items]"])
@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("enabled = 1", "enabled: must be true or false, got 1"),
        ('evry = "15s"', 'evry: unknown key; did you mean "every"?'),
        ('every = "1x"', f'every: {AUTO_OR_DURATION}, got "1x"'),
        ("every = 15", f"every: {AUTO_OR_DURATION}, got 15"),
        ('every = "0s"', "every: must be longer than 0s, got 0s"),
        ('every = "15s"\nat_most = "1m"', 'at_most: needs every = "auto", got every = "15s"; keep one'),
        (
            'at_most = "1m"\ncron = "0 6 * * *"',
            'at_most: needs every = "auto", got cron = "0 6 * * *"; keep one',
        ),
        ('at_most = "0s"', "at_most: must be longer than 0s, got 0s"),
        ("weight = 0", "weight: must be more than 0.0, got 0"),
        ('every = "1s"\ncron = "0 6 * * *"', "cron: conflicts with every; keep one of them"),
        ('cron = "0 6 * * 1"', f'cron: day of the week must be a name, got "1": {DISAGREE}'),
        ("lookback = 5", f"lookback: {AUTO_OR_DURATION}, got 5"),
        ('first_pass = "emti"', 'first_pass: must be "baseline" or "emit", got "emti"; did you mean "emit"?'),
        ('first_pass = "x"', 'first_pass: must be "baseline" or "emit", got "x"'),
        ("first_pass = 1", 'first_pass: must be "baseline" or "emit", got 1'),
        ('key = "id"', f'key: {POINTER}, got "id"'),
        ('key = ["/a", "b"]', f'key[1]: {POINTER}, got "b"'),
        ("key = []", "key: must not be empty"),
        ("ignore = 5", "ignore: must be a list, got a whole number"),
        ("expand = [5]", "expand[0]: must be text in quotes, got a whole number"),
        ("stale_window = 60", f"stale_window: {DURATION}, got 60"),
        ("events = 5", "events: must be a list, got a whole number"),
        ('events = ["low"]', "events[0]: must be a table, got text"),
        ('events = [{ name = "low" }]', "events[0].when: missing; add it"),
        ('events = [{ when = "true" }]', "events[0].name: missing; add it"),
        ('events = [{ name = "Low", when = "true" }]', f'events[0].name: {NAME}, got "Low"'),
        (
            'events = [{ name = "gap", when = "true" }]',
            'events[0].name: must not be "gap", which dockbell reserves; choose another',
        ),
        (
            'events = [{ name = "a", when = "true" }, { name = "a", when = "false" }]',
            'events[1].name: "a" is used twice; rename one',
        ),
        (
            'events = [{ name = "a", when = "true" }, { name = "b", when = "after.available <" }]',
            'events[1].when: must be CEL, got "after.available <": column 18: unexpected end',
        ),
        (
            'events = [{ name = "a", when = "afer.available < 10" }]',
            'events[0].when: unknown variable "afer"; did you mean "after"?',
        ),
        ('events = [{ name = "a", wen = "true", when = "true" }]', 'events[0].wen: unknown key; did you mean "when"?'),
        ("query = 5", "query: must be a table, got a whole number"),
        ("query = { limit = 5 }", "query: must not contain limit: dockbell sets the page size; remove it"),
        ('query.cursor = "x"', "query: must not contain cursor: dockbell sets it for each page; remove it"),
        (
            'query.updated_since = "x"',
            "query: must not contain updated_since: dockbell sets it for each poll; remove it",
        ),
        ('query.expand = "x"', "query: must not contain expand: it has its own key, expand = [...]; remove it"),
        ("query.sku = 1.5", "query: sku must be text, a whole number or true or false, got a number"),
    ],
)
def test_a_resource_is_checked_where_it_stands(table: str, keys: str, problem: str, problems: Problems) -> None:
    assert problems(f"{SOURCE}{table}\n{keys}") == [f"{table} {problem}"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[sinks.a]", '[sinks.a] type: missing; add one, such as type = "webhook"'),
        ("[sinks.a]\ntype = 5", "[sinks.a] type: must be text in quotes, got a whole number"),
        ("[sinks]\na = 5", "[sinks.a]: must be a table, got a whole number"),
        ('[sinks.a]\ntype = "pagr"', '[sinks.a]: sink type "pagr": unknown; did you mean "pager"?'),
        ('[sinks.A]\ntype = "pager"', f'[sinks.A]: {NAME}, got "A"'),
    ],
)
def test_the_table_of_sinks_is_checked(text: str, problem: str, problems: Problems) -> None:
    assert problems(SOURCE + text) == [problem]


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("lodu = true", 'lodu: unknown key; did you mean "loud"?'),
        ("lanes = 5", "lanes: must be less than 5, got 5"),
        ('pause = "3m"', 'pause: must be at most 2m, got "3m"'),
        ("sources = []", "sources: must not be empty"),
        ('sources = "man"', 'sources: unknown source "man"; did you mean "main"?'),
        ('resources = ["items", "stok"]', f'resources[1]: {OFFERED}, got "stok"; did you mean "stock"?'),
        ('resources = "stock"', 'resources: "stock" is not read from these sources; available: items'),
        ('changes = ["gapp"]', f'changes[0]: {CHANGE}, got "gapp"; did you mean "gap"?'),
        ('changes = "creatd"', f'changes: {CHANGE}, got "creatd"; did you mean "created"?'),
        (
            'start = "nwo"',
            'start: must be "now", "beginning" or "state", got "nwo"; did you mean "now"?',
        ),
    ],
)
def test_a_sink_is_checked_by_the_model_of_its_type(key: str, problem: str, problems: Problems) -> None:
    assert problems(f'{SOURCE}[resources.items]\n[sinks.a]\ntype = "pager"\n{key}') == [f"[sinks.a] {problem}"]


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("api.example.com", f'{URL}, got "api.example.com"'),
        ("ftp://h", f'{URL}, got "ftp://h"'),
        ("https://", f'{URL}, got "https://"'),
        ("https://h:0", f'{PORT}, got "https://h:0"'),
        ("https://h:70000", f'{PORT}, got "https://h:70000"'),
        ("https://[h", f'{URL}, got "https://[h"'),
        ("https://h/a b", f'{URL}, got "https://h/a b"'),
        ("https://u:hush@h", "must not contain a user or password; use api_key"),
        ("https://h/?key=hush", "must not contain a query or a fragment; remove it"),
        ("https://h/#x", "must not contain a query or a fragment; remove it"),
    ],
)
def test_a_base_url_is_checked(url: str, problem: str, problems: Problems) -> None:
    assert problems(f'[sources.main]\nbase_url = "{url}"\napi_key = "k"') == [f"[sources.main] base_url: {problem}"]


@pytest.mark.parametrize(
    ("secret", "problem"),
    [
        ("77077", f": must be {SECRET}, got a whole number"),
        ('["hush"]', f": must be {SECRET}, got a list"),
        ('""', ": must not be empty"),
        ('"hush\\nhush"', ": must be one line of printable text"),
        ("{}", f": must be exactly one of {SECRET}"),
        ('{ env = "A", file = "b" }', f": must be exactly one of {SECRET}"),
        ('{ env = "" }', ".env: must not be empty"),
        ("{ env = 77077 }", ".env: must be text in quotes, got a whole number"),
        ('{ evn = "A" }', '.evn: unknown key; did you mean "env"?'),
    ],
)
def test_a_secret_is_checked_and_never_shown(secret: str, problem: str, problems: Problems) -> None:
    (got,) = problems(f'[sources.main]\nbase_url = "https://h"\napi_key = {secret}')
    assert got == f"[sources.main] api_key{problem}"


def test_a_plug_ins_secrets_are_never_shown(problems: Problems) -> None:
    text = SOURCE + '[sinks.a]\ntype = "pager"\ntoken = ["hush"]\nheaders = { "X-Key" = 77077, "a b" = { file = 5 } }'
    assert problems(text) == [
        f"[sinks.a] token: must be {SECRET}, got a list",
        f"[sinks.a] headers.X-Key: must be {SECRET}, got a whole number",
        '[sinks.a] headers."a b".file: must be text in quotes, got a whole number',
    ]


def test_all_problems_are_told_at_once(problems: Problems) -> None:
    text = """
        name = "Acme"
        [sources.main]
        base_url = "api.example.com"
        shrae = 0.5
        [sources.main.resources.stock]
        reconcile = "24h"
        [resources.items]
        every = "1x"
        first_pass = "emti"
        [sinks.a]
        [sinks.b]
        type = "pager"
        lanes = 0
        changes = ["creatd"]
    """
    assert [problem.split(": ")[0] for problem in problems(text)] == [
        "name",
        "[sources.main] base_url",
        "[sources.main] api_key",
        "[sources.main.resources.stock] reconcile",
        "[sources.main] shrae",
        "[resources.items] every",
        "[resources.items] first_pass",
        "[sinks.a] type",
        "[sinks.b] changes[0]",
        "[sinks.b] lanes",
    ]


def test_a_sinks_sources_limit_the_resources_that_it_can_take(problems: Problems) -> None:
    text = (
        SOURCE
        + SOURCE.replace("main", "b")
        + "[resources.items]\n[sources.b.resources.stock]\n"
        + '[sinks.a]\ntype = "pager"\nsources = ["b"]\nresources = ["items", "stock"]\n'
        + '[sinks.c]\ntype = "pager"\nsources = ["main"]\nresources = ["items", "stock"]\n'
    )
    assert problems(text) == ['[sinks.c] resources: "stock" is not read from these sources; available: items']


def test_a_filter_is_not_blamed_for_sources_that_are_wrong_themselves(problems: Problems) -> None:
    text = SOURCE.replace("main", "Main") + '[sinks.a]\ntype = "pager"\nsources = ["Main"]'
    assert problems(text) == [f'[sources.Main]: {NAME}, got "Main"']


def test_a_table_that_is_parsed_already_is_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"^demo: \[sources\]: no source is configured"):
        validate({}, _refuse_sinks, label="demo")


# Secrets -------------------------------------------------------------------------------------------------------------


def test_secrets_that_cannot_be_looked_up_are_told_with_their_places(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKBELL_TEST_KEY", raising=False)
    config = read(
        '[sources.main]\nbase_url = "https://h"\napi_key = { env = "DOCKBELL_TEST_KEY" }\n'
        '[sinks.a]\ntype = "pager"\ntoken = { file = "token" }\n'
        'headers = { A = "x", B = { env = "DOCKBELL_TEST_KEY" } }\nspares = ["x", { env = "DOCKBELL_TEST_KEY" }]'
    )
    with pytest.raises(ConfigError) as caught:
        check_secrets(config)
    file = "dockbell.toml"
    remedy = f"export it, or use another {SECRET.removeprefix('text, ')}"
    assert caught.value.problems == (
        f"{file}: [sources.main] api_key: environment variable DOCKBELL_TEST_KEY is not set; {remedy}",
        f"{file}: [sinks.a] token: file {tmp_path}/token: no such file or directory; make it readable, or use another",
        f"{file}: [sinks.a] headers.B: environment variable DOCKBELL_TEST_KEY is not set; {remedy}",
        f"{file}: [sinks.a] spares[1]: environment variable DOCKBELL_TEST_KEY is not set; {remedy}",
    )


def test_secrets_that_can_be_looked_up_are_no_problem(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKBELL_TEST_KEY", "k")
    check_secrets(read(SOURCE + '[sinks.a]\ntype = "pager"\ntoken = { env = "DOCKBELL_TEST_KEY" }'))
