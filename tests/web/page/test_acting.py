"""What an operator does on the page is done: the store says so, not the page alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.page.browser import visiting
from tests.web.page.stage import TOKEN, Stage

pytestmark = pytest.mark.acceptance

HURRY = """
() => {
  const given = AbortSignal.timeout.bind(AbortSignal);
  AbortSignal.timeout = (ms) => given(ms / 50);
}
"""
SIGN_IN = """
(token) => fetch('session', {
  method: 'POST', headers: {'content-type': 'application/json'}, body: JSON.stringify({token}),
})
"""


def open_row(page: Page, name: str) -> None:
    """Open a feed or a sink."""
    opener = page.get_by_role("button", name=name, exact=True)
    if opener.get_attribute("aria-expanded") == "false":
        opener.click()
    expect(opener).to_have_attribute("aria-expanded", "true")


def act(page: Page, name: str, *, confirm: bool = False, reason: str = "") -> None:
    """Press a button, and again in the dialog that asks."""
    page.get_by_role("button", name=name, exact=True).click()
    if confirm:
        dialog = page.get_by_role("dialog")
        if reason:
            dialog.get_by_role("textbox").fill(reason)
        dialog.get_by_role("button", name=name.partition(":")[0], exact=True).click()
        expect(dialog).to_be_hidden()


def read_dead(stage: Stage) -> set[str]:
    """Return the keys of all dead letters."""
    return {key for (key,) in stage.read("SELECT key FROM dead_letters")}


def read_news(page: Page, words: str) -> None:
    """Wait for the outcome to be said, and close it."""
    expect(page.locator("#outcome .done")).to_contain_text(re.compile(words))
    page.locator("#outcome").get_by_role("button", name="Close").click()


@pytest.fixture(scope="module")
def page(browser: Browser, stage: Stage) -> Iterator[Page]:
    """Return one page for all of them: an operator's stays open too."""
    with visiting(browser, stage.signed_in) as page:
        expect(page.locator("#everything")).to_be_visible()
        yield page


@pytest.fixture(autouse=True)
def settled(stage: Stage) -> Iterator[None]:
    """Leave nothing to the next test that somebody would have to look at."""
    yield
    stage.shop.refused.clear()


def test_a_sink_is_paused_with_a_reason_and_resumed(page: Page, stage: Stage) -> None:
    open_row(page, "floor")
    act(page, "Pause: floor", confirm=True, reason="stocktaking")
    read_news(page, "^Pause floor: ")
    assert stage.read("SELECT sink, reason FROM pauses") == [("floor", "stocktaking")]
    expect(page.locator("[id='sink:floor'] .state")).to_have_text(re.compile("paused"))
    expect(page.locator("#verdict-words")).to_have_text("One thing to look at")
    act(page, "Resume: floor")
    read_news(page, "^Resume floor: ")
    assert stage.read("SELECT sink FROM pauses") == []
    expect(page.locator("#verdict-words")).to_have_text("All is well")


def test_a_pause_that_is_thought_better_of_is_none(page: Page, stage: Stage) -> None:
    open_row(page, "floor")
    act(page, "Pause: floor")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    act(page, "Pause: floor")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert stage.read("SELECT sink FROM pauses") == []


