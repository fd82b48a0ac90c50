from __future__ import annotations

import stat
from pathlib import Path

import pytest

from dockbell.stores.sqlite.disk_reserve import RESERVED, Reserve


def test_it_takes_room_that_is_really_there(tmp_path: Path) -> None:
    kept = Reserve(tmp_path / "a.db")
    assert kept.take()
    found = kept.path.stat()
    assert kept.path.name == "a.db.reserve"
    assert found.st_size == RESERVED
    assert found.st_blocks * 512 >= RESERVED
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert kept.take()
    kept.give_up()
    assert not kept.path.exists()
    kept.give_up()


def test_where_there_is_no_room_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int, offset: int, size: int) -> None:
        assert (offset, size) == (0, RESERVED)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dockbell.stores.sqlite.disk_reserve.os.posix_fallocate", refuse)
    assert not Reserve(tmp_path / "a.db").take()
    assert list(tmp_path.iterdir()) == []
    assert not Reserve(tmp_path / "nowhere" / "a.db").take()
