"""What the documents show works: each is walked through from top to bottom, as its reader would."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click
import pytest

from dockbell.cli import main
from tests.docs.markdown import DOCUMENTS, ROOT, Block, find_blocks
from tests.docs.scenes import NOT_RUN, SCENES, Scene, find_reason
from tests.docs.stage import Stage

EXAMPLES: Final = {path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "examples").iterdir()}
SHELL: Final = ("sh", "console")
RUNNABLE: Final = (*SHELL, "toml", "python", "js")
SHOWN: Final = ("json", "text", "mermaid", "yaml", "ini")
"""Languages that are only looked at."""


def find_commands(block: Block) -> Iterator[str]:
    """Yield the commands of a block, each on one line and without its comment."""
    lines = re.sub(r"\\\n\s*", "", block.text).splitlines()
    prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in prompted or lines:
        command = re.sub(r"(?:^|\s+)#(?:\s.*)?$", "", line).strip()
        if command:
            yield command


def find_shown(block: Block) -> list[str]:
    """Return what may be run of a block, or not: its commands, or all of it; nothing of an example."""
    if block.language not in RUNNABLE or block.text in EXAMPLES:
        return []
    return list(find_commands(block)) if block.language in SHELL else [block.text]


def is_run(document: str) -> bool:
    """Return whether anything of a document is run."""
    return any(not find_reason(block, shown) for block in find_blocks(document) for shown in find_shown(block))


@pytest.mark.acceptance
@pytest.mark.parametrize("document", [each for each in DOCUMENTS if is_run(each)])
def test_what_a_document_shows_works(
    document: str, tmp_path: Path, certificate: Path, request: pytest.FixtureRequest
) -> None:
    scene = SCENES.get(document, Scene())
    with ExitStack() as stack:
        stage = Stage(document, tmp_path, stack, certificate, lambda: str(request.getfixturevalue("postgres_url")))
        scene.prepare(stage)
        for block in find_blocks(document):
            for shown in find_shown(block):
                if not find_reason(block, shown):
                    _do(stage, scene, block, shown)
        for command, pattern in scene.expected.items():
            stage.until(command, pattern)


def _do(stage: Stage, scene: Scene, block: Block, shown: str) -> None:
    """Do what is shown as its reader would."""
    if block.language in SHELL:
        for begins, (other, pattern) in scene.waits.items():
            if shown.startswith(begins):
                stage.until(other, pattern)
        code = next((code for begins, code in scene.codes.items() if shown.startswith(begins)), 0)
        stage.perform(shown, code=code)
    elif block.language == "toml":
        stage.configure(block)
    elif re.search(r"`[\w.-]+\.(?:py|mjs|js)`", block.lead):
        stage.save(block)
    else:
        exec(stage.fit(shown), dict(scene.names))  # noqa: S102  # it is what the document says


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_block_says_in_which_language_it_is_and_is_sound(document: str) -> None:
    for block in find_blocks(document):
        assert block.language in (*RUNNABLE, *SHOWN), f"{block}: {block.language!r}"
        match block.language:
            case "json":
                assert _read_values(block.text), f"{block}: no JSON"
            case "toml":
                assert tomllib.loads(block.text), f"{block}: no TOML"
            case "python":
                assert compile(block.text, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


def _read_values(text: str) -> list[Any]:
    decoder, values, text = json.JSONDecoder(), [], text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        values.append(value)
        text = text[end:].lstrip()
    return values


@pytest.mark.parametrize("row", NOT_RUN, ids=lambda row: f"{row.document}: {row.shown}")
def test_the_list_of_what_is_not_run_names_nothing_that_is_not_shown(row: Any) -> None:
    blocks = [block for each in DOCUMENTS if re.fullmatch(row.document, each) for block in find_blocks(each)]
    assert any(re.match(row.shown, shown) for block in blocks for shown in find_shown(block))


def test_every_scene_is_of_a_document_that_is_run() -> None:
    assert [document for document in SCENES if not is_run(document)] == []


def test_every_example_of_the_commands_is_one_that_they_take() -> None:
    blocks = [block for block in find_blocks("docs/reference/commands.md") if block.language == "sh"]
    commands = [command for block in blocks for command in find_commands(block)]
    assert len(commands) > 20
    for command in commands:
        _parse(main, shlex.split(re.split(r"[|<>]", command)[0])[1:])


def _parse(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """Parse a command line as it would be, and do nothing."""
    context = command.make_context(command.name or "dockbell", words, parent=parent)
    if isinstance(command, click.Group):
        _, sub, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert sub is not None
        _parse(sub, rest, context)


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "examples").iterdir()), ids=lambda path: path.name)
def test_every_example_is_shown_as_it_is(path: Path) -> None:
    shown = [
        block for each in DOCUMENTS for block in find_blocks(each) if block.text == path.read_text(encoding="utf-8")
    ]
    assert len(shown) == 1
    assert f"](../examples/{path.name})" in (ROOT / shown[0].document).read_text(encoding="utf-8")
