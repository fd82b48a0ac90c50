"""What a subscriber may run into, typed by who must act.

The sender, or an attacker: :class:`NotGenuine`, :class:`NotAnEvent`. The author of the subscriber:
:class:`GapsUnknowable`. The subscriber, by reading the state again: :class:`PositionLost`. The operator:
:class:`PullRefused`. No one (temporary): :class:`PullUnavailable`.
"""

from __future__ import annotations

from dockbell.errors import DockbellError


class SubscriberError(DockbellError):
    """Base class of all errors that this package raises on purpose."""


class NotGenuine(SubscriberError):
    """A webhook has no valid signature, or its timestamp is too old or too new; respond with 401 and drop it."""


class NotAnEvent(SubscriberError):
    """The message is not a dockbell event; respond with 400, because a retry would send the same message."""


class GapsUnknowable(SubscriberError):
    """The sink has filters, so gaps cannot be detected: a filtered event looks like a lost one."""


class PositionLost(SubscriberError):
    """The pull feed cannot resume from a position: it was pruned, is past the end, or has another epoch.

    Attributes:
        oldest: The oldest position that it can resume from; None if the response does not say.
    """

    def __init__(self, text: str, oldest: str | None = None) -> None:
        super().__init__(text)
        self.oldest = oldest


class PullRefused(SubscriberError):
    """dockbell rejects the request, such as its token or the name of the feed; the operator must act."""


class PullUnavailable(SubscriberError):
    """No usable response for now: connection refused, timeout, 5xx, or unexpected content; retry later."""
