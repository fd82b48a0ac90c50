"""Changes the sources that several processes share: checks the newest revision with the change, and adds the next."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import aclosing
from pathlib import Path

import msgspec

from dockbell.admin.sources import Edit, Edited
from dockbell.app import opening
from dockbell.app.revisions import agree
from dockbell.config import Config
from dockbell.config.loading import find_secrets
from dockbell.config.place import KeyPath
from dockbell.config.shared import SOURCES, decode, encode_shared, find_digest_aside
from dockbell.config.values import Table
from dockbell.config.wording import refuse
from dockbell.ports import Configurations, Revision


class Written(msgspec.Struct, frozen=True):
    """What came of an edit: the sources, and the revision that has them; 0 where none was added."""

    edited: Edited
    revision: int = 0


async def load_shared_table(path: Path) -> Table:
    """Return what processes share, as it is written: the newest revision, else what the file of one says.

    Raises:
        ConfigError: The file cannot be used.
        StoreError: The store cannot be asked.
    """
    own = opening.load_place(path)
    if own.store.path is None:
        async with aclosing(await opening.open_configurations(own)) as configurations:
            if (newest := await configurations.find_newest()) is not None:
                return decode(newest.content)
    return opening.load_config(path).written.table


async def edit_sources(path: Path, edit: Edit, *, label: str, looks_up: bool = True, is_trial: bool = False) -> Written:
    """Change the sources of the newest revision, and add the next one; where another was added meanwhile, do it again.

    Args:
        path: The configuration file, which says where the store is.
        edit: Changes them.
        label: Begins each problem whose place is not known.
        looks_up: Whether secrets and files of changed sources must be on this machine.
        is_trial: Add no revision.

    Raises:
        ConfigError: The file, or what would be shared, cannot be used.
        StoreError: The store cannot be asked, or processes share nothing by it.
    """
    own = opening.load_place(path)
    async with aclosing(await opening.open_configurations(own)) as configurations:
        while True:
            newest = await _find_newest(configurations, path)
            shared = decode(newest.content)
            edited = edit(shared)
            if edited.is_idle:
                return Written(edited)
            content = encode_shared(shared | {SOURCES: edited.sources}, says_all=True)
            config = opening.load_content(own, content, label=label, places=edited.places)
            _refuse_bare_secrets(config, edited.given)
            if looks_up:
                opening.look_up(config, edited.touched)
            if is_trial:
                return Written(edited)
            added = await configurations.replace(newest.number, find_digest_aside(content), content)
            if added is not None:
                return Written(edited, added.number)


async def _find_newest(configurations: Configurations, path: Path) -> Revision:
    """Return the newest revision, which the file of this process makes where there is none yet."""
    newest = await configurations.find_newest()
    return newest or (await agree(configurations, opening.load_config(path))).revision


def _refuse_bare_secrets(config: Config, given: Mapping[str, Collection[str]]) -> None:
    """Refuse secrets that an edit would write into the database, where others may read them."""

    def is_given(place: KeyPath) -> bool:
        match place:
            case ["sources", str(name), key, *_]:
                return key in given.get(name, ())
        return False

    found = find_secrets(config.only(given.keys()))
    places = [place for place, secret in found if secret.is_bare and is_given(place)]
    if places:
        words = "must not be given as plain text, since the database would store it"
        remedy = "use {key}.file=PATH or {key}.env=NAME"
        raise refuse(
            [f"{': '.join(config.origins.locate(each))}: {words}; {remedy.format(key=each[2])}" for each in places]
        )
