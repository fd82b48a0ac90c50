"""Is this webhook genuine? Standard Webhooks 1.0.0, symmetric signatures."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta

from dockbell.core.publishing.signature import TOLERANCE, Finding, parse_secret, verify
from dockbell.subscriber.errors import NotGenuine
from dockbell.subscriber.events import Event, parse


class Verifier:
    """Verifies webhooks.

    Args:
        secrets: The ``whsec_`` texts that the sender may sign with; two while one replaces the other.
        tolerance: How far from now ``webhook-timestamp`` may lie, against replay of recorded requests.

    Raises:
        ValueError: There is no secret, or one of them is none.
    """

    def __init__(self, *secrets: str, tolerance: timedelta = TOLERANCE) -> None:
        if not secrets:
            raise ValueError("secrets: at least one is needed, got none; make one with `dockbell secret`")
        self._secrets = [parse_secret(secret) for secret in secrets]
        self._tolerance = tolerance

    def verify(self, headers: Mapping[str, str], body: bytes, *, now: float | None = None) -> None:
        """Return if a webhook is genuine.

        Args:
            headers: Of the request, names in any case.
            body: As received, byte for byte, before anything parsed it.
            now: Unix seconds; the system's clock where left out.

        Raises:
            NotGenuine: It is not; the text says why and holds no secret.
        """
        given = {name.lower(): value for name, value in headers.items()}
        missing = [name for name in ("webhook-id", "webhook-timestamp", "webhook-signature") if not given.get(name)]
        if missing:
            raise NotGenuine(f"webhook: has no header {missing[0]}; it must be signed by Standard Webhooks")
        if not given["webhook-id"].isascii():  # what a framework made of bytes that no sender of ours has written
            raise NotGenuine(f"webhook {given['webhook-id'][:80]!r}: the id is not ASCII")
        finding = verify(
            self._secrets,
            given["webhook-id"],
            given["webhook-timestamp"],
            given["webhook-signature"],
            body,
            now=int(time.time() if now is None else now),
            tolerance=self._tolerance,
        )
        if finding is not Finding.GENUINE:
            raise NotGenuine(f"webhook {given['webhook-id'][:80]!r}: {finding}")

    def open(self, headers: Mapping[str, str], body: bytes, *, now: float | None = None) -> Event:
        """Return the event in a webhook, verified.

        Raises:
            NotGenuine: See :meth:`verify`.
            NotAnEvent: It is genuine, but no event of dockbell.
        """
        self.verify(headers, body, now=now)
        return parse(body)
