"""What people write first: ask for what was updated since the last time, compare, print; ``python script.py URL``.

It prints a line of JSON for each change that it finds, ``[resource, key, record]``, the record null for a deletion.
With ``--whole`` it reads all lists whole each time, and takes what is absent for deleted. It keeps what it knows in
``state.json``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

SINCE = {"shipments": True, "packages": True, "stock": False}
STATE = Path("state.json")


def main() -> None:
    """Poll until killed; what fails is tried again the next time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--every", type=float, default=2.0)
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    state = load()
    with httpx.Client(base_url=options.url, headers={"Authorization": "Bearer bench"}, timeout=10) as client:
        while True:
            for resource, has_since in SINCE.items():
                try:
                    poll(client, resource, state, by_time=has_since and not options.whole)
                except Exception:  # noqa: BLE001, S112  # whatever is wrong, the next poll may do
                    continue
            save(state)
            time.sleep(options.every)


def poll(client: httpx.Client, resource: str, state: dict[str, Any], *, by_time: bool) -> None:
    """Print what has changed in a list since the last time; the first time only remember it."""
    is_first = resource not in state
    known = {} if is_first else dict(state[resource]["known"])
    newest = "" if is_first else state[resource]["newest"]
    changes: list[tuple[str, dict[str, Any] | None]] = []
    seen = set()
    for record in read(client, resource, newest if by_time else ""):
        key = record["id"]
        seen.add(key)
        newest = max(newest, record.get("updated_at") or "")
        if known.get(key) != record:
            changes.append((key, record))
            known[key] = record
    if not by_time:
        for key in known.keys() - seen:
            changes.append((key, None))
            del known[key]
    if not is_first:
        for key, found in changes:
            print(json.dumps([resource, key, found]), flush=True)
    state[resource] = {"known": known, "newest": newest}


def read(client: httpx.Client, resource: str, since: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a list, page by page."""
    query = {"limit": "200"} | ({"updated_since": since} if since else {})
    while True:
        page = client.get(f"/v1/{resource}", params=query).raise_for_status().json()
        yield from page[resource]
        if not page.get("next_cursor"):
            return
        query["cursor"] = page["next_cursor"]


def load() -> dict[str, Any]:
    """Return what was known the last time; nothing at first."""
    return json.loads(STATE.read_text()) if STATE.exists() else {}


def save(state: dict[str, Any]) -> None:
    """Write down what is known, whole or not at all."""
    new = STATE.with_suffix(".new")
    new.write_text(json.dumps(state))
    new.replace(STATE)


if __name__ == "__main__":
    main()
