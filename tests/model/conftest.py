from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def known_pages_are_probed_often() -> Iterator[None]:
    """Compare every other page that is known all the same, so that one which should not be is found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dockbell.core.comparing.known_pages.PROBED", 2)
        yield
