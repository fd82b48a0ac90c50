from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest
from jsonschema import Draft7Validator
from msgspec.structs import replace

from dockbell.config import Config, SinkSettings
from dockbell.core.model import Feed, Statement
from dockbell.core.publishing.catalogue.document import Catalogue
from dockbell.core.publishing.rendering import Rendering
from dockbell.sinks import load_sink_type
from tests.core.publishing.test_event import CHANGES, EVENTS, SCHEMA, STATEMENTS, composer, write

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
RECORDS: Final = {
    Feed("main", feed): [
        raw
        for change in CHANGES.values()
        if change.feed.resource == feed
        for raw in (change.before, change.after)
        if raw is not None
    ]
    for feed in ("shipments", "stock", "items")
}


def find_sink_type(kind: str) -> type[SinkSettings]:
    return SinkSettings if kind == "carrier-pigeon" else load_sink_type(kind).Settings


def configure(sinks: dict[str, dict[str, Any]], **other: Any) -> Config:
    source = {"base_url": "http://127.0.0.1:9", "api_key": "key"}
    given = {"name": "acme", "sources": {"main": source, "north": source}, "sinks": sinks} | other
    return Config.model_validate(given, context={"sink_types": find_sink_type})


def write_catalogue(sinks: dict[str, dict[str, Any]], **other: Any) -> Any:
    catalogue = Catalogue(configure(sinks, **other), contract=SCHEMA, records=RECORDS, version="1.2.3")
    return json.loads(json.dumps(catalogue.write_document()))


def messages_of(document: Any, channel: str) -> list[str]:
    return list(document["channels"][channel]["messages"])


def validate(document: Any, name: str, payload: Any) -> None:
    schema = {**document["components"]["messages"][name]["payload"], "components": document["components"]}
    Draft7Validator(schema).validate(payload)


MQTT: Final = {"type": "mqtt", "url": "mqtts://broker.example.com:8883"}
WEBHOOK: Final = {"type": "webhook", "url": "https://erp.example.com/hooks/a?token=geheim", "secret": SECRET}
STOCK: Final = {"stock": {"events": [{"name": "low", "when": "after.available < 10"}]}}


# Schemas -------------------------------------------------------------------------------------------------------------


FORMS: Final = [
    {},
    {"payload": "patch"},
    {"payload": "thin"},
    {"redact": ["/status", "/lines/*/sku"]},
    {"fields": ["/status"], "payload": "patch", "max_event_size": 1024},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("name", [name for name in EVENTS if name not in ("named", "test")])
def test_each_event_is_valid_against_its_message_in_the_form_of_the_sink(name: str, form: dict[str, Any]) -> None:
    document = write_catalogue({"erp": WEBHOOK | form})
    rendering = Rendering(SinkSettings.model_validate({"type": "stdout"} | form), "http://127.0.0.1:8470")
    event = EVENTS[name]
    kind = event.type.removeprefix("dockbell.")
    prefix = "erp." if (form.keys() & {"redact", "fields"}) and event.key else ""
    assert f"{prefix}{kind}" in messages_of(document, "erp")
    validate(document, f"{prefix}{kind}", json.loads(rendering.event(event).body))


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("updated", "type", "dockbell.shipment.created"),
        ("updated", "extra", 1),
        ("updated", "sequence", 7),
        ("updated", "data.change", "created"),
        ("updated", "data.after", {"id": 7}),
        ("updated", "data.after", None),
        ("updated", "data.changed_between", ["2026-11-21T02:30:00.123Z", None]),
        ("updated", "data.patch", [{"op": "add", "path": "/a"}]),
        ("created", "data.patch", []),
        ("deleted_left", "data.reason", "vanished"),
        ("held_drift", "data.paths", []),
        ("gap", "subject", "shp_123"),
    ],
)
def test_what_is_no_such_event_is_not_valid(name: str, path: str, value: object) -> None:
    document = write_catalogue({"erp": WEBHOOK})
    body = json.loads(EVENTS[name].body)
    *parents, last = path.split(".")
    (body["data"] if parents else body)[last] = value
    with pytest.raises(Exception, match="Failed validating"):
        validate(document, EVENTS[name].type.removeprefix("dockbell."), body)


