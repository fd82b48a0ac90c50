"""A store in a folder that others may write to: nothing that they plant there is followed, filled or believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dockbell.errors import StoreError
from dockbell.stores.sqlite import SqliteStore
from dockbell.stores.sqlite.disk_reserve import Reserve
from dockbell.stores.sqlite.probe import find_holder
from tests.fakes import NOON
from tests.strangers import act, needs_root, share

pytestmark = needs_root


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Return a folder like /tmp, beside a file that must stay as it is."""
    (tmp_path / "precious").write_bytes(b"kept" * 100)
    (tmp_path / "precious").chmod(0o666)  # or the kernel lets nobody link it
    return share(tmp_path / "shared")


async def open_once(path: Path) -> None:
    store = await SqliteStore.open(path, now=lambda: NOON)
    await store.aclose()


def kept(shared: Path) -> bool:
    return (shared.parent / "precious").read_bytes() == b"kept" * 100


def remove(path: Path) -> None:
    path.unlink()


BESIDE = (".lock", ".life", ".reserve", "-wal", "-shm", "-journal")


@pytest.mark.parametrize("suffix", BESIDE)
@pytest.mark.parametrize(
    "plant", ["ln -s {precious} {name}", "ln {precious} {name}", "echo x >{name}; chmod 666 {name}"]
)
async def test_what_a_stranger_puts_beside_a_store_keeps_it_closed(shared: Path, suffix: str, plant: str) -> None:
    act(shared, plant.format(precious=shared.parent / "precious", name=f"dockbell.db{suffix}"))
    kinds = "is a symbolic link|is a file with more than one name|belongs to user 12345"
    reason = rf"dockbell\.db{suffix} ({kinds}).*: find out who"
    with pytest.raises(StoreError, match=reason):
        await open_once(shared / "dockbell.db")
    assert kept(shared)
    remove(shared / f"dockbell.db{suffix}")
    await open_once(shared / "dockbell.db")


async def test_a_store_that_a_stranger_has_made_is_not_filled_with_records(shared: Path) -> None:
    act(shared, "touch dockbell.db; chmod 666 dockbell.db")
    with pytest.raises(StoreError, match=r"store .*: dockbell\.db belongs to user 12345: find out who created it"):
        await open_once(shared / "dockbell.db")


async def test_nor_is_the_file_that_a_link_of_theirs_leads_to(shared: Path) -> None:
    act(shared, f"ln -s {shared.parent}/precious dockbell.db")
    with pytest.raises(StoreError, match="belongs to user 12345"):
        await open_once(shared / "dockbell.db")
    assert kept(shared)


async def test_a_link_of_our_own_leads_to_the_store(shared: Path, tmp_path: Path) -> None:
    (shared / "dockbell.db").symlink_to(tmp_path / "elsewhere.db")
    await open_once(shared / "dockbell.db")
    assert (tmp_path / "elsewhere.db").stat().st_size > 0


def test_the_reserve_is_not_taken_from_a_file_of_others(shared: Path) -> None:
    act(shared, f"ln -s {shared.parent}/precious dockbell.db.reserve")
    assert not Reserve(shared / "dockbell.db").take()
    assert kept(shared)


def test_a_pipe_in_the_place_of_the_lock_keeps_nobody_waiting(shared: Path) -> None:
    act(shared, "mkfifo -m 666 dockbell.db.lock")
    assert find_holder(shared / "dockbell.db") == ""
    remove(shared / "dockbell.db.lock")
    act(shared, f"ln -s {shared.parent}/precious dockbell.db.lock")
    with pytest.raises(StoreError, match="store "):
        find_holder(shared / "dockbell.db")
