"""The reference is what the code says today."""

from __future__ import annotations

import pytest

from tests.reference import config_schema
from tests.reference.markdown import COMMAND
from tests.reference.pages import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_what_the_code_says(name: str) -> None:
    written = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert written == PAGES[name](), f"docs/reference/{name}.md is not what the code says; run: {COMMAND}"


def test_the_schema_of_the_configuration_is_what_the_models_say() -> None:
    written = config_schema.PATH.read_text(encoding="utf-8")
    assert written == config_schema.write(), f"{config_schema.PATH} is not what the models say; run: {COMMAND}"


def test_there_is_no_other_page() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == set(PAGES)
