"""The documents as a site builder and a reader need them: links that lead somewhere, one title each, no HTML."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest

from tests.docs.markdown import DOCUMENTS, ROOT, find_anchors, find_headings, find_links, read, strip_code


def find_dead(document: str) -> list[str]:
    """Return the links of a document that lead nowhere in the tree."""
    dead = []
    for link in find_links(document):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (ROOT / document).parent / target if target else ROOT / document
        there = path.resolve().relative_to(ROOT).as_posix()
        if not path.exists() or (anchor and anchor not in find_anchors(there)):
            dead.append(link)
    return dead


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_leads_somewhere(document: str) -> None:
    assert find_dead(document) == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_has_one_title_and_no_html(document: str) -> None:
    titles = [heading for heading in find_headings(document) if heading.startswith("# ")]
    assert len(titles) == 1
    assert read(document).startswith(titles[0])
    assert re.findall(r"<[a-zA-Z/!][^>]*>", strip_code(read(document)).replace("\\<", "")) == []


@pytest.mark.parametrize("document", [each for each in DOCUMENTS if each.startswith("docs/")])
def test_every_document_can_be_found_from_the_map(document: str) -> None:
    found, new = {"docs/index.md"}, {"docs/index.md"}
    while new:
        linked = {
            ((ROOT / each).parent / link.partition("#")[0]).resolve()
            for each in new
            for link in find_links(each)
            if not re.match(r"[a-z]+:|#", link)
        }
        inside = {path.relative_to(ROOT).as_posix() for path in linked if path.suffix == ".md" and path.exists()}
        new = inside - found
        found |= new
    assert document in found


def test_what_the_source_says_of_documents_is_there() -> None:
    places = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), ROOT / "config.example.toml"]
    named = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in places
        for name in re.findall(r"docs/[\w./-]+\.\w+", path.read_text(encoding="utf-8"))
    }
    assert named
    assert {(place, name) for place, name in named if not (ROOT / PurePosixPath(name)).exists()} == set()


def test_a_dead_link_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.md").write_text("# A\n\n[one](b.md) [two](#a) [three](#b) `[no](link.md)`\n")
    monkeypatch.setattr("tests.docs.markdown.ROOT", tmp_path)
    monkeypatch.setattr("tests.docs.test_links.ROOT", tmp_path)
    assert find_dead("a.md") == ["b.md", "#b"]
