"""Named events: what an operator calls a change that matters, such as ``low`` for stock that has just run low."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dockbell.config import Answer, Expression, Facts, NamedEventSettings, unite
from dockbell.core.model import Change


@dataclass(frozen=True, slots=True)
class NamedEvent:
    """An event of the operator's own.

    Attributes:
        name: The last part of its type.
        when: Which changes it follows.
    """

    name: str
    when: Expression


def read_named(settings: Sequence[NamedEventSettings]) -> tuple[NamedEvent, ...]:
    """Return the named events of a resource, as they are configured."""
    return tuple(NamedEvent(each.name, Expression(each.when)) for each in settings)


class NamedEvents:
    """The named events of one feed."""

    def __init__(self, named: Sequence[NamedEvent] = ()) -> None:
        self._named = tuple(named)
        self._looks_at = unite(each.when for each in self._named)

    def judge(self, change: Change) -> Iterator[tuple[str, Answer]]:
        """Yield each name and what its condition says of a change; only a plain yes makes an event.

        ``before`` and ``after`` are the records, numbers with a fraction as doubles; an empty object where there is
        none, so that a comparison with it is never a yes. ``changed`` is empty where nothing can be compared.
        """
        if not self._named:
            return
        facts = Facts(
            self._looks_at,
            before=change.before or b"",
            after=change.after or b"",
            others={
                "change": str(change.kind),
                "changed": change.changed or [],
                "key": change.key.text,
                "resource": change.feed.resource,
                "source": change.feed.source,
            },
        )
        for each in self._named:
            yield each.name, each.when.judge(facts)
