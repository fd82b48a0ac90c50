"""What stands in the Markdown of the tree: code blocks, headings, links."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md"))
)

_BLOCK: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_LINK: Final = re.compile(r"(?<!`)!?\[[^\]\n]*(?:\n[^\]\n]*)?\]\((?P<target>[^()\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        document: Where it stands, from the top of the tree.
        line: Of its first line in there.
        language: As it is marked; empty where it is not.
        text: What is in it.
        lead: The line before it that says what it is.
    """

    document: str
    line: int
    language: str
    text: str
    lead: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def read(document: str) -> str:
    """Return the text of a document."""
    return (ROOT / document).read_text(encoding="utf-8")


@cache
def find_blocks(document: str) -> list[Block]:
    """Return the code blocks of a document, in order."""
    text = read(document)
    found = []
    for match in _BLOCK.finditer(text):
        before = text[: match.start()].rstrip()
        lead = before[before.rfind("\n\n") + 2 :].replace("\n", " ")
        indent = match["indent"]
        inside = re.sub(rf"(?m)^{indent}", "", match["text"]) if indent else match["text"]
        line = text.count("\n", 0, match.start("text")) + 1
        found.append(Block(document, line, match["language"], inside, lead))
    return found


def strip_code(text: str) -> str:
    """Return a document without code, whose brackets and signs mean nothing."""
    return re.sub(r"`[^`\n]*`", "``", _BLOCK.sub("", text))


def find_headings(document: str) -> list[str]:
    """Return the headings, each with its signs."""
    return re.findall(r"(?m)^#+ .+$", _BLOCK.sub("", read(document)))


@cache
def find_anchors(document: str) -> set[str]:
    """Return what can be linked to in a document, by the rule of GitHub: letters, digits, hyphens and underscores."""
    seen: Counter[str] = Counter()
    anchors = set()
    for heading in find_headings(document):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.lstrip("#").strip()).lower()
        slug = "".join("-" if sign == " " else sign for sign in words if sign in " -_" or _is_word(sign))
        anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return anchors


def _is_word(sign: str) -> bool:
    return unicodedata.category(sign)[0] in "LN"


def find_links(document: str) -> list[str]:
    """Return where the links and pictures of a document lead."""
    return [match["target"] for match in _LINK.finditer(strip_code_blocks(read(document)))]


def strip_code_blocks(text: str) -> str:
    """Return a document without its code blocks."""
    return _BLOCK.sub("", text)
