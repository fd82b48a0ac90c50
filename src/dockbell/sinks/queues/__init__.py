"""Queues and streams: sinks that publish each event to a server and wait for its word that it is stored.

:mod:`~dockbell.sinks.queues.queue_sink` is what they have in common; each server's own library speaks its protocol.
"""

from __future__ import annotations
