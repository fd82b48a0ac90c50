"""The configuration that several processes follow: the newest revision, as this one of them reads it."""

from __future__ import annotations

import msgspec
from anyio import to_thread

from dockbell.app import opening
from dockbell.config import Config, check_secrets
from dockbell.config.shared import count_losses, decode, encode_shared, find_digest
from dockbell.config.values import show
from dockbell.errors import ConfigError
from dockbell.ports import Configurations, Revision
from dockbell.telemetry import ConfigurationOutdated, ReloadRefused, Telemetry


class Revisions:
    """What one process follows, as long as it runs.

    Attributes:
        own: What its file says.
        followed: What it works by; its file, until it has joined others.
        number: Of the revision that it has looked at last; 0 before it has joined.
        warning: That its file is not followed, and why; None where it is.
    """

    def __init__(self, own: Config, telemetry: Telemetry) -> None:
        self.own = own
        self.followed = own
        self.number = 0
        self.warning: ConfigurationOutdated | None = None
        self._telemetry = telemetry
        self._configurations: Configurations

    async def join(self, configurations: Configurations) -> Config:
        """Agree with the other processes on a revision, and return it.

        A process that begins anew goes on with what it has followed where it cannot use the newest one.

        Raises:
            ConfigError: It cannot be used.
            StoreError: The store cannot be used.
        """
        has_joined, self._configurations = self.number > 0, configurations
        try:
            self.followed = await self.agree(self.own)
        except ConfigError as error:
            if not has_joined:
                raise
            self._telemetry.emit(ReloadRefused(error.problems))
        return self.followed

    async def agree(self, own: Config) -> Config:
        """Make what the file says the newest revision, unless it was one before; return the newest.

        Raises:
            ConfigError: What the file says, or the newest revision, cannot be used by this process.
            StoreError: The store cannot be used.
        """
        check_secrets(own)
        for name in own.sinks:  # what cannot be opened here is not for others either
            opening.open_sink(own, name, Telemetry(), aside=True)
        agreed = await agree(self._configurations, own)
        self.own, self.number, self.warning = own, agreed.revision.number, agreed.warning
        if self.warning is not None:
            self._telemetry.emit(self.warning)
        return await self._load(agreed.revision)

    async def find_newer(self) -> Revision | None:
        """Return the newest revision, where it is newer than what was looked at; cheap to call often.

        Raises:
            StoreError: The store cannot be used.
        """
        return await self._configurations.find_newest(self.number)

    async def read(self, revision: Revision) -> Config | None:
        """Return a newer revision; None where one that is as new was looked at meanwhile.

        Raises:
            ConfigError: It cannot be used.
        """
        if revision.number <= self.number:
            return None
        self.number = revision.number  # once: what cannot be used now is tried again when the next one comes
        return await self._load(revision)

    async def _load(self, revision: Revision) -> Config:
        """Return a revision as this process reads it; it need not use every source, and one that is ill fails alone."""
        config = await to_thread.run_sync(opening.load_revision, self.own, revision)
        check_secrets(config.only(()))
        return config


class Agreed(msgspec.Struct, frozen=True):
    """What came of a file that processes were to follow.

    Attributes:
        revision: The newest one.
        drops: Sources of the revision before that the file does not have.
        changes: Sources that it has otherwise.
    """

    revision: Revision
    drops: int = 0
    changes: int = 0

    @property
    def warning(self) -> ConfigurationOutdated | None:
        """That the file is not followed, and why; None where it is."""
        found = self.revision
        if not found.outdated and not found.is_other:
            return None
        return ConfigurationOutdated(found.outdated, found.number, self.drops, self.changes)


async def agree(configurations: Configurations, own: Config, *, force: bool = False) -> Agreed:
    """Make what a file says the newest revision, unless it was one before; see :meth:`Configurations.agree`.

    Raises:
        ConfigError: It has another name than the processes have.
        StoreError: The store cannot be used.
    """
    content = encode_shared(own.written.table)
    newest = await configurations.find_newest()
    losses = 0, 0
    if newest is not None:
        losses = count_losses(content, newest.content)
        there = decode(newest.content).get("name", Config.model_fields["name"].default)
        if there != own.name and not force:
            raise ConfigError(
                f"name: must be {show(there)}, as in the other processes on this store, got {show(own.name)};"
                ' correct it, or run "dockbell apply --force" and restart them all to rename them'
            )
    return Agreed(await configurations.agree(find_digest(content), content, force=force), *losses)
