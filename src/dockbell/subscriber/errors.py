"""What a subscriber may run into, typed by who must act.

The sender, or an impostor: :class:`NotGenuine`, :class:`NotAnEvent`. The author of the subscriber:
:class:`GapsUnknowable`. The subscriber, by reading the stored records again: :class:`PositionLost`. The operator:
:class:`PullRefused`. No action, it passes by itself: :class:`PullUnavailable`.
"""

from __future__ import annotations

from dockbell.errors import DockbellError


class SubscriberError(DockbellError):
    """Every error that this package raises on purpose."""


class NotGenuine(SubscriberError):
    """A webhook was not signed with the secret, or is too old; answer 401 and forget it."""


class NotAnEvent(SubscriberError):
    """What came is no event of dockbell; answer 400, since another attempt would bring the same."""


class GapsUnknowable(SubscriberError):
    """What a sink's filters hold back looks the same as what was lost: gaps cannot be looked for."""


class PositionLost(SubscriberError):
    """The pull feed cannot go on from a position: it is pruned, or of another life of the store.

    Attributes:
        oldest: The oldest position that it can go on from; None where it does not say.
    """

    def __init__(self, text: str, oldest: str | None = None) -> None:
        super().__init__(text)
        self.oldest = oldest


class PullRefused(SubscriberError):
    """Dockbell does not accept the token, or knows no such feed; the operator must act."""


class PullUnavailable(SubscriberError):
    """No usable answer for now: refused, timed out, 5xx, or not what was asked for; ask again later."""
