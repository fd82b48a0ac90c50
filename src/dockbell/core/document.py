"""JSON documents: how one is read exactly, and the one way to write each value, so that equal values look alike."""

from __future__ import annotations

from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import Final

import msgspec

from dockbell.core.model import JSON

DEPTH_MAX: Final = 200
"""Records may nest this deep; a fifth of the interpreter's limit, so that whatever was decoded can also be compared."""

_TOO_DEEP: Final = f"not usable JSON: nested more than {DEPTH_MAX} deep"
_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_DIGITS_MAX: Final = 4300  # and the sign: msgspec reads no longer integer, what is longer can only have been a Decimal
_DECODER: Final = msgspec.json.Decoder(float_hook=Decimal)


def decode(raw: bytes) -> JSON:
    """Return the value of a JSON text: integers exact, other numbers :class:`~decimal.Decimal`.

    Raises:
        ValueError: It is malformed, not UTF-8, deeper than :data:`DEPTH_MAX`, or holds NaN or a number beyond all use.
    """
    try:
        document = _DECODER.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"not JSON: {error}") from error
    except InvalidOperation as error:
        raise ValueError("not usable JSON: a number has an exponent of more than 18 digits") from error
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    # Counting brackets is cheap and settles it for nearly every record.
    if raw.count(b"[") + raw.count(b"{") > DEPTH_MAX and _is_deep(document):
        raise ValueError(_TOO_DEEP)
    return document


def _is_deep(document: JSON) -> bool:
    level = [document]
    for _ in range(DEPTH_MAX):
        level = [
            child
            for value in level
            for child in (value.values() if type(value) is dict else value)
            if type(child) is dict or type(child) is list
        ]
    return bool(level)


def _write_number(number: Decimal) -> int | msgspec.Raw:
    """Return the one way to write a number: digits where an equal integer would have them, else scientific."""
    exact = number.normalize(_EXACT)
    if not exact:
        return 0
    text = str(exact)
    if exact.as_tuple().exponent >= 0:  # type: ignore[operator]  # it is finite
        text = f"{exact:f}" if exact.adjusted() + (exact < 0) < _DIGITS_MAX else f"{exact:E}"
    return msgspec.Raw(text.encode())


encode: Final = msgspec.json.Encoder(order="deterministic", decimal_format=_write_number).encode
"""Return the canonical encoding: JSON with sorted members, equal exactly for values that are equal as JSON."""
