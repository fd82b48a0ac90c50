"""What several commands take."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dockbell.config import Config

config_option = click.option(
    "--config",
    "config_path",
    metavar="PATH",
    type=click.Path(),
    help="The configuration file; else $DOCKBELL_CONFIG, else ./dockbell.toml.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Log each request and each delivery.")


def read_config(config_path: str | None) -> Config:
    """Return the configuration that ``--config``, the environment or the working folder names.

    Raises:
        ConfigError: Every problem of it.
    """
    from dockbell.app import load_config
    from dockbell.config import find

    return load_config(find(config_path, os.environ))
