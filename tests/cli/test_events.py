from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from tests.cli.filled import Filled
from tests.cli.programs import run, started
from tests.node.packages import run_node
from tests.stores.standings import ATTEMPTS, note_attempts, read
from tests.strangers import act, needs_root, share

Configure = Callable[..., Path]

EVERYTHING = """
[sinks.floor]
type = "mqtt"
url = "mqtts://broker.example.com"
resources = ["shipments", "stock", "notices"]
topic = "all/{resource}/{key}/{change}"
state_topic = "state/{source}/{resource}/{key}"

[sinks.erp]
type = "webhook"
url = "https://erp.example.com/hooks?token=x"
secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
redact = ["/ship_to/name"]
payload = "patch"
where = "after.status == 'shipped'"

[sinks.out]
type = "stdout"
changes = ["created", "gap"]

[[sources.main.resources.stock.events]]
name = "low"
when = "after.available < 10"

[web]
"""


def test_what_a_real_run_publishes_is_valid_against_the_catalogue(
    sandbox: str, configure: Configure, tmp_path: Path
) -> None:
    folder = configure(sandbox, '[sinks.out]\ntype = "stdout"\n')
    with started(folder, "run") as daemon:
        daemon.until(r'"dockbell\.shipment\.updated"(?s:.*)"dockbell\.stock\.updated"')
        recorded = run("events", "--json", "--last", "500", cwd=folder)
        described = run("catalogue", cwd=folder)  # while the daemon holds the store
        schemas = run("catalogue", "--format", "schemas", "--output", str(tmp_path / "schemas"), cwd=folder)
    assert (described.returncode, described.stderr, schemas.returncode, recorded.returncode) == (0, "", 0, 0)
    document = json.loads(described.stdout)
    assert document["components"]["schemas"]["shipment.record"]["properties"]["status"] == {"type": "string"}
    bodies = [json.loads(line) for line in recorded.stdout.splitlines()]
    assert {body["type"] for body in bodies} >= {"dockbell.shipment.updated", "dockbell.stock.updated"}
    for body in bodies:
        message = document["components"]["messages"][body["type"].removeprefix("dockbell.")]
        Draft7Validator({**message["payload"], "components": document["components"]}).validate(body)
    files = {path.name for path in (tmp_path / "schemas").iterdir()}
    assert files == {"index.json", *(f"{name}.schema.json" for name in document["components"]["schemas"])}
    index = json.loads((tmp_path / "schemas/index.json").read_text(encoding="utf-8"))
    assert index["types"]["dockbell.shipment.updated"] == "shipment.updated.schema.json"
    assert index["schemas"].keys() == files - {"index.json"}
    assert set(index["types"].values()) < files


