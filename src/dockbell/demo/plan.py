"""The configuration of the demo's dockbell: as fresh as the budget allows, written as a user would write it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from math import ceil
from typing import Final

CONFIRM_AFTER: Final = timedelta(seconds=5)
"""Between the two passes that make a deletion, and as long as an answer may be old: the sandbox answers anew."""

_PAGE: Final = 200
_POLLED: Final = ("shipments", "packages", "items")

_TEXT: Final = """\
# Written by "dockbell demo": much quicker than the defaults, so that there is something to see.
name = "demo"

[store]
url = "sqlite:///dockbell.db"

[sources.main]
base_url = "{base_url}"
api_key = "{api_key}"

[resources.shipments]
every = "1s"
lookback = "10s"
reconcile = "{reconcile}s"
confirm_after = "{confirm}s"
stale_window = "{confirm}s"

[resources.packages]
every = "1s"
lookback = "10s"
reconcile = "{reconcile}s"
confirm_after = "{confirm}s"
stale_window = "{confirm}s"

[resources.items]
every = "5s"
lookback = "10s"
reconcile = "{reconcile}s"
confirm_after = "{confirm}s"
stale_window = "{confirm}s"

[resources.stock]
every = "{stock}s"
confirm_after = "{confirm}s"
stale_window = "{confirm}s"

[resources.warehouses]
every = "15s"
confirm_after = "{confirm}s"
stale_window = "{confirm}s"
"""
_MQTT: Final = """
[sinks.mqtt]
type = "mqtt"
url = "{url}"
"""
_HOOK: Final = """
[sinks.hook]
type = "webhook"
url = "{url}"
secret = "{secret}"
"""


def write_config(
    base_url: str, api_key: str, *, counts: Mapping[str, int], broker_url: str | None, hook_url: str, secret: str
) -> str:
    """Return the TOML of a dockbell that reads a sandbox and publishes to the demo's receivers.

    Of 300 requests a minute it plans at most 226: polls take 132 and warehouses 4, whatever the number of records;
    passes over stock take 60 at most, those over the polled feeds, each confirmed by a second, 30.

    Args:
        base_url: Where the API is.
        api_key: Its key.
        counts: How many records each resource has; long lists are passed over less often.
        broker_url: Where the broker is, None for no MQTT.
        hook_url: Where webhooks go.
        secret: The ``whsec_`` text that they are signed with.
    """
    pages = {resource: ceil(count / _PAGE) + 1 for resource, count in counts.items()}  # + 1: they grow
    text = _TEXT.format(
        base_url=base_url,
        api_key=api_key,
        confirm=int(CONFIRM_AFTER.total_seconds()),
        reconcile=max(30, 4 * sum(pages[resource] for resource in _POLLED)),
        stock=max(5, pages["stock"]),
    )
    if broker_url is not None:
        text += _MQTT.format(url=broker_url)
    return text + _HOOK.format(url=hook_url, secret=secret)
