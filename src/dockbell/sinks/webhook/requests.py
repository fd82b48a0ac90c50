"""The requests of a webhook: what the body of one or of several events is, and which headers go with it, signed."""

from __future__ import annotations

import gzip
import hashlib
import time
from collections.abc import Sequence
from typing import Final

from dockbell.core.model import Delivery
from dockbell.core.publishing.binary_mode import to_binary_mode
from dockbell.core.publishing.custom_body import CustomBody
from dockbell.core.publishing.signature import sign, sign_like_github
from dockbell.sinks.webhook.settings import Headers, WebhookSettings
from dockbell.sinks.webhook.signing_key import SigningKey

_EVENT: Final = (b"content-type", b"application/cloudevents+json; charset=utf-8")
_BATCH: Final = (b"content-type", b"application/cloudevents-batch+json; charset=utf-8")
"""https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md, 3.3."""
_LEVEL: Final = 6
"""Of gzip: its own default in most programs; events become four to eight times smaller."""


class RequestWriter:
    """Writes the requests of one sink."""

    def __init__(self, settings: WebhookSettings) -> None:
        self._is_binary = settings.mode == "binary"
        self._is_batch = settings.batch > 1
        self._compresses = settings.compression == "gzip"
        self._custom = None if settings.body is None else CustomBody(settings.body, settings.content_type)

    def write(
        self,
        deliveries: Sequence[Delivery],
        keys: Sequence[bytes],
        github_key: bytes,
        signing_key: SigningKey | None = None,
    ) -> tuple[Headers, bytes] | None:
        """Return the headers and the body of the request for some deliveries, several of them only in batches.

        The signatures are of the body before it is compressed: most servers hand it to a receiver decompressed.

        Returns:
            None where nothing is to be sent.

        Raises:
            ValueError: The body cannot be made of the event.
        """
        written = self._write_content(deliveries)
        if written is None:
            return None
        headers, body = written
        timestamp, own_id = int(time.time()), _find_id(deliveries)
        signatures = sign(keys, own_id, timestamp, body)
        if signing_key is not None:
            signatures += f" {signing_key.sign(own_id, timestamp, body)}"
        headers += [
            (b"webhook-id", own_id.encode()),
            (b"webhook-timestamp", b"%d" % timestamp),
            (b"webhook-signature", signatures.encode()),
        ]
        if github_key:
            headers.append((b"x-hub-signature-256", sign_like_github(github_key, body).encode()))
        if deliveries[0].replayed:
            headers.append((b"dockbell-replay", b"true"))
        if self._compresses:
            body = gzip.compress(body, _LEVEL, mtime=0)
            headers.append((b"content-encoding", b"gzip"))
        return [*headers, (b"content-length", b"%d" % len(body))], body

    def _write_content(self, deliveries: Sequence[Delivery]) -> tuple[Headers, bytes] | None:
        events = [delivery.event for delivery in deliveries]
        if self._is_batch:
            return [_BATCH], b"[" + b",".join(event.body for event in events) + b"]"
        (event,) = events
        if self._is_binary:
            return to_binary_mode(event.body)
        if self._custom is None:
            return [_EVENT], event.body
        made = self._custom.write(event)
        return None if made is None else ([(b"content-type", made[0].encode())], made[1])


def _find_id(deliveries: Sequence[Delivery]) -> str:
    """Return what identifies a request: the event's id, and of several something that is the same for the same ones."""
    first, *others = (delivery.event.id for delivery in deliveries)
    if not others:
        return first
    return "batch_" + hashlib.sha256(" ".join((first, *others)).encode()).hexdigest()[:32]
