"""``docs/reference/errors.md``: exit codes, the typed errors with who must act, the problems of the web API."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from http import HTTPStatus
from pathlib import Path
from types import ModuleType
from typing import Final

import dockbell
from dockbell import errors
from dockbell.cli import group
from dockbell.subscriber import errors as subscriber_errors
from tests.reference.markdown import code, escape, page, table

WEB: Final = Path(dockbell.__file__).parent / "web"

_INTRODUCTION: Final = """\
What dockbell says when something is wrong reads *subject: fact, got value; remedy*, and never holds a secret. The
type of an error says who must act."""
_ERRORS: Final = """\
What the log and the commands tell. `ConfigError` ends a command with 2, the others with 1. The daemon goes on and
tries again; `ConfigError` and those about the store keep it from starting."""
_PROBLEMS: Final = """\
Whatever cannot be answered is a problem in words, `application/problem+json`
([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)): `type` is `urn:dockbell:problem:KIND`, `title` the status in
words, `status` its number, `detail` what is wrong and what to do."""

MEANINGS: Final = {
    "bad-request": "A parameter, a header, a body or the target is not as described; `detail` says which.",
    "body": "A body came where none is taken, or it is too large.",
    "csrf": "An action of a browser did not come from dockbell's own page.",
    "fault": "An error of dockbell's own; its log has more.",
    "head": "The head of the request is too large.",
    "method": "The place does not take this method; `Allow` says which it takes.",
    "origin": "An action of a browser did not come from dockbell's own page.",
    "position-gone": "The pull feed cannot go on from this position: read the state, which tells one to go on from.",
    "record-gone": "The record was deleted; `revision` tells with which one.",
    "store": "The store could not be used; `detail` says why, and `Retry-After` when to ask again.",
    "token": "No token, a wrong one, or none is configured that would allow this.",
    "too-many-connections": "There are so many connections, of all or of one address, that probes alone are answered.",
    "too-much-waits": "Clients have still to read too much that was answered; `Retry-After` says when to ask again.",
    "too-many-tokens": "So many wrong tokens were shown that none is looked at; `Retry-After` says for how long.",
    "too-many-readers": "As many readers wait already as may; `Retry-After` says when to ask again.",
    "unknown-event": "There is no such event, or it is no longer kept.",
    "unknown-file": "The status page has no such file.",
    "unknown-feed": "No such feed is configured.",
    "unknown-host": "The name in `Host` is none of dockbell's: add it to `hosts` of `[web]`.",
    "unknown-place": "There is nothing at this path.",
    "unknown-record": "Nothing was ever stored of this record.",
    "unknown-sink": "No such sink is known.",
    "unknown-wish": "There is no such wish, or its outcome is no longer kept.",
}
"""What each kind of problem means to who asked; a kind without words fails the test of the reference."""

_ACTORS: Final = re.compile(r"([A-Z][^:.]*):\s+(:class:`.*?)\.(?:\s|$)", re.DOTALL)


def write() -> str:
    """Return the page."""
    return page(
        "Errors",
        _INTRODUCTION,
        "## Exit codes",
        table(
            ("code", "meaning"),
            [
                ("`0`", "fine"),
                (
                    code(group.PROBLEM),
                    "found a problem: what was asked for is not there, or does not work, or is not well",
                ),
                (code(group.WRONG), "wrong usage or configuration"),
                (code(group._INTERRUPTED), "interrupted by Ctrl-C"),
            ],
        ),
        "## Errors of dockbell",
        _ERRORS,
        _describe(errors),
        "## Errors of `dockbell.subscriber`",
        "For programs that receive events: [subscribe](../how-to/subscribe.md#in-python-dockbellsubscriber).",
        _describe(subscriber_errors),
        "## Problems of the web API",
        _PROBLEMS,
        table(
            ("kind", "status", "meaning"),
            [
                (
                    code(kind),
                    ", ".join(f"{each} {HTTPStatus(each).phrase}" for each in sorted(statuses)),
                    _find_meaning(kind),
                )
                for kind, statuses in sorted(find_problems().items())
            ],
        ),
    )


def _describe(module: ModuleType) -> str:
    actors = _find_actors(module)
    rows = [
        (code(name), actors.get(name, ""), escape((inspect.getdoc(found) or "").partition("\n")[0]))
        for name, found in vars(module).items()
        if inspect.isclass(found) and found.__module__ == module.__name__
    ]
    return table(("error", "who acts", "meaning"), rows)


def _find_actors(module: ModuleType) -> dict[str, str]:
    """Return who must act on which error, as the head of the module says."""
    actors = {}
    for match in _ACTORS.finditer(module.__doc__ or ""):
        for name in re.findall(r":class:`(\w+)`", match[2]):
            actors[name] = " ".join(match[1].split()).lower()
    return actors


def _find_meaning(kind: str) -> str:
    assert kind in MEANINGS, f"problem {kind}: has no meaning here; add one to MEANINGS"
    return MEANINGS[kind]


def find_problems() -> dict[str, set[int]]:
    """Return the kinds of problems that the source of the web server raises, each with its statuses."""
    kinds: dict[str, set[int]] = defaultdict(set)
    for path in sorted(WEB.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Problem":
                status, kind = node.args[:2]
                if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
                    known = {HTTPStatus[status.attr].value} if isinstance(status, ast.Attribute) else {404, 405}
                    kinds[kind.value] |= known
    return kinds
