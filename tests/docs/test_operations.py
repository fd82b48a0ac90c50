"""What stands at the head of the files to run dockbell by is what the documents beside them show."""

from __future__ import annotations

import re

import pytest

from tests.docs.markdown import read


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
