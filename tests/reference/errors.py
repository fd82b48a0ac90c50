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
Error messages have the form *subject: fact, got value; remedy* and never contain a secret. The type of an error says
who must act."""
_ERRORS: Final = """\
These errors appear in the log and in the output of commands. `ConfigError` ends a command with exit code 2, any other
error with 1. The daemon keeps running and retries; `ConfigError` and the store errors prevent it from starting."""
_PROBLEMS: Final = """\
If the server cannot answer a request, it returns a problem, `application/problem+json`
([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)): `type` is `urn:dockbell:problem:KIND`, `status` the HTTP status
code, `title` its reason phrase, and `detail` says what is wrong and how to fix it."""

MEANINGS: Final = {
    "bad-request": "A parameter, a header, the body or the request target is invalid; `detail` says which.",
    "body": "The body is not allowed here, too large, incomplete after 10 s, or not `application/json`.",
    "csrf": "A browser session sent an action with a missing or wrong `X-Dockbell-CSRF` header.",
    "head": "The request line and headers are too large.",
    "internal-error": "Internal error in dockbell; its log has more.",
    "method": "The path does not support this method; `Allow` lists the methods that it supports.",
    "not-found": "The path does not exist.",
    "origin": "A page of another origin sent a request other than `GET` and `HEAD`.",
    "overloaded": "Responses that clients have not read take too much memory; `Retry-After` says when to retry.",
    "position-gone": "The pull feed cannot resume from this position; read the state, which has a new position.",
    "record-gone": "The record was deleted; `revision` is the revision of the deletion.",
    "store": "The store could not be used; `detail` says why, and `Retry-After` when to retry.",
    "token": "The token is missing or wrong (401), not configured (403), or dockbell cannot read it (503).",
    "too-many-connections": "The server or your network has too many connections; `Retry-After` says when to retry.",
    "too-many-tokens": "Too many wrong tokens were sent; dockbell checks none until `Retry-After` has passed.",
    "too-many-readers": "The maximum number of readers is waiting; `Retry-After` says when to retry.",
    "unknown-command": "The command does not exist, or its outcome is no longer kept.",
    "unknown-event": "The event does not exist, or is no longer kept.",
    "unknown-file": "The status page has no such file.",
    "unknown-feed": "The feed is not configured, or was never read.",
    "unknown-host": "The name in `Host` is not one of dockbell's; add it to `hosts` in `[web]`.",
    "unknown-record": "dockbell never stored this record.",
    "unknown-sink": "The sink does not exist.",
}
"""What each kind of problem means; a kind without a meaning fails the test of the reference."""

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
                ("`0`", "success"),
                (code(group.PROBLEM), "problem: something does not exist, does not work, or is not healthy"),
                (code(group.WRONG), "invalid usage or configuration"),
                (code(group._INTERRUPTED), "interrupted by Ctrl-C"),
            ],
        ),
        "## Errors of dockbell",
        _ERRORS,
        _describe(errors),
        "## Errors of `dockbell.subscriber`",
        "For programs that receive events: see [Subscribe](../how-to/subscribe.md#in-python-dockbellsubscriber).",
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
                    known = {HTTPStatus[status.attr].value} if isinstance(status, ast.Attribute) else {404}
                    kinds[kind.value] |= known
    return kinds
