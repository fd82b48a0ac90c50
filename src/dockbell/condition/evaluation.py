"""What a condition says of a change, by the library that evaluates it.

The library is imported when it is used: that takes 150 ms.
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
        """Whether it is yes or no; other answers are counted."""
        return self in (Answer.YES, Answer.NO)

    @property
    def lets_through(self) -> bool:
        """Whether it counts as a yes: a change that takes too long to judge is delivered."""
        return self in (Answer.YES, Answer.COSTLY)

    @property
    def is_held_back(self) -> bool:
        """Whether it is a no, or counts as one; BROKEN is neither yes nor no."""
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
    import cel  # noqa: PLC0415  # as above

    return cel.Context(dict(values))


def find_value(program: cel.Program, open_context: Callable[[], cel.Context]) -> Any:
    """Return the value of an expression, however long that takes.

    Raises:
        ValueError: It has none.
    """
    try:
        return program.execute(open_context())
    except Exception as error:  # noqa: BLE001  # the library raises errors of many kinds
        told = str(error).strip("'\"")
        raise ValueError(f"{_ANSWERS.get(type(error), Answer.BROKEN)}: {told}") from None


def evaluate(program: cel.Program, open_context: Callable[[], cel.Context]) -> Answer:
    """Return what an expression says, however long that takes; it never raises."""
    try:
        value = program.execute(open_context())
    except Exception as error:  # noqa: BLE001  # whatever it is, the change itself must go on
        return _ANSWERS.get(type(error), Answer.BROKEN)
    return (Answer.YES if value else Answer.NO) if isinstance(value, bool) else Answer.MISMATCH
