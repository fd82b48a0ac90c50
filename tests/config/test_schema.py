"""``config.schema.json`` accepts what works, and refuses what an editor should underline."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((files("dockbell.config") / "config.schema.json").read_bytes())
VALIDATOR = Draft202012Validator(SCHEMA)
EXAMPLE = (ROOT / "config.example.toml").read_text(encoding="utf-8")
UNCOMMENTED = re.sub(r"(?m)^# (?=\[+[a-z0-9_.]+\]|[a-z_]+ = )", "", EXAMPLE)
FENCED = re.compile(r"```toml\n(.*?)```", re.DOTALL)


def find_problems(text: str) -> list[str]:
    return [f"{'.'.join(map(str, each.path))}: {each.message}" for each in VALIDATOR.iter_errors(tomllib.loads(text))]


def find_blocks() -> list[Any]:
    """Return the configurations that the documents show, whole or in part."""
    blocks = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for number, block in enumerate(FENCED.findall(path.read_text(encoding="utf-8"))):
            if tomllib.loads(block).keys() <= SCHEMA["properties"].keys():
                blocks.append(pytest.param(block, id=f"{path.name}-{number}"))
    return blocks


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("text", [EXAMPLE, UNCOMMENTED], ids=["as it is", "with every key"])
def test_the_example_is_accepted(text: str) -> None:
    assert find_problems(text) == []


def test_every_key_of_the_example_has_its_meaning() -> None:
    assert "description" in SCHEMA["$defs"]["ResourceSettings"]["properties"]["stale_window"]
    assert "description" in SCHEMA["$defs"]["WebhookSettings"]["properties"]["dead_on"]
    assert "description" in SCHEMA["$defs"]["MqttSettings"]["properties"]["on_dead"]


@pytest.mark.parametrize("block", find_blocks())
def test_what_the_documents_show_is_accepted(block: str) -> None:
    assert find_problems(block) == []


SINK = "[sinks.erp]\ntype = "


@pytest.mark.parametrize(
    "text",
    [
        "[source.main]",
        "[sources.main]\nbase_url = 5",
        "[sources.main]\nshrae = 0.5",
        "[resources.shipment]",
        '[resources.stock]\nevery = "5 minutes"',
        '[resources.stock]\nfirst_pass = "loud"',
        "[sinks.erp]",
        f'{SINK}"webhook"\nurl = "https://example.com"\nsecret = "whsec_x"\nlanes = 65',
        f'{SINK}"mqtt"\nurl = "mqtt://example.com"\ntopics = "a"',
        f'{SINK}"alert"\nurl = {{ envi = "A" }}',
    ],
)
def test_a_mistake_is_refused(text: str) -> None:
    assert find_problems(text)


def test_the_keys_of_a_plug_in_are_its_own() -> None:
    assert find_problems(f'{SINK}"printer"\nhost = "example.com"') == []