def test_dead_letters_are_retried_and_discarded_one_by_one_or_all(page: Page, stage: Stage) -> None:
    keys = [f"shp_dead_{n}" for n in range(5)]
    stage.shop.refused.update(keys)
    for key in keys:
        stage.shop.put("shipments", key, status="new")
    changes = count()

    def are_dead() -> bool:
        stage.shop.put(
            "shipments", "shp_taken", status=f"{next(changes)}"
        )  # else the receiver itself seems to be at fault
        return len(read_dead(stage)) == len(keys)

    stage.until(are_dead)
    expect(page.locator("[id='sink:erp'] .state")).to_have_text(re.compile("dead letters"))
    open_row(page, "erp")
    expect(page.locator(".letters .error").first).to_contain_text("422")

    act(page, f"Discard: main/shipments {keys[0]}", confirm=True)
    expect(page.locator(".letters li")).to_have_count(4)
    assert page.evaluate("document.activeElement.closest('.drawer') !== null")  # where the button was
    read_news(page, "^Discard ")
    assert read_dead(stage) == set(keys[1:])
    stage.shop.refused.discard(keys[1])
    act(page, f"Retry: main/shipments {keys[1]}")
    read_news(page, "^Retry ")
    stage.until(lambda: ("erp", keys[1]) in stage.shop.taken)
    expect(page.locator(".letters li")).to_have_count(3)
    stage.shop.refused.discard(keys[2])
    act(page, "Retry all: erp")
    read_news(page, "^Retry all erp: ")
    stage.until(lambda: ("erp", keys[2]) in stage.shop.taken and len(read_dead(stage)) == 2)
    act(page, "Discard all: erp", confirm=True)
    read_news(page, "^Discard all erp: ")
    assert read_dead(stage) == set()
    expect(page.locator(".letters")).to_have_count(0)
    assert not {("erp", key) for key in (keys[0], *keys[3:])} & set(stage.shop.taken)


def test_an_event_is_sent_again(browser: Browser, stage: Stage) -> None:
    stage.shop.put("shipments", "shp_again", status="new")
    stage.until(lambda: stage.read("SELECT 1 FROM attempts WHERE key = 'shp_again' AND sink = 'erp'"))
    ((sequence,),) = stage.read("SELECT sequence FROM events WHERE key = 'shp_again'")
    with visiting(browser, stage.signed_in) as page:
        expect(page.locator("#everything")).to_be_visible()
        page.goto(f"{stage.url}#event=main/shipments/{sequence}")
        act(page, f"Send again: main/shipments #{sequence} to erp")
        read_news(page, "it is sent again, marked as a replay")
    again = "SELECT 1 FROM attempts WHERE key = 'shp_again' AND sink = 'erp' AND is_replay = 1"
    stage.until(lambda: stage.read(again))


def test_a_feed_is_reconciled(page: Page, stage: Stage) -> None:
    query = "SELECT count(*) FROM runs JOIN feeds ON feeds.id = feed WHERE resource = 'items' AND kind = 'pass'"
    (before,) = stage.read(query)
    open_row(page, "main/items")
    act(page, "Reconcile: main/items")
    read_news(page, "^Reconcile main/items: (?!asked)")
    stage.until(lambda: stage.read(query) > [before])


@pytest.mark.parametrize(
    ("resource", "decision", "deleted"),
    [("stock", "Reject", 0), ("warehouses", "Approve", 30)],
    ids=["reject", "approve"],
)
def test_held_deletions_are_decided(page: Page, stage: Stage, resource: str, decision: str, deleted: int) -> None:
    records = dict(stage.shop.records[resource])
    stage.shop.records[resource] = dict(list(records.items())[30:])
    feed = f"main/{resource}"
    reason = page.locator("#verdict li").filter(has_text=f"{feed}: 30 records are absent")
    expect(reason).to_be_visible()
    reason.get_by_role("link").click()
    expect(page.get_by_role("button", name=feed, exact=True)).to_be_focused()
    expect(page.locator(f"[id='feed:{feed}'] .keys li")).to_have_count(11)
    title = f"{decision}: " + ("deletions" if decision == "Reject" else "30 deletions") + f" of {feed}"
    act(page, title, confirm=decision == "Approve")
    read_news(page, f"^{decision} ")
    stage.until(lambda: stage.count_events(resource, "deleted") == deleted)
    expect(reason).to_have_count(0)
    assert stage.read("SELECT suspended FROM feeds WHERE resource = ?", resource) == [(0,)]
    stage.shop.put_again(resource, records)
    stage.until(lambda: stage.count_events(resource, "restored") == deleted)


