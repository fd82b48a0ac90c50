"""Webhooks: each event a signed POST (Standard Webhooks 1.0.0, CloudEvents structured), on several connections.

- ``settings``: what ``[sinks.NAME]`` holds. ``credentials``: keys and headers, from an operator's secrets; ``renewal``:
  these and certificates, noticed when they change.
- ``sink``: lanes that attempt deliveries. ``answer``: what an answer comes to (pure).
- ``lane``: one connection. ``dialling``: which addresses it may lead to.

This package and the sources are the home of httpx and httpcore.
"""

from __future__ import annotations

from dockbell.sinks.webhook.answer import judge, parse_retry_after
from dockbell.sinks.webhook.settings import WebhookSettings
from dockbell.sinks.webhook.sink import CONTENT_TYPE, WebhookSink

__all__ = ["CONTENT_TYPE", "WebhookSettings", "WebhookSink", "judge", "parse_retry_after"]
