from __future__ import annotations

import pytest

from dockbell.core.document import decode
from dockbell.core.model import RESOURCES
from dockbell.core.reading.embedding import PAIRS, find_member, list_embedded, read_embedded


@pytest.mark.parametrize(
    ("value", "embedded"),
    [
        (b'[{"id":1}, {"id":2}]', [b'{"id":1}', b'{"id":2}']),
        (b' {"id":1}', [b' {"id":1}']),
        (b"[]", []),
        (b"null", []),
        (b"17", []),
        (b'[{"id":', []),
    ],
)
def test_embedded_records_are_the_elements_of_an_array_or_one_object(value: bytes, embedded: list[bytes]) -> None:
    assert read_embedded(value) == embedded


@pytest.mark.parametrize(
    ("record", "embedded"),
    [
        (b'{"id":1,"stock":[{"id":2}]}', [b'{"id":2}']),
        (b'{"id":1,"stock":[]}', []),
        (b'{"id":1,"stock":null}', []),
        (b'{"id":1}', None),
        (b"[1]", None),
        (b'{"id":', None),
    ],
)
def test_a_record_without_the_member_embeds_nothing(record: bytes, embedded: list[bytes] | None) -> None:
    assert list_embedded(record, "stock") == embedded


def identify(raw: bytes) -> str:
    found = decode(raw)
    if not isinstance(found, dict) or "id" not in found:
        raise ValueError("no key")
    return str(found["id"])


@pytest.mark.parametrize(
    ("record", "member"),
    [
        (b'{"id":1,"stock":[{"id":2}]}', "stock"),
        (b'{"id":1,"levels":[{"id":2}],"tags":["a"]}', "levels"),
        (b'{"id":1,"levels":[{"id":2}],"stock":{"id":3}}', "stock"),
        (b'{"id":1,"levels":[{"id":2}],"suppliers":[{"id":3}]}', ""),
        (b'{"id":1,"stock":[]}', ""),
        (b"[1]", ""),
    ],
)
def test_the_member_is_found_that_holds_records_with_keys(record: bytes, member: str) -> None:
    assert find_member(record, "stock", identify) == member


def test_the_pairs_are_resources_of_which_the_carrier_is_polled() -> None:
    for pair in PAIRS:
        assert RESOURCES[pair.carrier].polled
        assert pair.target in RESOURCES
