"""Whether others on the same machine can read or write what is the daemon's alone: its store, its secrets."""

from __future__ import annotations

import pwd
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from os import stat_result
from pathlib import Path
from urllib.parse import urlsplit

from dockbell.config import Config
from dockbell.config.including import find_start
from dockbell.config.loading import find_secrets


def find_exposed(config: Config, path: Path | None = None) -> Sequence[str]:
    """Return what others can read or write that they should not, as one line each with what to do; nothing is changed.

    Looks at the configuration file (``path``), those that it includes, the files that they name for secrets and private
    keys, the store and what stands beside it, and at the folders of the configuration and the store. What is not there,
    or cannot be looked at, is left out.
    """
    found = [] if path is None else _judge_configs(config, path)
    found += [] if config.store.path is not None else _judge_shared(config)
    for place, file in _find_secret_files(config):
        found += _judge_file(f"secret {file}, {place}", file, is_private=True)
    for file in () if config.store.path is None else _find_store_files(config.store.path):
        found += _judge_file(f"store {file}", file, is_private=True)
    files = (config.store.path, path, *map(Path, config.origins.included))
    folders = {each.absolute().parent for each in files if each is not None}
    listed = set() if path is None else _find_listed(config, path)
    for folder in sorted(folders | listed):
        found += _judge_folder(folder, is_listed=folder in listed)
    return found


def judge_mode(mode: int, *, is_private: bool, is_shared: bool) -> tuple[str, str]:
    """Return who can do what with a file that they should not, and what takes it from them; empty where all is well.

    The group may read what is private: that is how a file of root's is given to the daemon. What is shared belongs to
    a group of more than its owner.
    """
    who = {
        "everybody": [("read", "o-r", is_private and mode & stat.S_IROTH), ("written", "o-w", mode & stat.S_IWOTH)],
        "its group": [("written", "g-w", is_shared and mode & stat.S_IWGRP)],
    }
    words = [
        f"{' and '.join(verb for verb, _, holds in rights if holds)} by {name}"
        for name, rights in who.items()
        if any(holds for *_, holds in rights)
    ]
    remedies = [remedy for rights in who.values() for _, remedy, holds in rights if holds]
    return " and ".join(words), ",".join(remedies)


def _judge_configs(config: Config, path: Path) -> list[str]:
    """Judge the configuration file and those that it includes; one in which a secret is written is a secret itself."""
    literal: dict[str, dict[str, None]] = {}
    for place, secret in find_secrets(config):
        if secret.is_bare:
            file, name = config.origins.locate(config.origins.find_default(place) or place)
            literal.setdefault(file, {})[name] = None
    if urlsplit(config.store.url).password is not None:
        literal.setdefault(config.origins.main, {})["[store] url"] = None
    files = {str(path): literal.get(config.origins.main, {})}
    files |= {file: literal.get(file, {}) for file in config.origins.included}
    return [line for file, places in files.items() for line in _judge_config(Path(file), list(places))]


def _judge_shared(config: Config) -> list[str]:
    """Report the secrets that stand in the shared configuration: who can read the database can read them."""
    places = {
        config.origins.locate(config.origins.find_default(place) or place): None
        for place, secret in find_secrets(config)
        if secret.is_bare and place[0] != "web"
    }
    if not places:
        return []
    (file, name), more = next(iter(places)), len(places) - 1
    rest = f", and {more} more" if more else ""
    words = "is stored in the database with the configuration"
    return [f'{file}: {name}{rest}: {words}; use {{ file = "path" }} or {{ env = "NAME" }} instead']


def _judge_config(path: Path, literal: Sequence[str]) -> list[str]:
    found = _judge_file(f"config {path}", path, is_private=False)
    if literal and not found and (readable := _judge_file(f"config {path}", path, is_private=True)):
        rest = f" and {len(literal) - 1} more" if len(literal) > 1 else ""
        found = [f"{each}, or move its secrets to other files: {literal[0]}{rest}" for each in readable]
    return found


def _judge_file(subject: str, file: Path, *, is_private: bool) -> list[str]:
    with suppress(OSError):
        found = file.stat()
        words, remedy = judge_mode(found.st_mode, is_private=is_private, is_shared=_is_shared(found))
        if words:
            return [f"{subject}: can be {words}; chmod {remedy} {file}"]
    return []


def _judge_folder(folder: Path, *, is_listed: bool) -> list[str]:
    with suppress(OSError):
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and is_listed:
            return [
                f"folder {folder}: everybody can create files in it, and dockbell includes them; chmod o-w {folder}"
            ]
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return [f"folder {folder}: everybody can replace the files in it; chmod o-w {folder}"]
    return []


def _find_listed(config: Config, path: Path) -> set[Path]:
    """Return the folders in which a new file is included, whether there is one now or not."""
    starts = {find_start(pattern, path.absolute().parent) for pattern in config.include}
    listed = {each for each in starts if each.is_dir()}
    holding = {Path(file).absolute().parent for file in config.origins.included}
    return listed | {each for each in holding if listed & {*each.parents}}


@cache
def _has_own_group(user: int, group: int) -> bool:
    """Return whether a group is the one that a user has for itself; thousands of files have few owners."""
    with suppress(KeyError):  # an owner without a name
        return pwd.getpwuid(user).pw_gid == group
    return False


def _is_shared(found: stat_result) -> bool:
    return not _has_own_group(found.st_uid, found.st_gid)


def _find_secret_files(config: Config) -> Iterator[tuple[str, Path]]:
    for place, secret in find_secrets(config):
        if secret.file is not None:
            yield config.origins.locate(place)[1], Path(secret.file)
    for name, sink in config.sinks.items():
        if (key := getattr(sink, "key_file", None)) is not None:
            yield f"[sinks.{name}] key_file", Path(key)


def _find_store_files(store: Path) -> Iterator[Path]:
    yield store
    beside = (f"{store.name}-", f"{store.name}.")
    with suppress(OSError):
        yield from sorted(each for each in store.parent.iterdir() if each.name.startswith(beside))
