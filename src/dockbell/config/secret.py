"""Values that must not be seen."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Self

from pydantic import Field, model_serializer, model_validator

from dockbell.config.values import ConfigPath, conceal_url, name_kind, redact_url, split_url
from dockbell.config.wording import Settings
from dockbell.errors import ConfigError

_FORMS: Final = 'text, { env = "NAME" } or { file = "path" }'


class Revealed(str):
    """A secret's text, which tracebacks that show variables do not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class RevealedBytes(bytes):
    """Bytes with a secret in them, likewise."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "b'***'"


class Secret(Settings):
    """A value that must not be seen: given as text, by ``{ env = "NAME" }`` or by ``{ file = "path" }``.

    The value is looked up when it is needed, so that it can change while the daemon runs. ``str()``, ``repr()`` and
    JSON show where it comes from, never what it is.
    """

    value: str | None = None
    env: str | None = Field(default=None, min_length=1)
    file: ConfigPath | None = None

    @model_validator(mode="before")
    @classmethod
    def _take_text(cls, given: object) -> object:
        if isinstance(given, str):
            return {"value": given}
        if not isinstance(given, dict | Secret):
            raise ValueError(f"must be {_FORMS}, got {name_kind(given)}")  # noqa: TRY004  # pydantic takes ValueError
        return given

    @model_validator(mode="after")
    def _check(self) -> Self:
        if [self.value, self.env, self.file].count(None) != 2:  # noqa: PLR2004  # of three
            raise ValueError(f"must be exactly one of {_FORMS}")
        if self.value is not None:
            self._check_value(_clean(self.value))
        return self

    @classmethod
    def _check_value(cls, value: str) -> None:
        """Raise ValueError where a value is none such; it says nothing of the value that may be secret."""

    @property
    def is_bare(self) -> bool:
        return self.value is not None

    def reveal(self) -> str:
        """Look the value up and return it, without white space around it; ConfigError says why that fails."""
        subject = f"environment variable {self.env}" if self.env is not None else f"file {self.file}"
        try:
            value = Revealed(_clean(self._look_up()))
            self._check_value(value)
        except KeyError:
            remedy = 'export it, or use another { env = "NAME" } or { file = "path" }'
            raise ConfigError(f"{subject} is not set; {remedy}") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(f"{subject}: {reason}; make it readable, or use another") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{subject} must be UTF-8") from None
        except ValueError as error:
            raise ConfigError(f"{subject} {error}") from None
        return value

    def _look_up(self) -> str:
        if self.env is not None:
            return os.environ[self.env]
        if self.file is not None:
            return Path(self.file).read_text(encoding="utf-8")
        return self.value or ""

    def __str__(self) -> str:
        if self.env is not None:
            return f"env:{self.env}"
        return self._conceal() if self.file is None else f"file:{self.file}"

    def _conceal(self) -> str:
        return "***"

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Keep the value out of ``repr()`` and out of what rich prints."""
        yield None, str(self)

    @model_serializer
    def _hide(self) -> str | dict[str, str]:
        if self.env is not None:
            return {"env": self.env}
        return self._conceal() if self.file is None else {"file": self.file}


class SecretUrl(Secret):
    """A URL that may have a secret in it: a password, a query, or a path that only those know who may use it.

    Of one that is given as text, scheme, host and port are shown, of the others only where they come from.
    """

    @property
    def is_bare(self) -> bool:
        """Whether a value that is certainly secret stands in the configuration itself; a path may be one or not."""
        return self.value is not None and redact_url(self.value) != self.value

    def _conceal(self) -> str:
        return conceal_url(self.value or "")


class ProxyUrl(SecretUrl):
    """The URL of an HTTP proxy, maybe with a user and a password."""

    @classmethod
    def _check_value(cls, value: str) -> None:
        split_url(value, '"http://proxy.example.com:3128"', show_url=conceal_url)


def _clean(text: str) -> str:
    text = text.strip()
    if not text:
        raise ValueError("must not be empty")
    if not text.isprintable():
        raise ValueError("must be one line of printable text")
    return text
