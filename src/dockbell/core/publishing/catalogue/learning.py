"""The schema of records, learned from those that were seen: names and kinds, never a value."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from dockbell.core.model import JSON

_NAMES_MOST: Final = 100
"""An object with more members, over all records, is a map: its names are data."""

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_KINDS: Final = {type(None): "null", bool: "boolean", str: "string", int: "integer", list: "array", dict: "object"}
_FRACTION: Final = "number"


class Learned:
    """The values seen at one place of the records."""

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()
        self._times = 0
        self._members: dict[str, Learned] = {}
        self._values: Learned | None = None
        self._elements: Learned | None = None

    def see(self, value: JSON) -> None:
        """Take note of a value."""
        kind = _KINDS.get(type(value), _FRACTION)
        self._kinds[kind] += 1
        if isinstance(value, str):
            self._times += _TIME.fullmatch(value) is not None
        elif isinstance(value, list):
            self._elements = self._elements or Learned()
            for element in value:
                self._elements.see(element)
        elif isinstance(value, dict):
            for name, member in value.items():
                self._find_member(name).see(member)

    def _find_member(self, name: str) -> Learned:
        if self._values is None and name not in self._members and len(self._members) == _NAMES_MOST:
            self._become_map()
        return self._members.setdefault(name, Learned()) if self._values is None else self._values

    def _become_map(self) -> Learned:
        self._values = self._values or Learned()
        for member in self._members.values():
            self._values.join(member)
        self._members = {}
        return self._values

    def join(self, other: Learned) -> None:
        """Take note of all that was seen at another place."""
        self._kinds += other._kinds
        self._times += other._times
        for name, member in other._members.items():
            self._find_member(name).join(member)
        if other._values is not None:
            self._become_map().join(other._values)
        if other._elements is not None:
            self._elements = self._elements or Learned()
            self._elements.join(other._elements)

    def describe(self, title: str) -> dict[str, JSON]:
        """Return a JSON Schema of the values; each object in it has a title that begins with ``title``.

        Members are required where every object had them. Others may come at any time, as the API grows. Where only null
        was seen, anything may stand: it says nothing of the kind that a value will have.
        """
        kinds = sorted(self._kinds)
        if _FRACTION in kinds and "integer" in kinds:
            kinds.remove("integer")
        if kinds in ([], ["null"]):
            return {}
        schema: dict[str, JSON] = {"type": kinds if len(kinds) > 1 else kinds[0]}
        if "object" in kinds:
            schema = {"title": title, **schema, **self._describe_members(title)}
        if self._elements is not None:
            schema["items"] = self._elements.describe(f"{title}Element")
        if "string" in kinds and self._times == self._kinds["string"]:
            schema["format"] = "date-time"
        return schema

    def _describe_members(self, title: str) -> dict[str, JSON]:
        if self._values is not None:
            return {"additionalProperties": self._values.describe(f"{title}Value")}
        required = [name for name, member in self._members.items() if member.count() == self._kinds["object"]]
        members = {name: member.describe(f"{title}{name_type(name)}") for name, member in self._members.items()}
        return {"properties": members} | ({"required": required} if required else {})

    def count(self) -> int:
        """Return how many values were seen."""
        return self._kinds.total()


def name_type(name: str) -> str:
    """Return a name as types are called, ``LineItems`` for ``line_items``."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", name))
