"""``dockbell secret``."""

from __future__ import annotations

import click

_BYTES = 32


@click.command()
def secret() -> None:
    """Print a new secret for signing webhooks.

    \b
    Examples:
      export ERP_WEBHOOK_SECRET=$(dockbell secret)
      dockbell secret > erp.secret && chmod 600 erp.secret
    """
    import secrets

    from dockbell.core.publishing.signature import mint

    click.echo(mint(secrets.token_bytes(_BYTES)))
