"""Measures with a few requests how an API behaves: makes a report, and a configuration for it.

- ``asking``: the requests, counted; when to stop.
- ``measuring``: the measurements of each feed of a source.
- ``signals``: whether the polls of one feed show the changes of another.
- ``findings``: what they say of the source and of a feed, with the evidence.
- ``advising``: the TOML for it, with a reason on every line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from dockbell.admin.probing.advising import KEY_VARIABLE, Advice, advise
from dockbell.admin.probing.asking import Asker, Line
from dockbell.admin.probing.findings import Finding, State, tell_feed, tell_source
from dockbell.admin.probing.measuring import Measured, measure
from dockbell.config import FeedSettings, SourceSettings
from dockbell.core.model import Feed

__all__ = ["APART", "KEY_VARIABLE", "REQUESTS", "Advice", "Finding", "Line", "Report", "State", "probe"]

REQUESTS: Final = 40
"""How many requests measure nearly everything about five resources."""
APART: Final = timedelta(seconds=3)
"""How long after the first reading of a page the second comes."""

_ADVICE: Final = (
    '# Measured by "dockbell probe" with {sent} of {requests} requests; what it could not measure is assumed.\n'
    "# Keep key set: a learned key is provisional. Until a complete pass proves it unique, dockbell publishes no\n"
    "# deletions, and no events at all unless it is the record's own id.\n"
)


class Report(msgspec.Struct, frozen=True):
    """What was measured of one source."""

    source: str
    sent: int  # how many requests were sent
    findings: Sequence[Finding]  # what was found, the source first, then its feeds
    toml: str  # the configuration for it, with a reason on every line; empty when nothing could be read
    advice: Advice | None = None  # the same, not written yet; None when nothing could be read

    @property
    def fails(self) -> bool:
        """Whether an operator must act."""
        return any(each.state is State.FAILS for each in self.findings)


async def probe(
    name: str,
    settings: SourceSettings,
    feeds: Sequence[FeedSettings],
    line: Line,
    *,
    requests: int = REQUESTS,
    apart: timedelta = APART,
    tell: Callable[[int], None] = lambda _: None,
) -> Report:
    """Measure how the API of one source behaves, by at least one of its feeds; nothing is stored or changed there.

    At most so many requests are sent, for what matters most first; ``tell`` is told before each how many were. A page
    is read again after ``apart`` at the earliest.
    """
    asker = Asker(line, requests=requests, share=settings.share, tell=tell)
    measured = [Measured(Feed(name, each.resource), each.settings) for each in feeds]
    await measure(measured, asker, apart=apart)
    findings = [*tell_source(name, asker), *(finding for each in measured for finding in tell_feed(each))]
    if all(each.problem for each in measured):
        return Report(name, asker.sent, findings, "")
    advice = advise(settings, asker, measured)
    toml = _ADVICE.format(sent=asker.sent, requests=requests) + advice.write(name)
    return Report(name, asker.sent, findings, toml, advice)
