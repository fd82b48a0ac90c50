"""Shares and ages as commands, the page and reasons write them."""

from __future__ import annotations

from datetime import timedelta

from dockbell.config import format_duration


def write_share(share: float) -> str:
    """Return a share in percent, ``99.3 %``; all only where it is all, and none only where it is none."""
    percent = round(100 * share, 1)
    if percent in (0.0, 100.0) and share not in (0.0, 1.0):
        return "more than 99.9 %" if share > 0.5 else "less than 0.1 %"  # noqa: PLR2004  # which of the two ends
    return f"{percent:g} %"


def format_age(age: timedelta) -> str:
    """Return a duration in two units at most: ``3m20s``, ``2d4h``."""
    whole, hour = max(age, timedelta(0)), timedelta(hours=1)
    grain = hour if whole >= timedelta(days=1) else timedelta(minutes=1) if whole >= hour else timedelta(seconds=1)
    return format_duration(whole - whole % grain)
