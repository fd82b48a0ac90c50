"""Files in folders that others may write to; the others are a real second user where the tests may act as one."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

import pytest

from dockbell.host.ownership import (
    OPEN_TO_ALL,
    PRIVATE,
    check_own,
    check_owner,
    find_intruder,
    look_into,
    make_own_folder,
    open_own,
    write_draft,
)
from tests.strangers import STRANGER, act, needs_root, share


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Return a folder like /tmp."""
    return share(tmp_path / "shared")


def test_a_file_is_made_for_its_owner_alone_and_opened_again(tmp_path: Path) -> None:
    for text in (b"one", b"two"):
        file = open_own(tmp_path / "a")
        os.pwrite(file, text, 0)
        os.close(file)
    assert (tmp_path / "a").read_bytes() == b"two"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == PRIVATE


def test_no_link_is_followed_whosever_it_is(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "a").symlink_to("precious")
    (tmp_path / "b").symlink_to("nowhere")
    for name in ("a", "b"):
        with pytest.raises(PermissionError, match=f"{name} is a symbolic link, which dockbell does not follow"):
            open_own(tmp_path / name)
        with pytest.raises(PermissionError, match="is a symbolic link"):
            check_own(tmp_path / name)
        with pytest.raises(OSError, match="symbolic links"):
            look_into(tmp_path / name)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b", "precious"]


def test_a_pipe_is_no_file_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(PermissionError, match="a is not a regular file"):
        open_own(tmp_path / "a")
    os.close(look_into(tmp_path / "a"))


def test_another_name_of_a_file_matters_only_where_others_can_have_given_it(tmp_path: Path, shared: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    for folder in (tmp_path, shared):
        os.link(tmp_path / "precious", folder / "a")
    os.close(open_own(tmp_path / "a"))
    with pytest.raises(PermissionError, match="a is a file with more than one name"):
        open_own(shared / "a")


@needs_root
@pytest.mark.parametrize("plant", ["echo x >a; chmod 666 a", "ln -s /etc/passwd a", "mkfifo a; chmod 666 a", "mkdir a"])
def test_what_a_stranger_has_planted_is_never_opened(shared: Path, plant: str) -> None:
    act(shared, plant)
    with pytest.raises(PermissionError, match=r"a (belongs to user 12345|is a symbolic link|is not a regular file)"):
        check_own(shared / "a")
    with pytest.raises(OSError, match=r"belongs to user 12345|is a symbolic link|is not a regular file"):
        open_own(shared / "a")


@needs_root
def test_a_file_of_whoever_owns_the_folder_is_as_good_as_ours(shared: Path) -> None:
    os.chown(shared, STRANGER, STRANGER)
    act(shared, "echo x >a; ln -s a b")
    os.close(open_own(shared / "a"))
    check_owner(shared / "b")


@needs_root
def test_a_link_is_ours_when_it_and_what_it_leads_to_are(tmp_path: Path, shared: Path) -> None:
    (tmp_path / "own").write_text("")
    (shared / "link").symlink_to(tmp_path / "own")
    check_owner(shared / "link")
    check_owner(shared / "nothing")
    act(shared, f"ln -s {tmp_path}/own theirs; echo x >planted")
    (shared / "to-theirs").symlink_to("planted")
    for name in ("theirs", "to-theirs", "planted"):
        with pytest.raises(PermissionError, match="belongs to user 12345: find out who created it"):
            check_owner(shared / name)


def test_a_folder_of_our_own_is_closed_to_others_and_used_again(shared: Path) -> None:
    for _ in range(2):
        make_own_folder(shared / "a")
        assert stat.S_IMODE((shared / "a").stat().st_mode) == 0o700
    (shared / "a").chmod(0o755)
    with pytest.raises(PermissionError, match="a is open to others"):
        make_own_folder(shared / "a")
    (shared / "b").symlink_to("a")
    with pytest.raises(PermissionError, match="b is not a folder"):
        make_own_folder(shared / "b")


@needs_root
def test_a_folder_of_a_stranger_is_not_used(shared: Path) -> None:
    act(shared, "mkdir -m 0700 a")
    with pytest.raises(PermissionError, match="a belongs to user 12345"):
        make_own_folder(shared / "a")


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777, 0o1770])
def test_a_folder_that_is_closed_or_sticky_lets_nobody_replace_what_is_in_it(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    assert find_intruder(tmp_path) == ""


def test_everybody_can_replace_what_is_in_an_open_folder_and_in_those_below(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    tmp_path.chmod(0o777)
    (tmp_path / "link").symlink_to(below)
    told = f"folder {tmp_path}: everybody can replace the files in it; chmod o-w {tmp_path}"
    assert {find_intruder(each) for each in (tmp_path, below, tmp_path / "link")} == {told}


@needs_root
def test_so_can_whoever_owns_it_unless_they_are_trusted(tmp_path: Path) -> None:
    os.chown(tmp_path, STRANGER, STRANGER)
    for mode in (0o755, 0o1755):
        tmp_path.chmod(mode)
        assert find_intruder(tmp_path) == (
            f"folder {tmp_path}: its owner, user 12345, can replace the files in it; use a folder of your own"
        )
        assert find_intruder(tmp_path, STRANGER) == ""


@needs_root
def test_so_can_its_group_where_others_are_in_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    strangers = [each for each in pwd.getpwall() if each.pw_uid and each.pw_gid]
    empty = [
        each.gr_gid for each in grp.getgrall() if not each.gr_mem and each.gr_gid not in {u.pw_gid for u in strangers}
    ]
    os.chown(tmp_path, 0, strangers[0].pw_gid)
    assert "its group can replace the files" in find_intruder(tmp_path)
    for group in (0, empty[-1], 54_321):  # root's, one with nobody in it, one without a name
        os.chown(tmp_path, 0, group)
        assert find_intruder(tmp_path) == ""


@pytest.mark.parametrize(("mode", "mask", "came"), [(OPEN_TO_ALL, 0o027, 0o640), (PRIVATE, 0o000, 0o600)])
def test_a_draft_becomes_a_file_and_follows_no_link(tmp_path: Path, mode: int, mask: int, came: int) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "a").symlink_to("precious")
    before = os.umask(mask)
    try:
        write_draft(tmp_path / "a", "text", mode).replace(tmp_path / "a")
    finally:
        os.umask(before)
    assert (tmp_path / "precious").read_text() == "kept"
    assert (tmp_path / "a").read_text() == "text"
    assert stat.S_IMODE((tmp_path / "a").lstat().st_mode) == came