def test_an_event_of_the_operator_has_a_message_that_fits_it() -> None:
    shipments = {"shipments": {"events": [{"name": "left", "when": "after.status == 'shipped'"}]}}
    document = write_catalogue({"erp": WEBHOOK}, resources=shipments)
    validate(document, "shipment.left", json.loads(EVENTS["named"].body))
    for change in CHANGES.values():
        if change.feed.resource == "shipments":
            _, named = composer(left="true")(change, 42)
            validate(document, "shipment.left", json.loads(named.body))


def test_records_of_which_none_was_seen_may_hold_anything() -> None:
    document = write_catalogue({"erp": WEBHOOK})
    change = replace(CHANGES["created"], feed=Feed("main", "warehouses"))
    body = json.loads(write(change).body)
    validate(document, "warehouse.created", body)
    assert document["components"]["schemas"]["warehouse.record"]["description"].endswith("learned from 0 readings.")


def test_what_a_sink_does_not_see_is_not_in_the_schema_of_its_records() -> None:
    document = write_catalogue({"erp": WEBHOOK | {"redact": ["/tracking_number"]}, "out": {"type": "stdout"}})
    schemas = document["components"]["schemas"]
    assert "tracking_number" in schemas["shipment.record"]["properties"]
    assert "tracking_number" not in schemas["erp.shipment.record"]["properties"]
    assert all(name.startswith(("erp.", "feed.")) for name in messages_of(document, "erp"))


def test_sinks_that_see_records_in_the_same_way_share_messages() -> None:
    document = write_catalogue(
        {"a": WEBHOOK | {"redact": ["/status"]}, "b": WEBHOOK | {"redact": ["/status"], "payload": "thin"}}
    )
    assert messages_of(document, "a") == messages_of(document, "b")


def test_statements_have_the_same_schema_in_the_catalogue_for_every_kind() -> None:
    document = write_catalogue({"erp": WEBHOOK})
    for name, statement in STATEMENTS.items():
        assert isinstance(statement, Statement)
        validate(document, f"feed.{statement.kind}", json.loads(EVENTS[name].body))


def walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(each)


def test_every_object_has_a_title_every_reference_leads_somewhere_and_nothing_is_left_over() -> None:
    document = write_catalogue({"erp": WEBHOOK | {"redact": ["/a"]}, "floor": MQTT}, web={}, resources=STOCK)
    names = [node["title"] for node in walk(document["components"]["schemas"]) if node.get("type") == "object"]
    assert len(names) > 10
    referred = {node["$ref"] for node in walk(document) if "$ref" in node}
    for reference in referred:
        found = document
        for token in reference.removeprefix("#/").split("/"):
            found = found[token]
    for part in ("schemas", "messages"):
        known = {f"#/components/{part}/{name}" for name in document["components"][part]}
        assert known - referred == set()


def test_schemas_stand_alone_by_their_own_references() -> None:
    catalogue = Catalogue(configure({"erp": WEBHOOK}), contract=SCHEMA, records=RECORDS, version="1")
    schemas = catalogue.write_schemas(lambda name: f"{name}.json")
    assert {node["$ref"] for node in walk(schemas) if "$ref" in node} <= {f"{name}.json" for name in schemas}
    together = catalogue.write_schemas(lambda name: f"#/definitions/{name}")
    schema = {"$ref": "#/definitions/shipment.updated", "definitions": together}
    Draft7Validator(schema).validate(json.loads(EVENTS["updated"].body))


# Channels ------------------------------------------------------------------------------------------------------------


