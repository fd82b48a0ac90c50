"""Whatever ``/openapi.json`` allows is answered as it says, and nothing that anybody sends is more than refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest
import schemathesis
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import BaseSchema
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks

from dockbell.ports import CommandKind
from tests.fakes import NOON
from tests.web.sites import Served, serve
from tests.web.stories import bury_letters

TOKEN = "a-token-of-the-operator"
HEADERS: Final = {"Authorization": f"Bearer {TOKEN}"}
KNOWN: Final[dict[str, tuple[str, ...]]] = {
    "source": ("main",),
    "resource": ("shipments",),
    "sink": ("erp", "floor"),
    "key": ("a", "b"),
    "sequence": ("1", "3"),
    "number": ("1",),
    "file": ("index.html", "icon.svg"),
}
"""What is there: nothing would ever be found by chance."""
ENDLESS: Final = ("/live",)
PLAIN: Final[dict[str, dict[str, Any]]] = {
    "/sinks/{sink}/replay": {"feed": "main/shipments", "sequence": 1},
    "/session": {"token": TOKEN},
    "/sinks/{sink}/pause": {"reason": "maintenance"},
    "/sinks/{sink}/dead/retry": {"all": True},
    "/sinks/{sink}/dead/discard": {"all": True},
    "/feeds/{source}/{resource}/deletions": {"decision": "reject"},
    "/feeds/{source}/{resource}/drift": {"decision": "absorb"},
}
"""What is sent where an empty object would not do."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a site in a thread of its own, with something to find at every place."""
    folder = tmp_path_factory.mktemp("asked")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serve(folder, token={"value": TOKEN})) as site,
    ):
        portal.call(_fill, site)
        yield site


async def _fill(site: Served) -> None:
    filled = await site.fill("a", "b", resource="shipments")
    await filled.put("a", n=1)
    await bury_letters(site, "erp", filled.feed, (1, "a"), (2, "b"))
    await site.command_store.make_command(filled.feed, CommandKind.RECONCILE, NOON)


@pytest.fixture(scope="module")
def schema(served: Served) -> BaseSchema:
    """Return the document as it is served."""
    url = f"http://127.0.0.1:{served.site.port}/openapi.json"
    return schemathesis.openapi.from_url(url, headers=HEADERS)


def test_the_document_is_one(schema: BaseSchema) -> None:
    schema.validate()


@st.composite
def cases(draw: st.DrawFn, operation: Any) -> Any:
    """Draw what somebody asks: mostly of what is there, since chance would find nothing of it."""
    case = draw(operation.as_strategy())
    for name in case.path_parameters:
        if name in KNOWN and draw(st.integers(0, 3)):
            case.path_parameters[name] = draw(st.sampled_from(KNOWN[name]))
    case.query.pop("wait", None)  # that would be waited for
    if case.operation.path == "/session" and isinstance(case.body, dict) and "token" in case.body:
        case.body["token"] = draw(st.sampled_from([TOKEN, "wrong"]))  # others would be guesses
    if "/dead/" in case.operation.path and draw(st.booleans()):
        case.body = {"all": True}
    return case


def ask_plainly(operation: Any) -> Any:
    """Return the plainest question: what is there, no parameters. Chance alone might never ask for that."""
    known = {name: values[0] for name, values in KNOWN.items() if f"{{{name}}}" in operation.path}
    if operation.method.upper() != "POST":
        return operation.Case(path_parameters=known)
    return operation.Case(path_parameters=known, body=PLAIN.get(operation.path, {}), media_type="application/json")


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_whatever_is_asked_is_answered_as_the_document_says(schema: BaseSchema, method: str) -> None:
    plainly: dict[str, int] = {}
    for result in schema.exclude(path=list(ENDLESS)).include(method=method).get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()

        @settings(
            derandomize=True,
            database=None,
            max_examples=12,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(cases(operation))
        def ask(case: Any) -> None:
            check(case)

        plainly[operation.label] = check(ask_plainly(operation))
        ask()
    assert len(plainly) >= {"GET": 17, "POST": 8, "DELETE": 1}[method]
    assert {label: status for label, status in plainly.items() if status >= 300} == {}


def check(case: Any) -> int:
    """Ask, and hold the answer against the document; return its status."""
    answer = case.call(headers=HEADERS)
    case.validate_response(answer, excluded_checks=[checks.positive_data_acceptance])
    status: int = answer.status_code
    return status


def test_sessions_are_described_with_what_they_take_and_why_not(served: Served) -> None:
    base_url = f"http://127.0.0.1:{served.site.port}"
    session = httpx.get(f"{base_url}/openapi.json", headers=HEADERS).json()["paths"]["/session"]
    assert session["post"]["requestBody"]["required"] is True
    assert set(session["post"]["responses"]) == {"200", "401", "403", "429", "4XX", "5XX"}
    assert session["delete"]["security"] == [{"token": []}, {"session": []}]
    assert set(session["delete"]["responses"]) == {"204", "401", "4XX", "5XX"}
    problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
    assert session["delete"]["responses"]["401"]["content"] == {"application/problem+json": problem}
    assert httpx.delete(f"{base_url}/session").status_code == 401
    assert httpx.post(f"{base_url}/session", json={"token": "wrong"}).status_code == 401


OPEN: Final = {
    "GET /page/{file}": 200,
    "GET /healthz": 200,
    "GET /readyz": 200,
    "GET /session": 200,
    "POST /session": 400,
}
"""What needs no token, and what it answers where none is sent, nor anything else."""


def test_without_the_token_there_is_only_what_is_meant_for_everybody(served: Served) -> None:
    base_url = f"http://127.0.0.1:{served.site.port}"
    paths = httpx.get(f"{base_url}/openapi.json", headers=HEADERS).json()["paths"]
    answers = {
        f"{method.upper()} {path}": httpx.request(method, base_url + _fill_in(path)).status_code
        for path, methods in paths.items()
        for method in methods
    }
    assert len(answers) > 20
    assert answers == dict.fromkeys(answers, 401) | OPEN


def _fill_in(path: str) -> str:
    for name, values in KNOWN.items():
        path = path.replace(f"{{{name}}}", values[0])
    return path
