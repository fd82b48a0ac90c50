"""Writes files in folders that other users may write to, so that no other user can redirect them.

Who may write to a folder can put a link there, or a file of their own, under the name of one that is about to be
written: then what is written goes elsewhere, or is theirs to read and to change. So a file is made, or is ours already,
or is refused. The sticky bit of a folder keeps others from moving what is ours away afterwards.

Ours is what belongs to the user that we run as, to root, or to the owner of the folder, who can do with it what they
like anyway.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

OPEN_TO_ALL: Final = 0o666
"""The mode of a file that holds nothing secret, before the process's mask."""
PRIVATE: Final = 0o600

_PRIVATE_FOLDER: Final = 0o700
_OF_OTHERS: Final = 0o077
_ROOT: Final = 0
# Without waiting: another user may have put a pipe there.
_CAREFULLY: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def open_own(path: Path) -> int:
    """Open a file to read and to write, making it, for its owner alone, where there is none; return its descriptor.

    PermissionError says why it is refused: it is a link, no file, or not ours.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | _CAREFULLY, PRIVATE)
    except OSError:
        check_own(path)  # which says more of a link than the system does
        raise
    try:
        _judge(path, os.fstat(file))
    except BaseException:
        os.close(file)
        raise
    return file


def make_own_folder(path: Path) -> None:
    """Make a folder that no other user can enter; one of ours that exists already is kept.

    PermissionError says what else is in its place.
    """
    try:
        path.mkdir(_PRIVATE_FOLDER)
    except FileExistsError:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise _refusal(path, "is not a folder") from None
        if found.st_uid != os.geteuid():
            raise _refusal(path, f"belongs to {_name_user(found.st_uid)}") from None
        if found.st_mode & _OF_OTHERS:
            raise _refusal(path, "is open to others") from None


def look_into(path: Path) -> int:
    """Open a file to read it, without following a link or waiting for a pipe; return its descriptor."""
    return os.open(path, os.O_RDONLY | _CAREFULLY)


def check_own(path: Path) -> None:
    """Raise PermissionError where what stands at a path is a link, no file, or not ours; that nothing does is well."""
    with suppress(FileNotFoundError):
        _judge(path, path.lstat())


def check_owner(path: Path) -> None:
    """Raise PermissionError where a file is not ours, or a link that leads to it; that there is none is well."""
    for place in dict.fromkeys((path, Path(os.path.realpath(path)))):
        with suppress(FileNotFoundError):
            _judge_owner(place, place.lstat(), place.parent.stat())


def find_intruder(folder: Path, *trusted: int) -> str:
    """Return which other users could replace files in a folder, and what to do; empty where none could.

    A user who can replace a folder that it stands in could, too. Members of a group are others, unless it has none.
    The ``trusted`` users may, besides root and the one that we run as.
    """
    known = {_ROOT, os.geteuid(), *trusted}
    place = Path(os.path.realpath(folder))
    for each in (place, *place.parents):
        found = each.stat()
        is_sticky = found.st_uid in known and found.st_mode & stat.S_ISVTX
        who, remedy = _find_writer(found, known)
        if who and not is_sticky:
            remedy = f"{remedy} {each}" if remedy else "use a folder of your own"
            return f"folder {each}: {who} can replace the files in it; {remedy}"
    return ""


def write_draft(path: Path, text: str, mode: int) -> Path:
    """Write a new file beside another, which it is to become by a rename; return where it is.

    The process's mask is taken from the mode :data:`OPEN_TO_ALL`, and from no other.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        if mode == OPEN_TO_ALL:
            os.umask(mask := os.umask(0o077))
            mode &= ~mask
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    return Path(name)


def _judge(path: Path, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise _refusal(path, "is a symbolic link, which dockbell does not follow")
    if not stat.S_ISREG(found.st_mode):
        raise _refusal(path, "is not a regular file")
    folder = path.parent.stat()
    _judge_owner(path, found, folder)
    if found.st_nlink > 1 and _find_writer(folder, {_ROOT, os.geteuid()})[0]:
        raise _refusal(path, "is a file with more than one name (hard link)")


def _judge_owner(path: Path, found: os.stat_result, folder: os.stat_result) -> None:
    if found.st_uid not in {_ROOT, os.geteuid(), folder.st_uid}:
        raise _refusal(path, f"belongs to {_name_user(found.st_uid)}")


def _refusal(path: Path, fact: str) -> PermissionError:
    return PermissionError(errno.EPERM, f"{path.name} {fact}: find out who created it, and remove it")


def _find_writer(folder: os.stat_result, known: Collection[int]) -> tuple[str, str]:
    """Return which other users may make files in a folder, and the command that forbids it; empty where none may."""
    if folder.st_uid not in known:
        return f"its owner, {_name_user(folder.st_uid)},", ""
    if folder.st_mode & stat.S_IWOTH:
        return "everybody", "chmod o-w"
    if folder.st_mode & stat.S_IWGRP and _has_others(folder.st_gid, known):
        return "its group", "chmod g-w"
    return "", ""


def _has_others(group: int, known: Collection[int]) -> bool:
    """Return whether a group has other members than these users; one without a name is taken to have none."""
    try:
        members = {*grp.getgrgid(group).gr_mem}
    except KeyError:
        return False
    users = pwd.getpwall()
    members -= {each.pw_name for each in users if each.pw_uid in known}
    return bool(members) or any(each.pw_gid == group and each.pw_uid not in known for each in users)


def _name_user(user: int) -> str:
    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"
