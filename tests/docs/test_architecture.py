"""The stations of ``docs/architecture.md`` are where it says, and the words of the glossary are those of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.markdown import ROOT, read

STATIONS: Final = re.findall(r"\[[^\]]+\]\(\.\./(src/[^)]+\.py)\)\s+`([\w.]+)`", read("docs/architecture.md"))


def find_names(path: Path) -> set[str]:
    """Return the functions, classes and methods of a module."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            inside = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            names |= {f"{node.name}.{each.name}" for each in inside}
    return names


@pytest.mark.parametrize(("path", "name"), STATIONS)
def test_every_station_is_where_it_is_said_to_be(path: str, name: str) -> None:
    assert len(STATIONS) > 15
    assert name in find_names(ROOT / path)


@pytest.mark.parametrize("word", re.findall(r"(?m)^- \*\*(\w[\w ]*)\*\*", read("docs/glossary.md")))
def test_every_word_of_the_glossary_is_one_of_the_code(word: str) -> None:
    pattern = re.compile(rf"\b{word.lower().replace(' ', '[ _]')}s?\b")
    assert any(pattern.search(path.read_text(encoding="utf-8").lower()) for path in (ROOT / "src").rglob("*.py"))
