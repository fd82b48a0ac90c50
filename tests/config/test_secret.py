from __future__ import annotations

import io
from pathlib import Path

import pytest
from pydantic import ValidationError
from rich.console import Console
from rich.pretty import Pretty

from dockbell.config import ProxyUrl, Revealed, RevealedBytes, Secret
from dockbell.errors import ConfigError


def test_a_text_is_the_value() -> None:
    assert Secret.model_validate(" hush \n").reveal() == "hush"


def test_a_variable_is_looked_up_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret(env="DOCKBELL_TEST_KEY")
    monkeypatch.setenv("DOCKBELL_TEST_KEY", "first")
    assert secret.reveal() == "first"
    monkeypatch.setenv("DOCKBELL_TEST_KEY", "second")
    assert secret.reveal() == "second"


def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "key"
    secret = Secret(file=str(path))
    path.write_text("first\n", encoding="utf-8")
    assert secret.reveal() == "first"
    path.write_text("second", encoding="utf-8")
    assert secret.reveal() == "second"


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKBELL_TEST_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"^environment variable DOCKBELL_TEST_KEY is not set; export it, or "):
        Secret(env="DOCKBELL_TEST_KEY").reveal()


def test_an_empty_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKBELL_TEST_KEY", " ")
    with pytest.raises(ConfigError, match=r"^environment variable DOCKBELL_TEST_KEY must not be empty$"):
        Secret(env="DOCKBELL_TEST_KEY").reveal()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"/key: no such file or directory; make it readable, or use another$"):
        Secret(file=str(tmp_path / "key")).reveal()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\n", "must not be empty"),
        (b"hush\nhush", "must be one line of printable text"),
        (b"hush\xff", "must be UTF-8"),
    ],
)
def test_a_file_must_hold_one_line_which_is_not_shown(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        Secret(file=str(path)).reveal()
    assert str(caught.value) == f"file {path} {problem}"


@pytest.mark.parametrize(
    ("given", "shown"),
    [({"value": "hush"}, "***"), ({"env": "NAME"}, "env:NAME"), ({"file": "/run/key"}, "file:/run/key")],
)
def test_it_is_printed_as_where_it_comes_from(given: dict[str, str], shown: str) -> None:
    secret = Secret.model_validate(given)
    console = Console(file=io.StringIO())
    console.print(Pretty(secret))
    assert str(secret) == f"{secret}" == shown
    assert repr(secret) == f"Secret('{shown}')"
    assert secret.model_dump() == (given if "value" not in given else shown)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == f"Secret('{shown}')\n"


@pytest.mark.parametrize("given", ["", " ", "hush\nhush", 77077, ["hush"], {}, {"env": "", "file": "hush"}])
def test_what_is_no_secret_is_refused_without_being_shown(given: object) -> None:
    with pytest.raises(ValidationError) as caught:
        Secret.model_validate(given)
    assert "hush" not in str(caught.value)
    assert "77077" not in str(caught.value)


def test_what_is_revealed_shows_itself_to_nobody_who_looks_at_variables() -> None:
    value = Secret(value="hush").reveal()
    assert (value, repr(value), f"{value}", value.encode()) == ("hush", "'***'", "hush", b"hush")
    assert isinstance(value, Revealed)
    assert repr([(b"name", RevealedBytes(b"hush"))]) == "[(b'name', b'***')]"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("http://user:hush@proxy:3128", "http://***@proxy:3128"),
        ("http://proxy:3128/hush?hush", "http://proxy:3128/***"),
        ({"env": "NAME"}, "env:NAME"),
        ({"file": "/run/proxy"}, "file:/run/proxy"),
    ],
)
def test_of_a_url_only_the_place_is_shown_or_where_it_comes_from(given: object, shown: str) -> None:
    url = ProxyUrl.model_validate(given)
    assert (str(url), repr(url)) == (shown, f"ProxyUrl('{shown}')")
    assert url.model_dump() == (given if isinstance(given, dict) else shown)


@pytest.mark.parametrize("text", ["ftp://user:hush@proxy", "hush", "user:hush@proxy", "http://user:hush"])
def test_a_text_that_is_no_url_is_refused_wherever_it_comes_from(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKBELL_TEST_PROXY", text)
    with pytest.raises(ValidationError, match="must be a URL such as") as refused:
        ProxyUrl.model_validate(text)
    with pytest.raises(ConfigError, match=r"^environment variable DOCKBELL_TEST_PROXY must be a URL such as") as caught:
        ProxyUrl(env="DOCKBELL_TEST_PROXY").reveal()
    assert "hush" not in f"{refused.value} {caught.value}"


@pytest.mark.parametrize(
    ("given", "is_bare"),
    [
        ("http://user:hush@proxy:3128", True),
        ("http://proxy:3128/?hush", True),
        ("http://proxy:3128", False),
        ({"env": "NAME"}, False),
    ],
)
def test_a_url_is_a_secret_in_the_configuration_where_a_password_or_a_query_is_in_it(
    given: object, *, is_bare: bool
) -> None:
    assert ProxyUrl.model_validate(given).is_bare is is_bare
    assert Secret.model_validate(given).is_bare is isinstance(given, str)
