"""The AsyncAPI document of a configuration, and its schemas alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from dockbell.config import Config, SinkSettings
from dockbell.core.document import decode
from dockbell.core.model import JSON, NOTICES, RESOURCES, ChangeKind, Feed
from dockbell.core.publishing.catalogue.channels import Offer, Outlets
from dockbell.core.publishing.catalogue.messages import (
    EVENT_TYPE,
    Learned,
    Message,
    Messages,
    name_type,
    write_batch,
    write_page,
    write_state,
    write_status,
)
from dockbell.core.publishing.filters import Filter
from dockbell.core.publishing.rendering import Rendering

Records: TypeAlias = Mapping[Feed, Iterable[bytes]]
"""Raw JSON of some records of each feed, as they are or were stored."""

_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_COMPONENTS: Final = "#/components/schemas/"
_HEADERS: Final = {
    "type": "object",
    "title": "WebhookHeaders",
    "required": ["webhook-id", "webhook-timestamp", "webhook-signature"],
    "properties": {
        "webhook-id": {"type": "string", "description": "The event's id."},
        "webhook-timestamp": {"type": "string", "description": "Time of this attempt, in Unix seconds."},
        "webhook-signature": {"type": "string", "description": "Standard Webhooks 1.0.0: v1,BASE64 for each secret."},
        "dockbell-replay": {"const": "true", "description": "Present if an operator had the event sent again."},
    },
}
_EVENT_BINDINGS: Final = {
    "http": {"headers": _HEADERS, "bindingVersion": "0.3.0"},
    "mqtt": {"contentType": f"{EVENT_TYPE}; charset=utf-8", "payloadFormatIndicator": 1, "bindingVersion": "0.2.0"},
}


class Catalogue:
    """The document of one configuration.

    ``contract`` is ``event.schema.json``, decoded. The schemas of records are learned from ``records``; those of a
    resource without any stay open.
    """

    def __init__(self, config: Config, *, contract: JSON, records: Records, version: str) -> None:
        self._config = config
        self._messages = Messages(contract)
        self._records = records
        self._version = version
        self._feeds = [Feed(each.source, each.resource) for each in config.feeds()]
        self._named: dict[str, dict[str, None]] = {feed.resource: {} for feed in self._feeds}
        for each in config.feeds():
            self._named[each.resource] |= dict.fromkeys(event.name for event in each.settings.events)
        self._schemas: dict[str, JSON] = self._messages.shared
        self._written: dict[str, JSON] = {}
        self._outlets = Outlets()
        self._fill()

    def write_document(self) -> dict[str, JSON]:
        name = self._config.name
        return {
            "asyncapi": "3.0.0",
            "id": f"urn:dockbell:{name}",
            "info": {
                "title": f"dockbell {name}",
                "version": self._version,
                "description": "Changes of records of the Inventory and Shipment Data Service, as CloudEvents 1.0.",
            },
            "defaultContentType": EVENT_TYPE,
            "servers": self._outlets.servers,
            "channels": self._outlets.channels,
            "operations": self._outlets.operations,
            "components": {
                "messages": self._written,
                "schemas": self._schemas,
                "messageBindings": {"event": _EVENT_BINDINGS},
            },
        }

    def write_schemas(self, refer: Callable[[str], str]) -> dict[str, JSON]:
        """Return the JSON Schemas (draft 7) by name; ``refer`` returns how one refers to another by its name."""
        return {name: {"$schema": _DRAFT, **_refer(schema, refer)} for name, schema in self._schemas.items()}

    def _fill(self) -> None:
        prefixes: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = {((), ()): ""}
        for name, sink in self._config.sinks.items():
            prefix = prefixes.setdefault((sink.fields, sink.redact), f"{name}.")
            self._outlets.add_sink(name, sink, self._offer(sink, prefix))
            if getattr(sink, "status_topic", ""):
                self._register([write_status()])
        if self._config.web is not None:
            self._outlets.add_pull_feeds(self._config.web.base_url, self._offer_pulls())

    def _offer(self, sink: SinkSettings, prefix: str) -> Offer:
        """Return the messages that a sink takes, and write them; sinks that see records in the same way share them."""
        sieve, rendering = Filter(sink), Rendering(sink)
        feeds = [feed for feed in self._feeds if sieve.wants(feed)]
        changes, states = {}, {}
        for resource in dict.fromkeys(feed.resource for feed in feeds):
            self._learn(resource, prefix, rendering.state)
            messages = self._messages.write_changes(RESOURCES[resource], self._named[resource], prefix=prefix)
            # An event of the operator goes by the change that it follows, which may be any.
            own = [] if sink.changes and not {*ChangeKind} & {*sink.changes} else self._named[resource]
            own_names = {f"{prefix}{RESOURCES[resource].singular}.{name}" for name in own}
            wanted = [message for message in messages if message.name in own_names or _passes(sink, message)]
            if wanted:
                changes[resource] = self._register(wanted)
            if getattr(sink, "state_topic", ""):
                states[resource] = self._register([write_state(RESOURCES[resource], prefix)])[0]
        statements = [each for each in self._messages.write_statements() if feeds and _passes(sink, each)]
        notices = self._messages.write_notices() if sieve.wants(NOTICES) else []
        return Offer(feeds, changes, self._register(statements), self._register(notices), states)

    def _offer_pulls(self) -> Offer:
        statements = self._messages.write_statements()
        changes, states = {}, {}
        for resource, named in self._named.items():
            self._learn(resource, "", bytes)
            events = [*self._messages.write_changes(RESOURCES[resource], named), *statements]
            self._include(events)
            changes[resource] = self._register([write_batch(RESOURCES[resource], events)])
            states[resource] = self._register([write_page(RESOURCES[resource])])[0]
        return Offer(self._feeds, changes, (), (), states)

    def _register(self, messages: Iterable[Message]) -> list[str]:
        messages = list(messages)
        self._include(messages)
        self._written |= {message.name: message.content for message in messages}
        return [message.name for message in messages]

    def _include(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._schemas |= message.schemas

    def _learn(self, resource: str, prefix: str, show: Callable[[bytes], bytes]) -> None:
        name = f"{prefix}{RESOURCES[resource].singular}.record"
        if name in self._schemas:
            return
        learned = Learned()
        for feed, records in self._records.items():
            for raw in records if feed.resource == resource else ():
                learned.see(decode(show(raw)))
        description = f"A record of {resource}, learned from {learned.count()} readings."
        described = {"title": name_type(name), "type": "object", **learned.describe(name_type(name))}
        self._schemas[name] = {**described, "description": description}


def _passes(sink: SinkSettings, message: Message) -> bool:
    return sink.changes is None or message.name.rpartition(".")[2] in sink.changes


def _refer(schema: JSON, refer: Callable[[str], str]) -> JSON:
    if isinstance(schema, list):
        return [_refer(each, refer) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: refer(value.removeprefix(_COMPONENTS))
        if name == "$ref" and isinstance(value, str)
        else _refer(value, refer)
        for name, value in schema.items()
    }
