"""``config.example.toml`` says of every key what the models say, and nothing else."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from dockbell.config import (
    Config,
    NamedEventSettings,
    ResourceSettings,
    SinkSettings,
    SourceDefaults,
    SourceSettings,
    StoreSettings,
    WebSettings,
    check_secrets,
    load,
    validate,
)
from dockbell.sinks import find_sink_types, load_sink_type
from dockbell.sinks.webhook.settings import OAuth2, WebhookSettings

EXAMPLE = Path(__file__).parents[2] / "config.example.toml"
TEXT = EXAMPLE.read_text(encoding="utf-8")
UNCOMMENTED = re.sub(r"(?m)^# (?=\[+[a-z0-9_.]+\]|[a-z_]+ = )", "", TEXT)
WHOLE: dict[str, Any] = tomllib.loads(UNCOMMENTED)


def _find_model(kind: str) -> type[SinkSettings]:
    return load_sink_type(kind).Settings


def _settings() -> Iterator[tuple[BaseModel, dict[str, Any]]]:
    """Yield the model of each table that shows keys, uncommented, and what is written in it."""
    config = validate(WHOLE, _find_model)
    assert config.resources.shipments is not None
    yield config, WHOLE
    yield config.store, WHOLE["store"]
    assert config.web is not None
    yield config.web, WHOLE["web"]
    yield config.source_defaults, WHOLE["source_defaults"]
    yield config.sources["main"], WHOLE["sources"]["main"]
    yield config.resources.shipments, WHOLE["resources"]["shipments"]
    assert config.resources.stock is not None
    yield config.resources.stock.events[0], WHOLE["resources"]["stock"]["events"][0]
    for name, sink in config.sinks.items():
        yield sink, WHOLE["sinks"][name]
        if isinstance(sink, WebhookSettings) and sink.oauth2 is not None:
            yield sink.oauth2, WHOLE["sinks"][name]["oauth2"]


def test_as_it_is_it_changes_no_default() -> None:
    config = load(EXAMPLE, _find_model)
    source = {"base_url": "http://127.0.0.1:8480", "api_key": "sandbox"}
    minimal = validate({"sources": {"main": source}}, _find_model, folder=EXAMPLE.parent)
    assert config.feeds() == minimal.feeds()
    assert config.model_dump(exclude={"resources", "sinks"}) == minimal.model_dump(exclude={"resources", "sinks"})
    assert config.sinks == {"screen": _find_model("stdout")(type="stdout")}
    check_secrets(config)


def test_every_key_is_written_and_no_other() -> None:
    written = {type(settings): set(table) for settings, table in _settings()}
    written[ResourceSettings] |= set(WHOLE["sources"]["main"]["resources"]["warehouses"])  # cron excludes every
    written[ResourceSettings] |= set(WHOLE["resources"]["stock"])  # events are tables of their own
    common = written[_find_model("stdout")]
    assert written[Config] == set(Config.model_fields)
    assert written[StoreSettings] == set(StoreSettings.model_fields)
    assert written[WebSettings] == set(WebSettings.model_fields)
    assert written[SourceSettings] == set(SourceSettings.model_fields) == set(SourceDefaults.model_fields)
    assert written[SourceDefaults] <= set(SourceDefaults.model_fields)
    assert written[NamedEventSettings] == set(NamedEventSettings.model_fields)
    assert written[ResourceSettings] == set(ResourceSettings.model_fields)
    assert written[OAuth2] == set(OAuth2.model_fields)
    for kind in find_sink_types():
        assert written[_find_model(kind)] | common == set(_find_model(kind).model_fields)


def test_a_key_that_has_a_default_is_written_with_it() -> None:
    for settings, table in _settings():
        for name, field in type(settings).model_fields.items():
            default = field.get_default(call_default_factory=True, validated_data={})
            is_table = isinstance(default, BaseModel) or name in ("sources", "sinks")
            if name in table and not is_table and not field.is_required() and default is not None:
                assert getattr(settings, name) == default, f"{type(settings).__name__}.{name}"


@pytest.mark.parametrize("line", [line for line in UNCOMMENTED.splitlines() if re.match(r"[a-z_]+ = ", line)])
def test_each_key_has_its_line_of_meaning(line: str) -> None:
    assert re.fullmatch(r"[a-z_]+ = [^#]+?  +# \S.{5,}", line)
