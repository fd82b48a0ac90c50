"""Where events go: the servers, channels and operations of one sink, and of the pull feeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final
from urllib.parse import urlsplit

import msgspec

from dockbell.config import SinkSettings
from dockbell.config.values import Table
from dockbell.core.model import JSON, NOTICES, Feed
from dockbell.core.publishing.catalogue.messages import BATCH_TYPE, EVENT_TYPE

_HTTP: Final = {"bindingVersion": "0.3.0"}
_MQTT: Final = {"bindingVersion": "0.2.0"}
_AT_LEAST_ONCE: Final = 1
_WEB: Final = "Web"  # no sink can have this name: theirs are in lower case
_PARAMETERS: Final = {
    "source": "The name of a source.",
    "resource": "The name of a resource.",
    "key": "The record's key, percent-encoded: `data.key` of its events.",
    "change": "The last part of the event's type.",
    "client_id": "The client id of this dockbell.",
}
_ABOUT_SIZES: Final = (
    "An event above `max_event_size` comes without `before`. If it is still too large, it comes with its patch alone"
    " (never if arrays have no order), else without content. `data.omitted` lists what is missing."
)


class Offer(msgspec.Struct, frozen=True):
    """The names of the messages that a sink takes; ``states`` are of the records themselves."""

    feeds: Sequence[Feed]
    changes: Mapping[str, Sequence[str]]
    statements: Sequence[str]
    notices: Sequence[str]
    states: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        """All but those of states."""
        return [*chain.from_iterable(self.changes.values()), *self.statements, *self.notices]

    def find_sources(self, resource: str = "") -> list[str]:
        return list(dict.fromkeys(feed.source for feed in self.feeds if feed.resource == resource or not resource))


@dataclass(slots=True)
class Outlets:
    servers: dict[str, JSON] = field(default_factory=dict)
    channels: dict[str, JSON] = field(default_factory=dict)
    operations: dict[str, JSON] = field(default_factory=dict)

    def add_sink(self, name: str, settings: SinkSettings, offer: Offer) -> None:
        """Add a sink; of a kind that is not known here, its messages without a channel address."""
        match settings.type:
            case "mqtt":
                self._add_mqtt(name, settings.model_dump(), offer, _describe(settings))
            case "webhook":
                self._add_webhook(name, settings.model_dump(), offer, _describe(settings))
            case kind:
                about = f"A sink of the kind {kind}. {_describe(settings)}"
                self._add(name, None, offer.names, server=None, description=about)

    def add_pull_feeds(self, url: str, offer: Offer) -> None:
        """Add the feeds and records that ``[web]`` serves at ``url``, which ends without a slash."""
        self._add_server(_WEB, url, "Pull feeds, and the stored records.")
        for resource in offer.changes:
            sources = offer.find_sources(resource)
            self._add(
                f"{_WEB}.{resource}",
                f"/feeds/{{source}}/{resource}",
                offer.changes[resource],
                server=_WEB,
                parameters={"source": sources},
                description="All events in order after a position. With `Accept: text/event-stream`, one by one.",
                binding={"http": {"method": "GET", "query": _QUERY, **_HTTP}},
            )
            self._add(
                f"{_WEB}.{resource}.state",
                f"/state/{{source}}/{resource}",
                [offer.states[resource]],
                server=_WEB,
                parameters={"source": sources},
                description="The stored records, page by page, with the position from which to read the feed.",
                binding={"http": {"method": "GET", **_HTTP}},
            )

    def _add_mqtt(self, name: str, given: Table, offer: Offer, description: str) -> None:
        self._add_server(name, given["url"])
        self.servers[name]["protocolVersion"] = "3.1.1" if given.get("protocol") == "3.1.1" else "5.0"
        expiry = {} if given["expiry"] is None else {"messageExpiryInterval": int(given["expiry"].total_seconds())}
        once = {"mqtt": {"qos": given["qos"], "retain": False, **expiry, **_MQTT}}
        kept = {"mqtt": {"qos": _AT_LEAST_ONCE, "retain": True, **_MQTT}}

        def add(
            part: str, template: str, names: Sequence[str], text: str, binding: JSON, **known: Iterable[str]
        ) -> None:
            self._add(
                f"{name}.{part}", template, names, server=name, parameters=known, description=text, binding=binding
            )

        for part, resource, changes in _split(given["topic"], offer.changes):
            topic, sources = _fill(given["topic"], resource), offer.find_sources(resource)
            ends = {each.rpartition(".")[2] for each in changes}
            add(part, topic, changes, description, once, source=sources, resource=offer.changes, change=sorted(ends))
        if offer.statements:
            about = "Statements about a whole feed."
            ends = {each.rpartition(".")[2] for each in offer.statements}
            resources = dict.fromkeys(feed.resource for feed in offer.feeds)
            known = {"source": offer.find_sources(), "resource": resources, "change": sorted(ends)}
            add("feeds", given["feed_topic"], offer.statements, about, once, **known)
        if offer.notices:
            topic = given["feed_topic"].replace("{source}", NOTICES.source).replace("{resource}", NOTICES.resource)
            ends = {each.rpartition(".")[2] for each in offer.notices}
            add("notices", topic, offer.notices, "Notices to the operator.", once, change=sorted(ends))
        if given["state_topic"]:
            about = "Retained: each record as it is stored now. An empty payload clears a deleted record."
            states = {resource: [state] for resource, state in offer.states.items()}
            for part, resource, names in _split(given["state_topic"], states):
                topic, sources = _fill(given["state_topic"], resource), offer.find_sources(resource)
                add(f"{part}.state", topic, names, about, kept, source=sources, resource=offer.states)
        if given["status_topic"]:
            add("status", given["status_topic"], ["status"], "Retained: whether dockbell is connected.", kept)

    def _add_webhook(self, name: str, given: Table, offer: Offer, description: str) -> None:
        is_known = isinstance(given["url"], str)  # else it is a secret, and is not shown
        if is_known:
            self._add_server(name, given["url"])
        binding = {"http": {"method": "POST", **_HTTP}}
        # Without an address: the path of a webhook may hold a token, and its receiver knows it.
        server = name if is_known else None
        names = offer.names if given["body"] is None else []  # its receiver knows its own form
        self._add(name, None, names, server=server, description=_tell_form(given) + description, binding=binding)

    def _add_server(self, name: str, url: str, description: str = "") -> None:
        parts = urlsplit(url)
        protocol = "secure-mqtt" if parts.scheme == "mqtts" else parts.scheme
        self.servers[name] = {"host": parts.netloc.rpartition("@")[2], "protocol": protocol}
        if description:
            self.servers[name]["description"] = description

    def _add(
        self,
        name: str,
        address: str | None,
        messages: Sequence[str],
        *,
        server: str | None,
        description: str,
        parameters: Mapping[str, Iterable[str]] | None = None,
        binding: JSON = None,
    ) -> None:
        channel: dict[str, JSON] = {
            "address": address,
            "title": name,
            "description": description,
            "messages": {each: {"$ref": f"#/components/messages/{each}"} for each in messages},
        }
        if server is not None:
            channel["servers"] = [{"$ref": f"#/servers/{server}"}]
        known = parameters or {}
        used = [each for each in _PARAMETERS if address is not None and f"{{{each}}}" in address]
        if used:
            channel["parameters"] = {
                each: {"description": _PARAMETERS[each]} | ({"enum": [*known[each]]} if each in known else {})
                for each in used
            }
        self.channels[name] = channel
        self.operations[f"send.{name}"] = {
            "action": "send",
            "channel": {"$ref": f"#/channels/{name}"},
            "summary": f"dockbell sends to {name}.",
        } | ({} if binding is None else {"bindings": binding})


_QUERY: Final = {
    "type": "object",
    "properties": {
        "after": {"type": "string", "description": "EPOCH.SEQUENCE: the position after which to start."},
        "limit": {"type": "integer", "minimum": 1, "description": "Maximum number of events."},
        "wait": {"type": "string", "description": "How long to wait for the first event, such as 30s."},
    },
    "additionalProperties": False,
}


def _split(template: str, names: Mapping[str, Sequence[str]]) -> Iterable[tuple[str, str, Sequence[str]]]:
    """Yield a channel's name, its resource and its messages: one for each resource where the topic tells them apart."""
    if "{resource}" in template:
        for resource, each in names.items():
            yield resource, resource, each
    elif names:
        yield "records", "", [name for each in names.values() for name in each]


