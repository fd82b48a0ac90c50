"""Debian's Chromium, driven by Playwright, and axe, which knows the rules of accessible pages.

CI installs the browser, and insists on it by ``DOCKBELL_REQUIRE_CHROMIUM``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.node.packages import find_node_modules

DESKTOP: Final = {"width": 1440, "height": 1000}
PHONE: Final = {"width": 360, "height": 780}
"""The narrowest that WCAG 1.4.10 and common phones ask for."""

_ARGS: Final = (
    "--headless=new",
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_RULES: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")

expect.set_options(timeout=40_000)  # a machine that does much else at once shows things late


def find_chromium() -> str:
    """Return the browser; skip the test where there is none, unless the environment insists."""
    if path := shutil.which("chromium"):
        return path
    assert "DOCKBELL_REQUIRE_CHROMIUM" not in os.environ, "not installed: chromium"
    pytest.skip("needs chromium")


@contextmanager
def running() -> Iterator[Browser]:
    """Let a browser run inside."""
    path = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_ARGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visiting(browser: Browser, url: str, *, refused: str = "", **options: Any) -> Iterator[Page]:
    """Open a page in a context of its own; at the end, nothing may have gone wrong in it.

    Args:
        browser: The browser.
        url: Where to go.
        refused: What may be complained about: a pattern.
        options: Of the context.
    """
    complaints: list[str] = []

    def read_news(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not (refused and re.search(refused, message.text)):
            complaints.append(message.text)

    context = browser.new_context(**({"viewport": DESKTOP, "reduced_motion": "reduce"} | options))
    try:
        page = context.new_page()
        page.on("console", read_news)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(url)
        yield page
        assert complaints == []
    finally:
        context.close()


def find_violations(page: Page) -> list[str]:
    """Return what axe finds wrong with a page; its context must be one that bypasses the content security policy."""
    if not page.evaluate("'axe' in window"):
        page.evaluate((find_node_modules() / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("rules => axe.run({runOnly: rules})", list(_RULES))
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in found["violations"]
        for node in each["nodes"]
    ]
