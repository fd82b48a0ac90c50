"""One browser and one daemon for each module.

Not for more: Playwright keeps an event loop of its own in the thread, beside which no asynchronous test can run.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.page.browser import running, visiting
from tests.web.page.stage import Stage, staged


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a browser that runs."""
    with running() as browser:
        yield browser


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Return a stage whose daemon runs and has read everything once."""
    with staged(tmp_path_factory.mktemp("stage")) as stage, stage.running():
        stage.until_read(4)
        yield stage


@pytest.fixture
def page(browser: Browser, stage: Stage) -> Iterator[Page]:
    """Return the page, signed in, with all that there is on it."""
    with visiting(browser, stage.signed_in) as page:
        expect(page.locator("#everything")).to_be_visible()
        yield page