def test_a_topic_has_a_channel_for_each_resource_with_its_parameters_and_the_binding() -> None:
    document = write_catalogue({"floor": MQTT | {"expiry": "1h"}}, resources={"stock": STOCK["stock"], "items": {}})
    channel = document["channels"]["floor.stock"]
    assert channel["address"] == "dockbell/event/{source}/stock/{key}/{change}"
    assert list(channel["parameters"]) == ["source", "key", "change"]
    assert channel["parameters"]["source"]["enum"] == ["main", "north"]
    assert channel["parameters"]["change"]["enum"] == ["created", "deleted", "low", "restored", "snapshot", "updated"]
    assert messages_of(document, "floor.items") == [
        f"item.{change}" for change in ("created", "updated", "deleted", "restored", "snapshot")
    ]
    assert document["operations"]["send.floor.stock"] == {
        "action": "send",
        "channel": {"$ref": "#/channels/floor.stock"},
        "summary": "dockbell sends to floor.stock.",
        "bindings": {"mqtt": {"qos": 1, "retain": False, "messageExpiryInterval": 3600, "bindingVersion": "0.2.0"}},
    }
    assert document["operations"]["send.floor.stock.state"]["bindings"]["mqtt"]["retain"] is True
    assert messages_of(document, "floor.stock.state") == ["stock.state"]
    assert document["servers"]["floor"] == {
        "host": "broker.example.com:8883",
        "protocol": "secure-mqtt",
        "protocolVersion": "5.0",
    }
    validate(document, "status", {"online": True, "timestamp": "2026-11-21T02:30:00.123Z"})


def test_the_quality_of_service_is_that_of_events_alone_and_what_it_loses_is_said() -> None:
    settings = {"url": "wss://broker.example.com/mqtt", "qos": 0, "resources": ["stock"]}
    document = write_catalogue({"floor": {"type": "mqtt"} | settings}, resources={"stock": {}})
    bindings = {name: each["bindings"]["mqtt"]["qos"] for name, each in document["operations"].items()}
    assert bindings["send.floor.stock"] == 0
    assert bindings["send.floor.stock.state"] == bindings["send.floor.status"] == 1
    described = document["channels"]["floor.stock"]["description"]
    assert "without acknowledgements" in described
    assert "at least once" not in described
    assert document["servers"]["floor"]["protocol"] == "wss"


def test_a_topic_that_does_not_name_the_resource_has_one_channel() -> None:
    settings = {"topic": "all/{change}/{key}", "state_topic": "", "status_topic": "", "resources": ["stock", "items"]}
    document = write_catalogue({"floor": MQTT | settings})
    assert list(document["channels"]) == ["floor.records", "floor.feeds"]
    assert document["channels"]["floor.records"]["address"] == "all/{change}/{key}"
    assert {"stock.created", "item.created"} < set(messages_of(document, "floor.records"))


def test_notices_have_a_topic_of_their_own() -> None:
    document = write_catalogue({"floor": MQTT | {"resources": ["notices"], "topic": "all/{key}"}})
    assert list(document["channels"]) == ["floor.notices", "floor.status"]
    assert document["channels"]["floor.notices"]["address"] == "dockbell/feed/dockbell/notices/{change}"
    assert document["channels"]["floor.notices"]["parameters"]["change"]["enum"][0] == "crowded"


def test_state_is_kept_of_every_record_whatever_changes_the_sink_takes() -> None:
    document = write_catalogue({"floor": MQTT | {"changes": ["gap"]}}, resources={"stock": {}})
    assert list(document["channels"]) == ["floor.feeds", "floor.stock.state", "floor.status"]
    assert document["channels"]["floor.feeds"]["parameters"]["resource"]["enum"] == ["stock"]


