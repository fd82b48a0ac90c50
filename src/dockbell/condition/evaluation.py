"""What a condition says, and the one home of the library that finds it out.

The library is imported by those alone who use it: that takes 150 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import cel


class Answer(StrEnum):
    """What an expression says of a change."""

    YES = "holds"
    NO = "does not hold"
    MISSING = "names a member that is not there"
    MISMATCH = "combines values of kinds that do not go together"
    COSTLY = "takes too long to judge of so large a record"
    BROKEN = "cannot be evaluated"

    @property
    def is_plain(self) -> bool:
        """Whether it is yes or no; every other answer is worth counting."""
        return self in (Answer.YES, Answer.NO)

    @property
    def lets_through(self) -> bool:
        """Whether it counts as a yes: what takes too long to judge goes out rather than vanishing."""
        return self in (Answer.YES, Answer.COSTLY)

    @property
    def is_held_back(self) -> bool:
        """Whether it is a no, or counts as one; what cannot be judged at all is neither yes nor no."""
        return self in (Answer.NO, Answer.MISSING, Answer.MISMATCH)


_ANSWERS: Final = {
    KeyError: Answer.MISSING,
    IndexError: Answer.MISSING,
    TypeError: Answer.MISMATCH,
    MemoryError: Answer.COSTLY,
}


def compile_text(text: str) -> cel.Program:
    """Return an expression in the library's form.

    Raises:
        ValueError: It is none.
    """
    import cel  # noqa: PLC0415  # as above

    return cel.compile(text)


def make_context(values: Mapping[str, Any]) -> cel.Context:
    """Return the values of variables in the library's form."""
    import cel  # noqa: PLC0415  # as above

    return cel.Context(dict(values))


def evaluate(program: cel.Program, open_context: Callable[[], cel.Context]) -> Answer:
    """Return what an expression says; it never raises, and takes as long as it takes."""
    try:
        value = program.execute(open_context())
    except Exception as error:  # noqa: BLE001  # whatever it is, the change itself must go on
        return _ANSWERS.get(type(error), Answer.BROKEN)
    return (Answer.YES if value else Answer.NO) if isinstance(value, bool) else Answer.MISMATCH
