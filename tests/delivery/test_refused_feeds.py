from __future__ import annotations

from dockbell.core.model import Feed
from dockbell.delivery.refused_feeds import RefusedFeeds

STOCK, ITEMS, PACKAGES = (Feed("main", resource) for resource in ("stock", "items", "packages"))
KEY_REFUSED = "HTTP 401: the key is unknown"


def _refuse(*feeds: Feed, reason: str = KEY_REFUSED) -> RefusedFeeds:
    refused = RefusedFeeds()
    for feed in feeds:
        refused.add(feed, f"GET /v1/{feed.resource}: {reason}")
    return refused


def test_feeds_of_a_source_are_alike_whose_requests_get_one_answer() -> None:
    refused = _refuse(STOCK, ITEMS, Feed("other", "stock"))
    refused.add(PACKAGES, "GET /v1/packages: HTTP 403: not in your plan")
    assert refused.find_alike([*refused]) == [[ITEMS, STOCK], [PACKAGES], [Feed("other", "stock")]]


def test_a_feed_that_is_refused_later_for_the_same_joins_those_that_are_joined() -> None:
    refused = _refuse(STOCK, ITEMS)
    refused.join([STOCK, ITEMS])
    assert refused.add(PACKAGES, f"GET /v1/packages: {KEY_REFUSED}")
    assert refused.is_joined(PACKAGES)
    assert not refused.add(PACKAGES, f"GET /v1/packages: {KEY_REFUSED}")


def test_a_feed_that_is_refused_for_another_reason_joins_none() -> None:
    refused = _refuse(STOCK, ITEMS)
    refused.join([STOCK, ITEMS])
    assert not refused.add(PACKAGES, "GET /v1/packages: HTTP 403: not in your plan")
    assert not refused.is_joined(PACKAGES)


def test_joined_feeds_are_described_once_for_each_cause() -> None:
    refused = _refuse(STOCK, ITEMS)
    refused.join([STOCK, ITEMS])
    assert refused.describe_joined("main") == f"items and stock are not read: GET /v1/items: {KEY_REFUSED}"
    refused.add(STOCK, "GET /v1/stock: HTTP 403: not in your plan")
    assert refused.describe_joined("main") == (
        f"items is not read: GET /v1/items: {KEY_REFUSED}; stock is not read: GET /v1/stock: HTTP 403: not in your plan"
    )


def test_a_source_has_joined_feeds_until_the_last_is_read() -> None:
    refused = _refuse(STOCK, ITEMS)
    refused.join([STOCK, ITEMS])
    refused.remove(STOCK)
    assert refused.has_joined("main")
    refused.remove(ITEMS)
    assert not refused.has_joined("main")
    assert [*refused] == []