def _fill(template: str, resource: str) -> str:
    return template.replace("{resource}", resource) if resource else template


def _tell_form(given: Table) -> str:
    """Return what a receiver must know of how requests hold events."""
    if given["body"] is not None:
        form = "Each request body holds one event in the receiver's own form. "
    elif given["batch"] > 1:
        form = f"Each request holds up to {given['batch']} events, as a JSON array ({BATCH_TYPE}). "
    elif given["mode"] == "binary":
        form = "CloudEvents in binary mode: attributes as `ce-` headers, `data` as the body. "
    else:
        form = ""
    return form + ("Bodies are compressed (gzip). " if given["compression"] == "gzip" else "")


def _describe(settings: SinkSettings) -> str:
    is_sure = getattr(settings, "qos", _AT_LEAST_ONCE) >= _AT_LEAST_ONCE
    often = "at least once" if is_sure else "without acknowledgements"
    parts = [f"Events as {EVENT_TYPE}, {often}, in order for each record; payload {settings.payload}."]
    if settings.where is not None:
        parts.append(f"Only changes that match this condition: {settings.where}.")
    if settings.on_leave == "send":
        parts.append("Also the change after which a record no longer matches.")
    if settings.fields or settings.redact:
        parts.append("Some members of the records are left out.")
    return " ".join([*parts, _ABOUT_SIZES])
