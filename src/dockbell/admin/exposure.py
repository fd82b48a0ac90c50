"""Whether others on the same machine can read or write what is the daemon's alone: its store, its secrets."""

from __future__ import annotations

import pwd
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from os import stat_result
from pathlib import Path
from urllib.parse import urlsplit

from dockbell.config import Config
from dockbell.config.loading import find_secrets
from dockbell.config.place import name_place


def find_exposed(config: Config, path: Path | None = None) -> Sequence[str]:
    """Return what others can read or write that they should not, as one line each with what to do; nothing is changed.

    Looks at the configuration file (``path``), the files that it names for secrets and private keys, the store and
    what stands beside it, and at the folders of both. What is not there, or cannot be looked at, is left out.
    """
    found = [] if path is None else _judge_config(config, path)
    for place, file in _find_secret_files(config):
        found += _judge_file(f"secret {file}, {place}", file, is_private=True)
    for file in () if config.store.path is None else _find_store_files(config.store.path):
        found += _judge_file(f"store {file}", file, is_private=True)
    folders = {each.absolute().parent for each in (config.store.path, path) if each is not None}
    for folder in sorted(folders):
        found += _judge_folder(folder)
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


def _judge_config(config: Config, path: Path) -> list[str]:
    literal = [name_place(place) for place, secret in find_secrets(config) if secret.is_bare]
    literal += ["[store] url"] * (urlsplit(config.store.url).password is not None)
    found = _judge_file(f"config {path}", path, is_private=False)
    if literal and not found and (readable := _judge_file(f"config {path}", path, is_private=True)):
        rest = f"{len(literal) - 1} more, " if len(literal) > 1 else ""
        found = [f"{each}; it holds a secret, {literal[0]}, {rest}which could be in a file" for each in readable]
    return found


def _judge_file(subject: str, file: Path, *, is_private: bool) -> list[str]:
    with suppress(OSError):
        found = file.stat()
        words, remedy = judge_mode(found.st_mode, is_private=is_private, is_shared=_is_shared(found))
        if words:
            return [f"{subject}: can be {words}; chmod {remedy} {file}"]
    return []


def _judge_folder(folder: Path) -> list[str]:
    with suppress(OSError):
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return [f"folder {folder}: everybody can put other files in the place of those in it; chmod o-w {folder}"]
    return []


def _is_shared(found: stat_result) -> bool:
    with suppress(KeyError):  # an owner without a name
        return pwd.getpwuid(found.st_uid).pw_gid != found.st_gid
    return True


def _find_secret_files(config: Config) -> Iterator[tuple[str, Path]]:
    for place, secret in find_secrets(config):
        if secret.file is not None:
            yield name_place(place), Path(secret.file)
    for name, sink in config.sinks.items():
        if (key := getattr(sink, "key_file", None)) is not None:
            yield f"[sinks.{name}] key_file", Path(key)


def _find_store_files(store: Path) -> Iterator[Path]:
    yield store
    beside = (f"{store.name}-", f"{store.name}.")
    with suppress(OSError):
        yield from sorted(each for each in store.parent.iterdir() if each.name.startswith(beside))
