"""Redacts the API key and the proxy password: some servers echo them in errors."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from http import HTTPStatus
from typing import Final

import httpx

from dockbell.core.reading.response import Response

_SHORTEST: Final = 8  # shorter texts may be ordinary words


class Redactor:
    """The secrets of one account."""

    def __init__(self) -> None:
        self._key = ""
        self._proxy_words: tuple[str, ...] = ()

    def show(self, key: str) -> None:
        """Note the key that is about to be sent."""
        self._key = key

    def show_proxy(self, url: str) -> None:
        """Note the URL of the proxy that is about to be dialled: its password is sent as it is, and in base64."""
        try:
            auth = httpx.Proxy(url).raw_auth
        except (httpx.InvalidURL, ValueError):  # it will not be dialled
            auth = None
        words = () if auth is None else (b64encode(b":".join(auth)).decode(), auth[1].decode())
        self._proxy_words = tuple(filter(None, words))

    def redact(self, words: str) -> str:
        """Return a text about an answer without the secrets, also where one is cut short."""
        for secret in self._secrets:
            for end in range(len(secret), _SHORTEST - 1, -1):
                words = words.replace(secret[:end], "***")
        return words

    def redact_answer(self, response: Response) -> Response:
        """Return an answer without the secrets in its headers and its body."""
        headers, body = {name: self.redact(value) for name, value in response.headers.items()}, response.body
        for secret in self._secrets:
            if len(secret) >= _SHORTEST or response.status >= HTTPStatus.BAD_REQUEST:  # records may hold short texts
                body = body.replace(secret.encode(), b"***")
        return replace(response, headers=headers, body=body)

    @property
    def _secrets(self) -> tuple[str, ...]:
        return tuple(filter(None, (self._key, *self._proxy_words)))
