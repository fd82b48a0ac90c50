"""What stands at the head of the files to run dockbell by is what the documents beside them show."""

from __future__ import annotations

import re
from functools import partial

import pytest

from dockbell.condition.evaluation import Answer, compile_text, evaluate, make_context
from dockbell.config import Expression
from tests.docs.markdown import ROOT, read


@pytest.mark.parametrize(
    ("file", "document"),
    [
        ("dockbell.service", "systemd.md"),
        ("dockbell@.service", "systemd.md"),
        ("compose.yaml", "container.md"),
        ("compose-postgres.yaml", "container.md"),
        ("Containerfile", "container.md"),
    ],
)
def test_the_commands_at_the_head_of_a_file_are_those_of_its_document(file: str, document: str) -> None:
    head = read(f"docs/operations/{file}").partition("\n\n")[0]
    commands = re.findall(r"(?m)^#   ([\w/][\w./-]+ .+?)(?:  +\(?.*)?$", head)
    shown = read(f"docs/operations/{document}")
    assert commands
    assert [each for each in commands if each.replace("podman", "docker") not in shown and "=" not in each] == []


def test_what_is_quoted_by_symptom_is_what_dockbell_says() -> None:
    sources = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "dockbell").rglob("*.py"))
    said = re.sub(r'"\s*\n\s*f?"', "", sources)
    rows = re.findall(r"(?m)^\| (.*?) \|", (ROOT / "docs/operations/troubleshooting.md").read_text(encoding="utf-8"))
    quotes = [quote for row in rows for quote in re.findall(r'"([^"]+)"', row)]
    assert len(quotes) > 10
    parts = {part.strip() for quote in quotes for part in re.split(r"\bN\b|…", quote)} - {""}
    assert {part for part in parts if part not in said} == set()


def test_the_conditions_that_are_shown_by_example_are_conditions() -> None:
    table = read("docs/how-to/choose-events.md").partition("Some that are often wanted:")[2].partition("\n## ")[0]
    shown = [text.replace("\\|", "|") for text in re.findall(r"(?m)^\| [^`|]+ \| `(.+)` \|$", table)[1:]]
    assert len(shown) == 9
    after = {"status": "shipped", "available": 3, "warehouse_id": "wh_1", "lines": list(range(21)), "carrier": "UPS"}
    names = {
        "before": {"status": "packed", "available": 12},
        "after": after | {"tags": ["fragile"]},
        "changed": ["/status"],
        "key": "shp_1",
        "change": "updated",
    }
    for text in shown:
        assert Expression(text).text == text
        assert evaluate(compile_text(text), partial(make_context, names)) is Answer.YES, text
