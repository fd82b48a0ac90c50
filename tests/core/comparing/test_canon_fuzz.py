"""Whatever text a record is, it is decoded, compared and printed, or a ``ValueError``, in bounded time and memory."""

from __future__ import annotations

import json
import time
import tracemalloc
from decimal import Decimal
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dockbell.core.comparing.canon import Canon
from dockbell.core.document import DEPTH_MAX, decode, encode
from dockbell.core.model import JSON

MB: Final = 1_000_000
MANY: Final = settings(max_examples=500)
CANON: Final = Canon(ignore=["/a/*/b", "/0"], unordered=["/a", ""], updated_at="/u")

SPLINTERS: Final = [
    *(bytes([byte]) for byte in b'{}[]",:\\/ -+.0e\x00\x7f\xff\xc3'),
    *(
        b"NaN",
        b"Infinity",
        b"-",
        b"1e5",
        b"1e-5",
        b"1E+400000",
        b"1e999999999999999999",
        b"-0.0",
        b"1e9999999999999999999",
    ),
    *(b"9" * 4300, b"9" * 4301, b"0." + b"1" * 5000, b"-" + b"1" * 5000 + b".5", b"1" * 400 + b"e-400"),
    *(rb'"\ud800"', rb'"\ude00\ud83d"', rb'"\ud83d\ude00"', rb"\u0000", b'"\xed\xa0\x80"', b"\xef\xbb\xbf"),
    *(b"[" * 150, b"]" * 150, b'{"a":' * 150, b"}" * 150, b"[" * 5000, b'"a":[', b'"u":'),
]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abu01"), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def broken_records(draw: st.DrawFn) -> bytes:
    """Draw the text of a record to which a few things happened on the way."""
    text = bytearray(json.dumps(draw(values)).encode())
    for _ in range(draw(st.integers(0, 4))):
        where = draw(st.integers(0, len(text)))
        end = draw(st.integers(where, len(text)))
        match draw(st.sampled_from(["flip", "cut", "insert", "replace", "double"])):
            case "flip":
                text[where : where + 1] = bytes(byte ^ 1 << draw(st.integers(0, 7)) for byte in text[where : where + 1])
            case "cut":
                del text[where:end]
            case "insert":
                text[where:where] = draw(st.sampled_from(SPLINTERS))
            case "replace":
                text[where:end] = draw(st.sampled_from(SPLINTERS))
            case _:
                text[where:where] = text[where:end]
    return bytes(text)


def depth_of(document: JSON) -> int:
    if isinstance(document, dict):
        return 1 + max(map(depth_of, document.values()), default=0)
    if isinstance(document, list):
        return 1 + max(map(depth_of, document), default=0)
    return 0


def is_plain(document: JSON) -> bool:
    """Tell whether a document consists of what JSON has, numbers exact and finite."""
    match document:
        case None | bool() | str() | int():
            return True
        case Decimal():
            return document.is_finite()
        case list():
            return all(map(is_plain, document))
        case dict():
            return all(isinstance(name, str) and is_plain(value) for name, value in document.items())
    return False


@given(st.binary(max_size=100) | broken_records())
@example(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX)
@example(b"1e999999999999999999")
@example(b"[" + b"[]," * 300 + b"[]]")
@example(b"[-1e4299]")
@example(b"[" + b"9" * 4300 + b"1.0]")
@MANY
def test_any_bytes_are_a_document_that_can_be_compared_or_a_value_error(text: bytes) -> None:
    try:
        document = decode(text)
    except ValueError as error:
        assert str(error).startswith("not ")  # noqa: PT017  # either is right; this holds for errors
        return
    assert is_plain(document)
    assert depth_of(document) <= DEPTH_MAX
    assert len(CANON.fingerprint(document)) == 16
    # What was written canonically reads as the same, and is written the same again.
    again = encode(decode(encode(document)))
    assert again == encode(document)


def fill(beginning: bytes, middle: bytes, end: bytes) -> bytes:
    return beginning + middle * (MB // len(middle)) + end


LARGE: Final = {
    "numbers": fill(b"[1", b",1", b"]"),
    "fractions": fill(b"[1", b",0.1", b"]"),
    "exponents": fill(b"[1", b",1e9999", b"]"),
    "huge exponents": fill(b"[1", b",1e99999999", b"]"),
    "digits": fill(b"", b"9", b""),
    "fraction": fill(b"0.", b"9", b""),
    "empty": fill(b"[{}", b",{}", b"]"),
    "open": fill(b"", b"[", b""),
    "open objects": fill(b"", b'{"a":', b""),
    "deep": fill(b"", b"[", b"]" * MB),
    "wide": fill(b"[", b"[[[[[[]]]]]],", b"[]]"),
    "members": b"{" + b",".join(b'"%d":1' % number for number in range(MB // 12)) + b"}",
    "same members": fill(b'{"a":1', b',"a":1', b"}"),
    "string": fill(b'"', b"[", b'"'),
    "escapes": fill(b'"', rb"\u00e9", b'"'),
    "blank": fill(b"", b" ", b"1"),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_record_takes_time_and_memory_in_proportion(name: str) -> None:
    def read() -> None:
        try:
            CANON.fingerprint(decode(LARGE[name]))
        except ValueError as error:
            assert str(error).startswith("not ")  # noqa: PT017  # either is right; this holds for errors

    began = time.process_time()
    read()
    took = time.process_time() - began
    tracemalloc.start()  # which takes a multiple of the time itself
    read()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 150 * MB
    assert took < 10
