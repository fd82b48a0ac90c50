"""Named events: what an operator calls a change that matters, such as ``low`` for stock that has just run low."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dockbell.config import Answer, Expression, Facts, LooksAt, NamedEventSettings, unite
from dockbell.core.model import Change

Evaluate: TypeAlias = Callable[[Expression, Facts], Answer]
"""Evaluates a condition for a change."""
_SMALL: Final = 1000


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
    """The named events of one feed.

    Args:
        named: As configured.
        evaluate: Evaluates their conditions.
    """

    def __init__(self, named: Sequence[NamedEvent] = (), evaluate: Evaluate = Expression.evaluate) -> None:
        self._evaluate = evaluate
        self._named = tuple(named)
        self._looks_at = unite(each.when for each in self._named)

    def evaluate(self, change: Change) -> Iterator[tuple[str, Answer]]:
        """Yield each name and the answer of its condition for a change; an answer that passes makes an event.

        ``before`` and ``after`` are the records, numbers with a fraction as doubles; an empty object where there is
        none, so that a comparison with it is never a yes. ``changed`` is empty where nothing can be compared.
        """
        if not self._named:
            return
        together = self._find_facts(self._looks_at, change)
        for each in self._named:
            # Of a large record, each condition decodes only its own members.
            facts = together if together.size_most < _SMALL else self._find_facts(each.when.looks_at, change)
            yield each.name, self._evaluate(each.when, facts)

    def _find_facts(self, looks_at: LooksAt, change: Change) -> Facts:
        return Facts(
            looks_at,
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
