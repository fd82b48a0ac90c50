"""The page by keyboard alone, on a phone, in both themes, and by the rules of WCAG."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.page.browser import DESKTOP, PHONE, find_violations, visiting
from tests.web.page.stage import Stage

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def troubled(stage: Stage) -> Stage:
    """Return a stage with something of everything to look at: a dead letter, held deletions, drift, a paused sink."""
    shop = stage.shop
    shop.refused.add("shp_bad")
    shop.put("shipments", "shp_bad", status="new")
    shop.put("shipments", "shp_0", status="shipped", carrier="Ferry & Sons")
    records = shop.records["stock"]
    shop.records["stock"] = dict(list(records.items())[30:])
    shop.records["warehouses"] = {key: record | {"dock_count": 4} for key, record in shop.records["warehouses"].items()}
    stage.until(lambda: stage.read("SELECT key FROM dead_letters"))
    stage.until(lambda: stage.read("SELECT suspended FROM feeds WHERE resource = 'stock'") == [(30,)])
    return stage


@contextmanager
def opened(browser: Browser, stage: Stage, **options: Any) -> Iterator[Page]:
    """Open the page and all of its kinds of rows."""
    with visiting(browser, stage.signed_in, bypass_csp=True, **options) as page:
        expect(page.locator("[id='feed:main/warehouses'] .state")).to_have_text(re.compile("drift"))
        for name in ("main/stock", "main/warehouses", "erp"):
            page.get_by_role("button", name=name, exact=True).click()
        expect(page.locator(".letters .error")).to_be_visible()
        page.get_by_label("Key, as in events").fill("shp_0")
        expect(page.locator(".event")).to_have_count(1)
        page.locator(".event").click()
        page.get_by_role("button", name="Why?").click()
        expect(page.locator(".why")).to_contain_text("present")
        yield page


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing_in_either_theme(browser: Browser, troubled: Stage, viewport: Any) -> None:
    with opened(browser, troubled, viewport=viewport) as page:
        assert find_violations(page) == []
        page.emulate_media(color_scheme="dark")
        assert find_violations(page) == []


def test_axe_finds_nothing_where_one_is_asked_again(browser: Browser, stage: Stage) -> None:
    with visiting(browser, stage.signed_in, bypass_csp=True) as page:
        page.get_by_role("button", name="floor", exact=True).click()
        page.get_by_role("button", name="Pause: floor").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert find_violations(page) == []
        page.emulate_media(color_scheme="dark")
        assert find_violations(page) == []


def test_axe_finds_nothing_where_one_signs_in(browser: Browser, stage: Stage) -> None:
    with visiting(browser, stage.url, bypass_csp=True) as page:
        expect(page.get_by_label("Token")).to_be_visible()
        assert find_violations(page) == []


def test_nothing_is_wider_than_a_phone(browser: Browser, troubled: Stage) -> None:
    with opened(browser, troubled, viewport=PHONE) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        edges = "[...document.querySelectorAll('main *')].map((each) => each.getBoundingClientRect().right)"
        assert max(page.evaluate(edges)) <= PHONE["width"]


def test_the_theme_follows_the_system_until_one_is_chosen_and_is_kept(browser: Browser, stage: Stage) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    with visiting(browser, stage.signed_in, color_scheme="dark") as page:
        expect(page.locator("#verdict-words")).to_be_visible()
        dark = page.evaluate(paper)
        page.emulate_media(color_scheme="light")
        light = page.evaluate(paper)
        assert light != dark
        switch = page.get_by_role("button", name="Theme: system")
        switch.click()
        page.get_by_role("button", name="Theme: light").click()
        expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
        assert page.evaluate(paper) == dark
        page.reload()
        expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
        assert page.evaluate(paper) == dark
        page.get_by_role("button", name="Theme: dark").click()
        assert page.evaluate(paper) == light


def focus_on(page: Page, name: str, role: str = "button") -> None:
    """Press Tab until something has the focus, which must be seen to have it."""
    target = page.get_by_role(role, name=name, exact=True)  # type: ignore[arg-type]
    for _ in range(60):
        if target.evaluate("node => node === document.activeElement"):
            assert target.evaluate("node => getComputedStyle(node).outline").endswith("solid 2px")
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab never reaches {name}")


def test_everything_can_be_done_by_keyboard_alone(browser: Browser, troubled: Stage) -> None:
    with visiting(browser, troubled.signed_in) as page:
        expect(page.locator("#verdict-words")).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the status")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#main")).to_be_focused()

        focus_on(page, "Show feed main/stock", "link")
        page.keyboard.press("Enter")
        stock = page.get_by_role("button", name="main/stock", exact=True)
        expect(stock).to_be_focused()
        expect(stock).to_have_attribute("aria-expanded", "true")
        focus_on(page, "Approve: 30 deletions of main/stock")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        expect(page.get_by_role("button", name="Approve: 30 deletions of main/stock")).to_be_focused()
        page.keyboard.press("Escape")
        expect(stock).to_be_focused()
        expect(stock).to_have_attribute("aria-expanded", "false")

        focus_on(page, "erp")
        page.keyboard.press("Space")
        focus_on(page, "Pause: erp")
        page.keyboard.press("Enter")
        page.keyboard.type("by keyboard")
        page.keyboard.press("Enter")
        troubled.until(lambda: troubled.read("SELECT reason FROM pauses") == [("by keyboard",)])
        expect(page.get_by_role("button", name="Resume: erp")).to_be_visible()
        expect(page.get_by_role("button", name="Resume: erp")).to_be_focused()
        page.keyboard.press("Enter")
        troubled.until(lambda: troubled.read("SELECT reason FROM pauses") == [])
        assert troubled.read("SELECT suspended FROM feeds WHERE resource = 'stock'") == [(30,)]

        page.get_by_label("Key, as in events").fill("shp_0")
        expect(page.locator(".event")).to_have_count(1)
        page.locator(".event").focus()
        page.keyboard.press("Enter")
        focus_on(page, "Why?")
        page.keyboard.press("Enter")
        expect(page.get_by_role("group", name="Why")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.locator(".event")).to_be_focused()
        expect(page.locator(".event-rows .drawer")).to_have_count(0)
