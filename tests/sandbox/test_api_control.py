from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.sandbox.test_api import error_of

if TYPE_CHECKING:
    from tests.sandbox.conftest import Open


async def test_its_change_log_can_be_read_in_parts(opened: Open) -> None:
    sandbox, client = await opened()
    sandbox.step(25)
    changes = sandbox.changes()
    read: list[Any] = []
    while page := (await client.get(f"/sandbox/changes?limit=10&after={len(read)}")).json():
        assert page["sequence"] == len(changes)
        if not page["changes"]:
            break
        read += page["changes"]
        assert page["next_after"] == len(read)
    assert [(c["sequence"], c["resource"], c["identity"], c["kind"]) for c in read] == [
        (c.sequence, c.resource, c.identity, c.kind) for c in changes
    ]
    assert [(c["before"], c["after"]) for c in read] == [
        (c.before and json.loads(c.before), c.after and json.loads(c.after)) for c in changes
    ]
    assert [datetime.fromisoformat(c["at"]) for c in read] == [c.at for c in changes]


async def test_changes_no_longer_kept_are_gone(opened: Open) -> None:
    sandbox, client = await opened(keep_changes=5)
    sandbox.step(20)
    response = await client.get("/sandbox/changes")
    assert response.status_code == 410
    assert error_of(response)["code"] == "changes_gone"


async def test_its_records_can_be_read_as_json_lines(opened: Open) -> None:
    sandbox, client = await opened(records=3000)
    sandbox.step(10)
    response = await client.get("/sandbox/records/stock")
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert {line["identity"]: line["record"] for line in lines} == {
        identity: json.loads(body) for identity, body in sandbox.records("stock").items()
    }
    assert response.headers["x-sandbox-sequence"] == str(sandbox.changes()[-1].sequence)
    assert (await client.get("/sandbox/records/socks")).status_code == 404


async def test_steps_can_be_asked_for(opened: Open) -> None:
    sandbox, client = await opened()
    answer = (await client.post("/sandbox/step?n=30")).json()
    assert answer["changes"] == answer["sequence"] == len(sandbox.changes()) >= 30
    assert (await client.post("/sandbox/step?n=0")).status_code == 400


async def test_the_rate_of_the_activity_can_be_set(opened: Open) -> None:
    sandbox, client = await opened(activity=2.0)
    assert (await client.post("/sandbox/activity?rate=0.5")).json() == {"rate": 0.5, "sequence": 0}
    assert sandbox.activity.rate == 0.5
    for wrong in ("", "?rate=-1", "?rate=nan", "?rate=fast", "?rate=1e9"):
        assert (await client.post(f"/sandbox/activity{wrong}")).status_code == 400


async def test_its_own_endpoints_count_in_no_limit(opened: Open) -> None:
    _, client = await opened(requests_per_minute=1)
    for _ in range(3):
        response = await client.get("/sandbox/changes")
        assert (response.status_code, response.headers["x-ratelimit-remaining"]) == (200, "1")
    await client.get("/v1/stock")
    assert (await client.get(f"/sandbox/records/{quote('stock')}")).headers["x-ratelimit-remaining"] == "0"


async def test_options_in_force_can_be_read(opened: Open) -> None:
    _, client = await opened(cursors="offset")
    options = (await client.get("/sandbox/options")).json()
    assert (options["cursors"], options["records"], options["fault_most"]) == ("offset", 300, None)


async def test_options_can_be_set_while_it_runs(opened: Open) -> None:
    sandbox, client = await opened()
    answer = await client.post("/sandbox/options?error_rate=1&etag=weak")
    assert (answer.json()["error_rate"], answer.json()["etag"]) == (1.0, "weak")
    assert sandbox.options.error_rate == 1.0
    assert (await client.get("/v1/stock")).status_code >= 500
    sandbox.set(error_rate=0.0)
    assert (await client.get("/v1/stock")).status_code == 200


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("error_rat=1", "unknown option 'error_rat'; did you mean error_rate?"),
        ("error_rate=2", "error_rate must be between 0 and 1, got 2.0"),
        ("error_rate=often", "error_rate must be a float, got 'often'"),
        ("gzip=perhaps", "gzip must be a bool, got 'perhaps'"),
        ("order=colour", "order must be one of creation, "),
        ("records=5", "records can only be set at the start"),
        ("error_rate=1&seed=5", "seed can only be set at the start"),
    ],
)
async def test_an_option_that_cannot_be_set_is_refused_and_changes_nothing(opened: Open, query: str, told: str) -> None:
    sandbox, client = await opened()
    before = sandbox.options
    response = await client.post(f"/sandbox/options?{query}")
    assert response.status_code == 400
    assert told in error_of(response)["message"]
    assert sandbox.options == before


async def test_many_records_can_be_edited_on_one_tick(opened: Open) -> None:
    sandbox, client = await opened()
    count = len(sandbox.records("stock"))
    assert (await client.post("/sandbox/edit/stock?n=100000")).json() == {"changes": count, "sequence": count}
    stamps = {json.loads(body)["updated_at"] for body in sandbox.records("stock").values()}
    assert stamps == {"2026-11-21T02:30:00.000000Z"}


async def test_one_record_can_be_edited_deleted_and_brought_back(opened: Open) -> None:
    sandbox, client = await opened()
    for path, kind in (
        ("edit/warehouses?id=whs_2", "updated"),
        ("touch/warehouses?id=whs_2", "updated"),
        ("delete/warehouses?id=whs_2", "deleted"),
        ("restore", "restored"),
    ):
        assert (await client.post(f"/sandbox/{path}")).json()["changes"] == 1
        last = sandbox.changes()[-1]
        assert (last.identity, last.kind) == ("whs_2", kind)


async def test_a_deploy_is_asked_for_with_field_and_value(opened: Open) -> None:
    sandbox, client = await opened()
    answer = await client.post("/sandbox/deploy", params={"field": "customs_code", "value": '"x"', "dated": "true"})
    assert answer.json()["changes"] == 300
    record = json.loads(next(iter(sandbox.records("items").values())))
    assert (record["customs_code"], record["updated_at"]) == ("x", "2026-11-21T02:30:00.000000Z")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("edit/socks", 404),
        ("edit/stock?id=stk_0", 404),
        ("edit/stock?n=0", 400),
        ("delete/stock?identity=stk_1", 400),
        ("deploy", 400),
        ("deploy?field=x&dated=perhaps", 400),
        ("deploy?field=x&value=y", 400),
        ("deploy?field=x&value={}", 400),
        ("deploy?field=sku", 400),
        ("restore?n=1", 400),
        ("options?error_rate=", 400),
    ],
)
async def test_what_cannot_be_done_is_refused(opened: Open, path: str, status: int) -> None:
    sandbox, client = await opened()
    response = await client.post(f"/sandbox/{path}")
    assert response.status_code == status
    assert error_of(response)
    assert not sandbox.changes()
