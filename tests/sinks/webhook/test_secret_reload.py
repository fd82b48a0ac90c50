from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dockbell.config import Secret
from dockbell.errors import ConfigError
from dockbell.sinks.webhook.secret_reload import NotRenewed, Reloadable, Renewed

RENEWED = Renewed("erp", "secret")


def follow(secret: Secret, seen: list[str] | None = None) -> Reloadable[str]:
    """Return a value that is what a secret is, and note each reading of it."""

    def make() -> str:
        value = secret.reveal()
        if seen is not None:
            seen.append(value)
        return value

    return Reloadable("erp", "secret", make, [secret])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("old")
    return path


def rewrite(path: Path) -> None:
    path.write_text("new")


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("new")
    other.replace(path)


def link(path: Path) -> None:
    """Do as Kubernetes does: what the path leads to is another file."""
    path.with_name("data").write_text("new")
    path.unlink()
    path.symlink_to("data")


@pytest.mark.parametrize("change", [rewrite, replace, link])
def test_a_file_that_changes_in_any_way_is_read_again(path: Path, change: Callable[[Path], None]) -> None:
    value = follow(Secret(file=str(path)))
    change(path)
    assert value.reload() == RENEWED
    assert value.current == "new"
    assert value.reload() is None


def test_a_file_that_does_not_change_is_not_read(path: Path) -> None:
    seen: list[str] = []
    value = follow(Secret(file=str(path)), seen)
    assert [value.reload() for _ in range(3)] == [None] * 3
    assert seen == ["old"]


def test_a_file_that_changes_to_the_same_is_no_news(path: Path) -> None:
    value = follow(Secret(file=str(path)))
    path.write_text("old")
    assert value.reload() is None


def test_a_file_that_is_being_written_keeps_the_old_and_is_told_once(path: Path) -> None:
    value = follow(Secret(file=str(path)))
    path.write_text("")
    told = value.reload()
    assert isinstance(told, NotRenewed)
    assert str(told) == (
        "sink erp: secret changed, but the new value cannot be used; the old one stays in use: "
        f"file {path} must not be empty"
    )
    assert value.reload() is None
    path.unlink()
    assert value.reload() is None
    assert value.current == "old"
    path.write_text("new")
    assert value.reload() == RENEWED
    assert str(RENEWED) == "sink erp: secret changed; the new value is in use"
    assert value.current == "new"


def test_a_file_that_is_mended_is_told_even_where_it_holds_the_old(path: Path) -> None:
    value = follow(Secret(file=str(path)))
    path.unlink()
    assert isinstance(value.reload(), NotRenewed)
    path.write_text("old")
    assert value.reload() == RENEWED


def test_a_variable_that_changes_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERP_SECRET", "old")
    value = follow(Secret(env="ERP_SECRET"))
    monkeypatch.setenv("ERP_SECRET", "new")
    assert value.reload() == RENEWED
    monkeypatch.delenv("ERP_SECRET")
    assert isinstance(value.reload(), NotRenewed)
    assert value.current == "new"


def test_a_change_that_leaves_no_trace_is_found_when_it_is_looked_for_closely(path: Path) -> None:
    values = ["old", "new"]
    value = Reloadable("erp", "secret", lambda: values.pop(0), [str(path)])
    assert value.reload() is None
    assert value.reload(force=True) == RENEWED
    assert value.current == "new"


def test_what_stands_in_the_configuration_itself_cannot_change() -> None:
    assert not follow(Secret(value="old")).can_change
    assert not Reloadable("erp", "secret", list, [None]).can_change
    assert follow(Secret(env="HOME")).can_change


def test_what_cannot_be_made_at_the_start_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        follow(Secret(file=str(tmp_path / "none")))
