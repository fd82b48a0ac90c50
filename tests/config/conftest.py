"""A kind of sink to configure, and a way to write and load a file."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from dockbell.config import Config, ConfigPath, Duration, Secret, SinkSettings, load, suggest
from dockbell.errors import ConfigError


class PagerSettings(SinkSettings):
    """A sink as a plug-in would bring it."""

    type: Literal["pager"]
    token: Secret | None = None
    headers: dict[str, Secret] = Field(default_factory=dict)
    spares: list[Secret] = Field(default_factory=list)
    lanes: int = Field(default=1, ge=1, lt=5)
    pause: Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(minutes=2))] = timedelta(seconds=1)
    loud: bool = False
    cert_file: ConfigPath | None = None


def find_model(kind: str) -> type[SinkSettings]:
    """Return the one model there is here."""
    if kind != "pager":
        raise ConfigError(f'sink type "{kind}": unknown; {suggest(kind, ["pager"])}')
    return PagerSettings


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Config]:
    """Return what writes ``dockbell.toml`` into a folder of its own, and loads it there."""
    monkeypatch.chdir(tmp_path)

    def write_and_load(text: str) -> Config:
        Path("dockbell.toml").write_text(text, encoding="utf-8")
        return load(Path("dockbell.toml"), find_model)

    return write_and_load


@pytest.fixture
def problems(read: Callable[[str], Config]) -> Callable[[str], list[str]]:
    """Return what loads a text that cannot be used, and gives its problems without the file's name."""

    def load_and_fail(text: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            read(text)
        assert all(problem.startswith("dockbell.toml: ") for problem in caught.value.problems)
        return [re.sub(r"^dockbell\.toml: (line \d+: )?", "", problem) for problem in caught.value.problems]

    return load_and_fail
