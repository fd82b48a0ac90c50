from __future__ import annotations

import os
from pathlib import Path

import pytest

from dockbell.admin.exposure import find_exposed, judge_mode
from dockbell.app import load_config

CONFIG = """
[sources.main]
base_url = "https://api.example.com"
api_key = {key}

[sinks.floor]
type = "mqtt"
url = "mqtts://broker.example.com"
cert_file = "client.pem"
key_file = "client.key"
"""


class Folder:
    """A folder with a configuration and all that it names, all of it as it should be."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.chmod(0o755)
        self.write('{ file = "key" }')
        for name in ("key", "client.key", "client.pem", "dockbell.db", "dockbell.db-wal", "dockbell.db.life"):
            self.let(name, 0o600)

    def write(self, key: str) -> None:
        (self.path / "dockbell.toml").write_text(CONFIG.format(key=key))
        (self.path / "dockbell.toml").chmod(0o644)

    def let(self, name: str, mode: int) -> None:
        (self.path / name).touch()
        (self.path / name).chmod(mode)

    def find(self) -> list[str]:
        """Return what is found, without the name of the folder."""
        path = self.path / "dockbell.toml"
        return [each.replace(f"{self.path}/", "") for each in find_exposed(load_config(path), path)]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_files_as_they_should_be_are_no_finding(folder: Folder) -> None:
    assert folder.find() == []


def test_what_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for name in ("client.key", "dockbell.db"):
        (tmp_path / name).unlink()
    assert folder.find() == []


@pytest.mark.parametrize(
    ("name", "mode", "told"),
    [
        ("key", 0o644, "secret key, [sources.main] api_key: can be read by everybody; chmod o-r key"),
        (
            "client.key",
            0o604,
            "secret client.key, [sinks.floor] key_file: can be read by everybody; chmod o-r client.key",
        ),
        ("dockbell.db", 0o606, "store dockbell.db: can be read and written by everybody; chmod o-r,o-w dockbell.db"),
        ("dockbell.db-wal", 0o644, "store dockbell.db-wal: can be read by everybody; chmod o-r dockbell.db-wal"),
        (
            "dockbell.db.before-v4",
            0o644,
            "store dockbell.db.before-v4: can be read by everybody; chmod o-r dockbell.db.be",
        ),
        ("dockbell.toml", 0o646, "config dockbell.toml: can be written by everybody; chmod o-w dockbell.toml"),
    ],
)
def test_a_file_that_others_can_read_or_write_is_told_with_what_to_do(
    folder: Folder, name: str, mode: int, told: str
) -> None:
    folder.let(name, mode)
    (found,) = folder.find()
    assert found.startswith(told)


@pytest.mark.parametrize("name", ["client.pem", "dockbell.toml"])
def test_what_is_no_secret_may_be_read(folder: Folder, name: str) -> None:
    folder.let(name, 0o644)
    assert folder.find() == []


def test_a_configuration_that_holds_a_secret_is_one(folder: Folder) -> None:
    folder.write('"literal"')
    (found,) = folder.find()
    assert found == (
        "config dockbell.toml: can be read by everybody; chmod o-r dockbell.toml, "
        "or move its secrets to other files: [sources.main] api_key"
    )
    folder.let("dockbell.toml", 0o640)
    assert folder.find() == []


def test_a_password_in_the_url_of_a_proxy_is_a_secret_too(folder: Folder) -> None:
    folder.write('{ file = "key" }\nproxy = "http://user:hush@proxy.example.com:3128"')
    (found,) = folder.find()
    assert found.endswith(", or move its secrets to other files: [sources.main] proxy")
    folder.let("proxy-url", 0o604)
    folder.write('{ file = "key" }\nproxy = { file = "proxy-url" }')
    assert folder.find() == ["secret proxy-url, [sources.main] proxy: can be read by everybody; chmod o-r proxy-url"]


def test_a_password_in_the_url_of_the_store_is_a_secret_too(folder: Folder) -> None:
    folder.write('{ file = "key" }\n[store]\nurl = "postgresql://user:hush@db.example.com/dockbell"')
    (found,) = folder.find()
    assert found.endswith(", or move its secrets to other files: [store] url")
    folder.write('{ file = "key" }\n[store]\nurl = "postgresql://user@db.example.com/dockbell"')
    assert folder.find() == []


def test_a_folder_in_which_everybody_can_replace_files_is_told(folder: Folder) -> None:
    folder.path.chmod(0o777)
    (found,) = folder.find()
    assert found.startswith(f"folder {folder.path}: everybody can replace the files in it")
    folder.path.chmod(0o1777)
    assert folder.find() == []


def test_the_group_may_write_where_it_is_the_owners_own(folder: Folder) -> None:
    folder.let("dockbell.toml", 0o664)
    own = folder.path.stat().st_gid
    os.chown(folder.path / "dockbell.toml", -1, own)
    assert folder.find() == []
    if os.getuid() == 0:
        os.chown(folder.path / "dockbell.toml", -1, own + 1)
        assert folder.find() == ["config dockbell.toml: can be written by its group; chmod g-w dockbell.toml"]


# Included files ------------------------------------------------------------------------------------------------------


@pytest.fixture
def including(folder: Folder) -> Folder:
    """Return the folder with two sources in files of their own, which have their keys by their names."""
    (folder.path / "sources.d").mkdir(mode=0o755)
    text = (
        'include = "sources.d/*.toml"\n[source_defaults]\nbase_url = "https://h"\napi_key = { file = "{source}.key" }\n'
    )
    (folder.path / "dockbell.toml").write_text(text)
    for name in ("a", "b"):
        (folder.path / f"sources.d/{name}.toml").write_text(f"[sources.{name}]\n")
        folder.let(f"sources.d/{name}.toml", 0o644)
        folder.let(f"{name}.key", 0o600)
    return folder


def test_included_files_and_the_keys_of_their_sources_are_looked_at(including: Folder) -> None:
    assert including.find() == []
    including.let("sources.d/b.toml", 0o646)
    including.let("a.key", 0o644)
    assert including.find() == [
        "config sources.d/b.toml: can be written by everybody; chmod o-w sources.d/b.toml",
        "secret a.key, [source_defaults] api_key, for a: can be read by everybody; chmod o-r a.key",
    ]


def test_a_secret_is_told_for_the_file_that_holds_it(including: Folder) -> None:
    (including.path / "sources.d/b.toml").write_text('[sources.b]\napi_key = "literal"\n')
    (found,) = including.find()
    assert found == (
        "config sources.d/b.toml: can be read by everybody; chmod o-r sources.d/b.toml, "
        "or move its secrets to other files: [sources.b] api_key"
    )


def test_a_secret_that_sources_share_is_told_once(including: Folder) -> None:
    (including.path / "dockbell.toml").write_text(
        'include = "sources.d/*.toml"\n[source_defaults]\nbase_url = "https://h"\napi_key = "literal"\n'
    )
    (found,) = including.find()
    assert found.endswith(", or move its secrets to other files: [source_defaults] api_key")


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_folder_into_which_everybody_can_put_sources_is_told(including: Folder, mode: int) -> None:
    (including.path / "sources.d").chmod(mode)
    (found,) = including.find()
    assert found.startswith("folder sources.d: everybody can create files in it, and dockbell includes them; chmod o-w")


@pytest.mark.parametrize(
    ("mode", "private", "shared", "words", "remedy"),
    [
        (0o600, True, True, "", ""),
        (0o640, True, True, "", ""),
        (0o660, True, False, "", ""),
        (0o660, True, True, "written by its group", "g-w"),
        (0o666, True, True, "read and written by everybody and written by its group", "o-r,o-w,g-w"),
        (0o666, False, False, "written by everybody", "o-w"),
        (0o444, False, True, "", ""),
    ],
)
def test_modes(*, mode: int, private: bool, shared: bool, words: str, remedy: str) -> None:
    assert judge_mode(mode, is_private=private, is_shared=shared) == (words, remedy)


def test_secrets_that_are_written_out_and_stored_in_a_database_are_told(tmp_path: Path) -> None:
    path = tmp_path / "dockbell.toml"
    path.write_text(
        '[store]\nurl = "postgresql://localhost/db"\n[sources.main]\nbase_url = "http://127.0.0.1:1"\napi_key = "k"\n'
    )
    path.chmod(0o600)
    words = "is stored in the database with the configuration; use"
    assert [line for line in find_exposed(load_config(path), path) if "database" in line] == [
        f'{path}: [sources.main] api_key: {words} {{ file = "path" }} or {{ env = "NAME" }} instead'
    ]
    path.write_text(path.read_text().replace('"k"', '{ env = "KEY" }'))
    assert not [line for line in find_exposed(load_config(path), path) if "database" in line]
