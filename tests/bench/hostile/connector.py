"""A connector of the kind that data teams use: dlt's REST source, incremental by ``updated_at``; ``connector.py URL``.

It prints what ``script.py`` prints. What dlt has loaded is compared with what it loaded before, as whoever turns loads
into events must; a list that is loaded whole, to replace the one before, shows what is deleted.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import dlt
from dlt.sources.rest_api import rest_api_resources

from tests.bench.hostile.script import SINCE, load, save


def main() -> None:
    """Run the pipeline until killed; what fails is tried again the next time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--every", type=float, default=2.0)
    options = parser.parse_args()
    state = load()
    loaded: list[tuple[str, dict[str, Any]]] = []

    def take(items: Any, table: Any) -> None:
        loaded.extend((table["name"], item) for item in items)

    told: Any = dlt.destination(take, batch_size=1000, name="told")

    while True:
        for resource in SINCE:
            loaded.clear()
            pipeline = dlt.pipeline(resource, destination=told, pipelines_dir="pipelines")
            try:
                pipeline.run(configure(options.url, resource))
            except Exception as error:  # noqa: BLE001  # dlt's own kinds are many; the next run begins where this one did
                print(error, file=sys.stderr)
                continue
            tell(resource, [json.loads(item["body"]) for name, item in loaded if name == resource], state)
        save(state)
        time.sleep(options.every)


def configure(url: str, resource: str) -> Any:
    """Return dlt's resource for a list: by time where the API can, else whole."""
    endpoint: dict[str, Any] = {"path": resource, "data_selector": resource, "params": {"limit": 200}}
    if SINCE[resource]:
        start = "1970-01-01T00:00:00Z"
        endpoint["incremental"] = {"cursor_path": "updated_at", "start_param": "updated_since", "initial_value": start}
    config: Any = {
        "client": {
            "base_url": f"{url}/v1/",
            "auth": {"type": "bearer", "token": "bench"},
            "paginator": {"type": "cursor", "cursor_path": "next_cursor", "cursor_param": "cursor"},
        },
        "resources": [
            {
                "name": resource,
                "primary_key": "id",
                "write_disposition": "merge" if SINCE[resource] else "replace",
                "endpoint": endpoint,
            }
        ],
    }
    (made,) = rest_api_resources(config)
    # The record as it came, in a column of its own: dlt's types would change how numbers and times are written.
    return made.add_map(lambda record: {**pick(record), "body": json.dumps(record)})


def pick(record: dict[str, Any]) -> dict[str, Any]:
    """Return what dlt itself needs of a record."""
    return {"id": record["id"], "updated_at": record.get("updated_at")}


def tell(resource: str, records: list[dict[str, Any]], state: dict[str, Any]) -> None:
    """Print how what was loaded differs from what was known; the first time only remember it."""
    is_first = resource not in state
    known = state.setdefault(resource, {"known": {}})["known"]
    changes: list[tuple[str, Any]] = [(each["id"], each) for each in records if known.get(each["id"]) != each]
    if not SINCE[resource] and records:
        changes += [(key, None) for key in known.keys() - {each["id"] for each in records}]
    for key, record in changes:
        if not is_first:
            print(json.dumps([resource, key, record]), flush=True)
        if record is None:
            del known[key]
        else:
            known[key] = record


if __name__ == "__main__":
    main()
