"""The API: one client for each account."""

from __future__ import annotations

from dockbell.sources.inventory import InventoryClient

__all__ = ["InventoryClient"]
