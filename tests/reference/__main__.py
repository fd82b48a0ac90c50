"""Writes the reference: ``python -m tests.reference``."""

from __future__ import annotations

from tests.reference import config_schema
from tests.reference.pages import FOLDER, PAGES

for name, write in PAGES.items():
    path = FOLDER / f"{name}.md"
    path.write_text(write(), encoding="utf-8")
    print(path)
config_schema.PATH.write_text(config_schema.write(), encoding="utf-8")
print(config_schema.PATH)
