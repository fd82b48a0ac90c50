"""Events in the binary mode of CloudEvents over HTTP: the attributes as headers, ``data`` alone as the body."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import msgspec

_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
"""What stands in a header as it is; https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/
http-protocol-binding.md, 3.1.3.2."""
_CONTENT_TYPE: Final = "datacontenttype"
_JSON: Final = "application/json"

_EVENT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def to_binary_mode(event: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return the headers and the body of a CloudEvent in JSON; its data stays as it is written, to the digit."""
    members = _EVENT.decode(event)
    data = bytes(members.pop("data", b""))
    attributes = {name: msgspec.json.decode(raw) for name, raw in members.items()}
    content_type = str(attributes.pop(_CONTENT_TYPE, _JSON))
    headers = [(b"ce-" + name.encode(), quote(str(value), _SAFE).encode()) for name, value in attributes.items()]
    return [(b"content-type", content_type.encode()), *headers], data
