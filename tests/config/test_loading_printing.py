from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.config import Config, redacted, to_toml

Read = Callable[[str], Config]

TEXT = """
[sources.main]
base_url = "https://api.example.com/"
api_key = "hush"
proxy = "http://user:hush@proxy.example.com:3128"

[resources.stock]
every = "90s"

[[resources.stock.events]]
name = "low"
when = 'after.bin == "A"'

[resources.items]
cron = "0 6 * * mon-fri"
key = ["/sku", "/lot"]

[sinks.a]
type = "pager"
token = { env = "TOKEN" }
headers = { Authorization = "Bearer hush", "a b" = { file = "b" } }
"""

PRINTED = """\
name = "dockbell"

[store]
url = "sqlite:///{folder}/dockbell.db"
keep_events = "7d"
max_owed = "30d"
keep_attempts = 50000
max_disk_share = 0.2

[sources.main]
base_url = "https://api.example.com"
api_key = "***"
requests_per_minute = 300
share = 0.9
timeout = "30s"
proxy = "http://***@proxy.example.com:3128"
paused = false

[sources.main.resources.items]
weight = 1.0
cron = "0 6 * * mon-fri"
reconcile = "1d"
lookback = "auto"
first_pass = "baseline"
key = ["/sku", "/lot"]
ignore = []
unordered = []
drop = []
query = {{ status = "all" }}
expand = []
detail = []
detail_timeout = "5m"
confirm_after = "2m"
stale_window = "1m"
touch = false
signal = "auto"
events = []

[sources.main.resources.stock]
every = "1m30s"
weight = 1.0
lookback = "auto"
first_pass = "baseline"
ignore = []
unordered = []
drop = []
query = {{}}
expand = []
detail = []
detail_timeout = "5m"
confirm_after = "2m"
stale_window = "1m"
touch = false
signal = "auto"
events = [{{ name = "low", when = "after.bin == \\"A\\"" }}]

[sinks.a]
type = "pager"
on_leave = "skip"
start = "now"
payload = "full"
fields = []
redact = []
max_event_size = 65536
on_dead = "skip"
retry = ["0s", "5s", "15s", "45s", "2m", "5m", "15m", "1h", "3h", "6h", "12h", "1d", "1d"]
coalesce = false
token = {{ env = "TOKEN" }}
headers = {{ Authorization = "***", "a b" = {{ file = "{folder}/b" }} }}
spares = []
lanes = 1
pause = "1s"
loud = false
"""


def test_a_configuration_is_printed_merged_and_without_its_secrets(read: Read, tmp_path: Path) -> None:
    assert to_toml(redacted(read(TEXT))) == PRINTED.format(folder=tmp_path)


def test_its_own_text_shows_no_secret_either(read: Read) -> None:
    config = read(TEXT)
    assert "hush" not in f"{config} {config!r} {config.model_dump()} {config.model_dump_json()}"


def test_a_sink_without_settings_keeps_its_header() -> None:
    assert to_toml({"sinks": {"a": {}}}) == "[sinks.a]\n"


VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
TABLES = st.dictionaries(st.text(max_size=3), VALUES, max_size=4)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.text(),
            "store": TABLES,
            "sources": st.dictionaries(
                st.text(max_size=3),
                st.fixed_dictionaries(
                    {"base_url": st.text()}, optional={"resources": st.dictionaries(st.text(max_size=3), TABLES)}
                ),
                max_size=2,
            ),
            "sinks": st.dictionaries(st.text(max_size=3), TABLES, max_size=2),
        },
    )
)
def test_what_is_printed_is_toml_that_says_the_same(table: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(table)) == table


@pytest.mark.parametrize("text", ["\x7f", "\x00", 'a"b\\c', "Zürich"])
def test_awkward_texts_are_escaped(text: str) -> None:
    assert tomllib.loads(to_toml({"name": text})) == {"name": text}