@pytest.mark.parametrize(
    ("resource", "decision", "updated"),
    [("stock", "Absorb", 0), ("warehouses", "Publish", 40)],
    ids=["absorb", "publish"],
)
def test_drift_is_decided(page: Page, stage: Stage, resource: str, decision: str, updated: int) -> None:
    before = stage.count_events(resource, "updated")
    stage.shop.records[resource] = {
        key: record | {"revised": "<i>yes</i>"} for key, record in stage.shop.records[resource].items()
    }
    feed = f"main/{resource}"
    expect(page.locator(f"[id='feed:{feed}'] .state")).to_have_text(re.compile("drift"))
    open_row(page, feed)
    expect(page.locator(f"[id='feed:{feed}'] .decide code")).to_have_text("/revised")
    act(page, f"{decision}: drift of {feed}", confirm=decision == "Publish")
    read_news(page, f"^{decision} drift of {feed}: ")
    expect(page.locator("#verdict-words")).to_have_text("All is well")
    stage.until(lambda: stage.count_events(resource, "updated") == before + updated)


def test_whoever_has_no_token_sees_nothing_until_it_is_given(browser: Browser, stage: Stage) -> None:
    with visiting(browser, stage.url, refused="401") as page:
        token = page.get_by_label("Token")
        expect(token).to_be_focused()
        expect(page.locator("#everything")).to_be_hidden()
        token.fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).not_to_be_empty()
        token.fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("#verdict-words")).to_be_visible()
        expect(page.get_by_role("alert")).to_be_hidden()
        page.get_by_role("button", name="Sign out").click()
        expect(token).to_be_visible()


def test_acts_go_on_where_another_tab_signed_in_anew(browser: Browser, stage: Stage) -> None:
    with visiting(browser, stage.signed_in, refused="403") as page:
        expect(page.locator("#verdict-words")).to_be_visible()
        page.evaluate(SIGN_IN, TOKEN)
        open_row(page, "main/items")
        act(page, "Reconcile: main/items")
        read_news(page, "^Reconcile main/items: (?!asked)")


def test_what_is_asked_for_while_the_session_is_gone_leads_to_the_sign_in(browser: Browser, stage: Stage) -> None:
    with visiting(browser, stage.signed_in, refused="401") as page:
        expect(page.locator(".event").first).to_be_visible()
        page.context.clear_cookies()
        page.locator(".event").first.click()
        expect(page.get_by_label("Token")).to_be_focused()
        expect(page.locator("#everything")).to_be_hidden()


def test_an_act_that_nobody_answers_is_told_and_leaves_the_focus_where_it_was(browser: Browser, stage: Stage) -> None:
    with visiting(browser, stage.signed_in) as page:
        expect(page.locator("#verdict-words")).to_be_visible()
        page.evaluate(HURRY)
        page.route("**/reconcile", lambda _: None)
        open_row(page, "main/items")
        act(page, "Reconcile: main/items")
        expect(page.locator("#outcome .problem")).to_contain_text(
            "Reconcile main/items: dockbell does not answer within 10 s; check whether it was done"
        )
        page.get_by_role("button", name="Close").click()
        expect(page.get_by_role("button", name="Reconcile: main/items")).to_be_focused()


@pytest.mark.parametrize("fragment", ["#token=50%off", "#100%"])
def test_an_address_that_means_nothing_is_survived(browser: Browser, stage: Stage, fragment: str) -> None:
    with visiting(browser, stage.url + fragment, refused="401") as page:
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("#connection")).to_have_text(re.compile("live"))
        assert "token" not in page.url


def test_a_token_in_the_address_signs_in_and_is_gone(page: Page, stage: Stage) -> None:
    assert page.url == stage.url
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    page.reload()
    expect(page.locator("#verdict-words")).to_be_visible()
    assert page.evaluate("[document.cookie, Object.keys(localStorage)]") == ["", []]
