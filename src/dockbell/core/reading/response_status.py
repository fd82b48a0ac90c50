"""What the status of an answer means: a success, or an error typed by who must act."""

from __future__ import annotations

import re
from typing import Final

from dockbell.core.reading.request import Request
from dockbell.core.reading.response import NOT_FOUND, Response
from dockbell.core.reading.response_headers import read_retry_after
from dockbell.core.reading.response_words import clean, excerpt
from dockbell.errors import CursorExpired, RateLimited, RequestRefused, SourceRefused, SourceUnavailable

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CURSOR_LOST: Final = frozenset({400, 404, 410, 422})
_PASSING: Final = frozenset({408, 425})
_PARTIAL_CONTENT: Final = 206


def check_status(request: Request, response: Response) -> None:
    """Raise what the status of an answer means; return when it is a success.

    Raises:
        SourceRefused: The key is not accepted (401, 403), or the API is elsewhere (3xx).
        RequestRefused: The request as such is not accepted.
        RateLimited: The key's budget is used up (429).
        CursorExpired: 400, 404, 410 or 422 on a page after the first.
        SourceUnavailable: Everything that passes by itself.
    """
    status = response.status
    fact = f"{request}: HTTP {status}"
    if status == _PARTIAL_CONTENT:
        raise SourceUnavailable(f"{fact}, a part of the answer only, which was not asked for")
    if 200 <= status < 300:  # noqa: PLR2004  # the class of successes
        return
    if status in _REDIRECTS:
        host = re.match(r"https?://(?:[^/?#@]*@)?([^/?#]+)", response.headers.get("location", ""), re.IGNORECASE)
        where = clean(host[1]) if host else "the same host"
        raise SourceRefused(f"{fact}, a redirect to {where} that is not followed; set base_url to where the API is")
    said = excerpt(response)
    if status in {401, 403}:
        raise SourceRefused(f"{fact}{said}; the API does not accept the key, check api_key")
    if status == 429:  # noqa: PLR2004  # api-spec.md, "Errors"
        raise RateLimited(f"{fact}, the key's budget is used up", read_retry_after(response))
    if request.continues and status in _CURSOR_LOST:
        is_refusal = status not in NOT_FOUND
        left = "the cursor is not accepted" if is_refusal else "the cursor is no longer known"
        raise CursorExpired(f"{fact}{said}; {left}", is_refusal=is_refusal)
    if 400 <= status < 500 and status not in _PASSING:  # noqa: PLR2004  # the class of the client's faults
        raise RequestRefused(f"{fact}{said}; check base_url and the query of this resource")
    raise SourceUnavailable(f"{fact}{said}")