def test_without_a_store_there_is_a_catalogue_all_the_same(configure: Configure) -> None:
    folder = configure("http://127.0.0.1:9")
    done = run("catalogue", "--output", "made/here", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.endswith("the record schemas stay open\n")
    assert json.loads((folder / "made/here/asyncapi.json").read_text(encoding="utf-8"))["asyncapi"] == "3.0.0"
    assert not (folder / "dockbell.db").exists()


@pytest.mark.parametrize("form", ["asyncapi", "schemas"])
def test_it_prints_json(configure: Configure, form: str) -> None:
    done = run("catalogue", "--format", form, cwd=configure("http://127.0.0.1:9"))
    found = json.loads(done.stdout)
    if form == "schemas":
        Draft7Validator.check_schema(found)
        assert found["definitions"]["shipment.created"]["properties"]["data"] == {
            "$ref": "#/definitions/shipment.created.data"
        }
    else:
        assert list(found["channels"]) == ["out"]


def test_the_parser_of_asyncapi_finds_nothing_wrong(configure: Configure) -> None:
    folder = configure("http://127.0.0.1:9", EVERYTHING)
    assert run("catalogue", "--output", ".", cwd=folder).returncode == 0
    parsed = run_node("parse_asyncapi.mjs", str(folder / "asyncapi.json"))
    *problems, told = parsed.stdout.splitlines()
    assert (parsed.returncode, parsed.stderr) == (0, "")
    assert [problem for problem in problems if "asyncapi-latest-version" not in problem] == []
    assert told == "AsyncAPI 3.0.0: 3 servers, 13 channels, 13 operations, 44 messages"


@needs_root
def test_links_that_another_user_has_planted_are_replaced_and_not_followed(
    configure: Configure, tmp_path: Path
) -> None:
    folder, shared, precious = (
        configure("http://127.0.0.1:9", EVERYTHING),
        share(tmp_path / "shared"),
        tmp_path / "kept",
    )
    precious.write_text("kept")
    act(shared, f"ln -s {precious} asyncapi.json")
    assert run("catalogue", "--output", str(shared), cwd=folder).returncode == 0
    assert precious.read_text() == "kept"
    assert json.loads((shared / "asyncapi.json").read_text())["asyncapi"] == "3.0.0"


def test_a_folder_that_cannot_be_made_is_told(configure: Configure) -> None:
    told = run("catalogue", "--output", "/dev/null/here", cwd=configure("http://127.0.0.1:9", EVERYTHING))
    assert told.returncode == 2
    assert told.stderr.endswith("error: --output /dev/null/here: cannot be written, not a directory\n")


def test_of_a_url_that_is_a_secret_nothing_is_told(configure: Configure) -> None:
    text = EVERYTHING.replace('"https://erp.example.com/hooks?token=x"', '{ env = "ERP_URL" }')
    told = run("catalogue", cwd=configure("http://127.0.0.1:9", text), env={"ERP_URL": "https://erp.example.com/hush"})
    assert told.returncode == 0
    assert "erp.example.com" not in told.stdout
    document = json.loads(told.stdout)
    assert "servers" not in document["channels"]["erp"]
    assert set(document["servers"]) == {"floor", "Web"}


def test_one_event_is_printed_with_its_deliveries_and_the_attempts(filled: Filled) -> None:
    note_attempts(filled.store, 4)
    ((event_id, body),) = read(filled.store, "SELECT id, body FROM events WHERE sequence = 4")
    for name in (str(event_id), "main/shipments#4", "shipments#4", "main/shipments #4"):
        printed, _, table = filled.run("events", name).partition("\n\n")
        assert json.loads(printed) == json.loads(str(body, "utf-8"))  # type: ignore[call-overload]
        lines = table.splitlines()
        assert lines[0] == "main/shipments #4, recorded 2026-11-21 12:00:00Z"
        assert [line.split() for line in lines[1:4]] == [
            ["sink", "delivery"],
            ["erp", "delivered"],
            ["floor", "not", "begun"],
        ]
        assert tuple(lines[-3:]) == ATTEMPTS
    told = filled.ask("events", "shipments#4")
    assert told["event"] == json.loads(str(body, "utf-8"))  # type: ignore[call-overload]
    assert [each["sink"] for each in told["deliveries"]] == ["erp", "floor"]
    assert told["deliveries"][0]["attempt_log"][0] == {
        "sequence": 4,
        "number": 1,
        "at": "2026-11-21T12:00:00.000Z",
        "seconds": 0.034,
        "verdict": "failed",
        "error": "HTTP 503",
        "status": 503,
        "answer": "busy",
        "next_at": "2026-11-21T12:00:05.000Z",
        "replay": False,
    }


def test_an_event_that_is_not_there_or_not_named_is_said_so(filled: Filled) -> None:
    for name in ("evt_0", "shipments#99"):
        missing = f'event {name}: no longer kept, or never recorded; "dockbell events" lists the latest events'
        assert filled.misuse("events", name, code=1) == missing
    wrong = "Error: EVENT: must be an id, or FEED#SEQUENCE as in main/shipments#42, got shipments#4-5"
    assert filled.misuse("events", "shipments#4-5") == wrong
    assert (
        filled.misuse("events", "evt_0", "--follow")
        == "Error: EVENT selects one event; remove the options that select events"
    )


def test_why_lists_the_attempts_to_deliver_the_events_of_a_record(filled: Filled) -> None:
    note_attempts(filled.store, 4)
    assert tuple(filled.run("why", "shipments", "a").splitlines()[-3:]) == ATTEMPTS
