"""The text of a first configuration, and that its files come to be all together or not at all."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dockbell import config
from dockbell.admin.initialising import Files, FirstSink, Plan, compose
from dockbell.config import Config, validate
from dockbell.errors import ConfigError
from dockbell.sinks import load_sink_type
from tests.admin.probing.odd import OddLine, probe_line, stamped
from tests.strangers import act, needs_root, share

PLAN = Plan("acme", "http://api.example.com", {"file": "dockbell.key"}, unmeasured="nobody asked")
RECORDS = stamped(*(f"itm_{number}" for number in range(9)))


def load(text: str) -> Config:
    return validate(tomllib.loads(text), lambda kind: load_sink_type(kind).Settings)


def load_file(path: Path) -> Config:
    return config.load(path, lambda kind: load_sink_type(kind).Settings)


@pytest.mark.parametrize(
    "sink",
    [None, FirstSink("stdout"), FirstSink("mqtt", "mqtt://broker"), FirstSink("webhook", "https://erp.example.com")],
)
def test_what_is_written_is_a_configuration(sink: FirstSink | None) -> None:
    written = load(
        compose(Plan("acme", "http://a", {"env": "X"}, sink=sink, listen="[::1]:0", token="t", unmeasured="x"))
    )
    assert written.name == "acme"
    assert {name: settings.type for name, settings in written.sinks.items()} == (
        {} if sink is None else {sink.name: sink.kind}
    )
    assert written.web is not None
    assert len(written.feeds()) == 5


def test_what_the_comments_offer_works_too() -> None:
    text = compose(Plan("acme", "http://a", {"env": "X"}, sink=FirstSink("mqtt", "mqtt://broker")))
    offered = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ") and " = " in line]
    sink = load(text + "\n".join(offered)).sinks["broker"]
    assert (sink.start, sink.resources) == ("state", ("shipments", "stock"))


async def test_what_was_measured_is_set_where_it_is_no_default() -> None:
    report = await probe_line(OddLine({"items": RECORDS, "stock": []}), "items", "stock")
    text = compose(Plan("acme", "http://a", {"env": "X"}, report=report))
    tables: dict[str, Any] = tomllib.loads(text)["resources"]
    assert tables["items"] == {"every": "auto", "key": "/id", "updated_at": "/updated_at"}
    assert "key" not in tables["stock"]
    assert "no key here: no records to learn it from" in text
    assert load(text)


async def test_what_could_not_be_told_is_said_in_a_comment() -> None:
    report = await probe_line(OddLine({"items": RECORDS * 30}), "items")
    untold = {each.what for each in report.findings if each.state == "untold"}
    text = compose(Plan("acme", "http://a", {"env": "X"}, report=report))
    for what in untold & {"bound", "end of list"}:
        assert f"# unknown: {what}; " in text


def test_a_reason_cannot_break_out_of_its_comment() -> None:
    text = compose(Plan("acme", "http://a", {"env": "X"}, unmeasured='it said\nkey = "stolen"'))
    assert "key" not in tomllib.loads(text)


def test_the_files_are_there_and_secrets_are_for_their_owner_alone(tmp_path: Path) -> None:
    files = Files(tmp_path / "dockbell.toml", secrets={"dockbell.key": "hush"})
    assert files.write(compose(PLAN), load_file) == [files.path, tmp_path / "dockbell.key"]
    assert stat.S_IMODE((tmp_path / "dockbell.key").stat().st_mode) == 0o600
    assert (tmp_path / "dockbell.key").read_text() == "hush\n"
    assert {each.name for each in tmp_path.iterdir()} == {"dockbell.toml", "dockbell.key"}


def test_what_is_no_configuration_leaves_nothing_behind(tmp_path: Path) -> None:
    files = Files(tmp_path / "dockbell.toml", secrets={"dockbell.key": "hush"})
    with pytest.raises(ConfigError):
        files.write("nam = 1", load_file)
    assert list(tmp_path.iterdir()) == []


def test_a_configuration_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    files = Files(tmp_path / "dockbell.toml", secrets={"dockbell.key": "hush"})

    def load_slowly(path: Path) -> Config:
        files.path.write_text("somebody else's")
        return load_file(path)

    with pytest.raises(ConfigError, match="already exists; add --force"):
        files.write(compose(PLAN), load_slowly)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"dockbell.toml": "somebody else's"}


def test_a_secret_that_is_there_is_kept_unless_it_was_given_anew(tmp_path: Path) -> None:
    (tmp_path / "dockbell.key").write_text("old\n")
    (tmp_path / "dockbell.token").write_text("known\n")
    files = Files(
        tmp_path / "dockbell.toml",
        replace=True,
        secrets={"dockbell.key": "new", "dockbell.token": "fresh"},
        rewrite={"dockbell.key"},
    )
    assert files.write(compose(PLAN), load_file) == [files.path]
    assert (tmp_path / "dockbell.key").read_text() == "new\n"
    assert stat.S_IMODE((tmp_path / "dockbell.key").stat().st_mode) == 0o600
    assert (tmp_path / "dockbell.token").read_text() == "known\n"


def test_a_secret_is_not_lost_to_a_configuration_that_is_refused(tmp_path: Path) -> None:
    before = {"dockbell.key": "old\n", "dockbell.toml": "old"}
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    secrets = {"dockbell.key": "new", "dockbell.token": "fresh"}
    files = Files(tmp_path / "dockbell.toml", replace=True, secrets=secrets, rewrite={"dockbell.key"})
    unset = Plan("acme", "http://api.example.com", {"env": "DOCKBELL_IS_NOT_SET"}, unmeasured="nobody asked")
    refused = {"nam = 1": "name", compose(unset): r"dockbell.toml: \[sources.main\] api_key: .* is not set"}
    for text, told in refused.items():
        with pytest.raises(ConfigError, match=told):
            files.write(text, load_file)
        assert {each.name: each.read_text() for each in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["dockbell.toml", "dockbell.key"])
def test_what_cannot_be_put_in_place_replaces_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (other,) = {"dockbell.toml", "dockbell.key"} - {name}
    (tmp_path / other).write_text("old")
    secrets = {"dockbell.key": "new", "dockbell.token": "fresh"}
    files = Files(tmp_path / "dockbell.toml", replace=True, secrets=secrets, rewrite={"dockbell.key"})
    with pytest.raises(ConfigError, match=f"{name}: "):
        files.write(compose(PLAN), load_file)
    assert {each.name for each in tmp_path.iterdir()} == {"dockbell.toml", "dockbell.key"}
    assert (tmp_path / other).read_text() == "old"


def test_the_new_key_is_looked_up_before_it_takes_the_place_of_the_old(tmp_path: Path) -> None:
    (tmp_path / "dockbell.key").write_text("old\n")
    files = Files(
        tmp_path / "dockbell.toml", replace=True, secrets={"dockbell.key": "two\nlines"}, rewrite={"dockbell.key"}
    )
    with pytest.raises(ConfigError, match="must be one line of printable text"):
        files.write(compose(PLAN), load_file)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"dockbell.key": "old\n"}


def test_a_folder_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written, no such file or directory"):
        Files(tmp_path / "no" / "dockbell.toml").write(compose(PLAN), load_file)


@needs_root
def test_a_secret_that_another_user_has_made_is_not_taken_for_ours(tmp_path: Path) -> None:
    shared = share(tmp_path / "shared")
    act(shared, "echo known >receiver.secret; chmod 644 receiver.secret")
    files = Files(shared / "dockbell.toml", secrets={"receiver.secret": "hush"})
    with pytest.raises(ConfigError, match=r"receiver\.secret belongs to user 12345: find out who created it"):
        files.write(compose(PLAN), load_file)
    assert [path.name for path in shared.iterdir()] == ["receiver.secret"]


def test_nothing_is_written_where_others_could_replace_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match=r"not written, folder .*: everybody can replace the files"):
        Files(tmp_path / "dockbell.toml").refuse_existing()