def test_a_webhook_has_one_channel_with_everything_and_no_secret_of_its_address() -> None:
    document = write_catalogue({"erp": WEBHOOK})
    assert document["channels"]["erp"]["address"] is None
    assert "/hooks/a" not in json.dumps(document)
    assert document["servers"]["erp"] == {"host": "erp.example.com", "protocol": "https"}
    assert document["operations"]["send.erp"]["bindings"]["http"] == {"method": "POST", "bindingVersion": "0.3.0"}
    assert len(messages_of(document, "erp")) == 5 * 5 + 4
    text = json.dumps(document)
    assert "geheim" not in text
    assert SECRET not in text


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"mode": "binary"}, "CloudEvents in binary mode: "),
        ({"batch": 50}, "Each request holds up to 50 events, as a JSON array (application/cloudevents-batch+json). "),
        ({"compression": "gzip"}, "Bodies are compressed (gzip). "),
    ],
)
def test_it_is_said_how_the_requests_of_a_webhook_hold_events(settings: dict[str, Any], told: str) -> None:
    channel = write_catalogue({"erp": WEBHOOK | settings})["channels"]["erp"]
    assert channel["description"].startswith(told)


def test_of_a_webhook_with_a_body_of_its_own_no_messages_are_listed() -> None:
    document = write_catalogue({"erp": WEBHOOK | {"body": "key"}})
    assert messages_of(document, "erp") == []
    assert "in the receiver's own form" in document["channels"]["erp"]["description"]


def test_another_kind_of_sink_has_a_channel_without_an_address() -> None:
    document = write_catalogue({"birds": {"type": "carrier-pigeon"}, "out": {"type": "stdout"}})
    assert document["channels"]["birds"]["address"] is document["channels"]["out"]["address"] is None
    assert document["servers"] == {}


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"changes": ["created", "gap"]}, ["stock.created", "stock.low", "feed.gap"]),
        ({"changes": ["gap"]}, ["feed.gap"]),
        (
            {"resources": ["notices"]},
            [
                f"notice.{kind}"
                for kind in (
                    "crowded",
                    "dead_letter",
                    "died",
                    "disk",
                    "gap",
                    "held",
                    "overrun",
                    "paused",
                    "recovered",
                    "refused",
                    "unreachable",
                )
            ],
        ),
    ],
)
def test_a_channel_holds_what_the_sink_takes(settings: dict[str, Sequence[str]], names: list[str]) -> None:
    document = write_catalogue({"erp": WEBHOOK | settings}, resources=STOCK)
    assert sorted(messages_of(document, "erp")) == sorted(names)
    assert sorted(document["components"]["messages"]) == sorted(names)


def test_a_condition_and_members_that_are_left_out_are_said() -> None:
    document = write_catalogue({"erp": WEBHOOK | {"where": "after.status == 'shipped'", "redact": ["/secret_place"]}})
    description = document["channels"]["erp"]["description"]
    assert "after.status == 'shipped'" in description
    assert "left out" in description
    assert "no longer matches" not in description
    assert "secret_place" not in description


def test_that_a_sink_is_told_of_records_that_leave_its_filter_is_said() -> None:
    document = write_catalogue({"erp": WEBHOOK | {"where": "after.status == 'shipped'", "on_leave": "send"}})
    assert "the change after which a record no longer matches" in document["channels"]["erp"]["description"]


def test_pull_feeds_are_described_where_they_are_served() -> None:
    document = write_catalogue({}, web={"listen": "127.0.0.1:9000"}, resources={"stock": {}})
    assert document["servers"]["Web"]["host"] == "127.0.0.1:9000"
    assert document["channels"]["Web.stock"]["address"] == "/feeds/{source}/stock"
    assert document["channels"]["Web.stock.state"]["address"] == "/state/{source}/stock"
    validate(document, "stock.batch", [json.loads(EVENTS["composite_key"].body)])
    record = {"key": "A,2", "revision": 3, "record": json.loads(RECORDS[Feed("main", "stock")][0])}
    validate(document, "stock.page", {"position": "e.7", "records": [record], "next": None, "feed": "../../feeds/a/b"})
    with pytest.raises(Exception, match="Failed validating"):
        validate(document, "stock.batch", [json.loads(EVENTS["updated"].body)])


def test_without_sinks_and_feeds_to_pull_there_is_an_empty_document() -> None:
    document = write_catalogue({})
    assert (document["asyncapi"], document["id"], document["channels"]) == ("3.0.0", "urn:dockbell:acme", {})
    assert document["info"]["version"] == "1.2.3"
