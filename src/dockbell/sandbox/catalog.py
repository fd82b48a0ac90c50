"""The five resources: what can be asked of each listing, by the specification, or by our choice where it is silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Resource:
    """One collection.

    Attributes:
        name: As in the path, and the default name of the array of records.
        label: What the specification calls the array of records.
        prefix: How ids begin.
        statuses: The states a record can be in; empty where the listing has no ``status`` filter.
        default_status: The filter when none is given; None for no filter.
        any_status: The filter value that lets all states through, where there is one.
        filters: Parameters that compare one field for equality.
        links: Fields that are indexed for our own use, not for the listing.
        expand: The accepted values of ``expand``.
        since: Whether ``updated_since`` is accepted.
    """

    name: str
    label: str
    prefix: str
    statuses: tuple[str, ...] = ()
    default_status: str | None = None
    any_status: str | None = None
    filters: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    expand: tuple[str, ...] = ()
    since: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of the parameters that the listing accepts."""
        since = ("updated_since",) if self.since else ()
        status = ("status",) if self.statuses else ()
        return ("limit", "cursor", "expand", *since, *status, *self.filters)


RESOURCES: Final[dict[str, Resource]] = {
    resource.name: resource
    for resource in (
        Resource(
            "shipments",
            "Shipments",
            "shp_",
            statuses=("pending", "picking", "packed", "shipped", "delivered", "cancelled"),
            expand=("packages", "line_items", "invoices"),
            since=True,
        ),
        Resource(
            "packages",
            "Packages",
            "pkg_",
            statuses=("packed", "shipped", "in_transit", "delivered"),
            filters=("tracking_number",),
            links=("shipment_id",),
            expand=("shipment",),
            since=True,
        ),
        Resource(
            "items",
            "Items",
            "itm_",
            statuses=("active", "inactive"),
            default_status="active",
            any_status="all",
            filters=("sku", "manufacturer_sku"),
            expand=("stock",),
            since=True,
        ),
        Resource("stock", "Stock levels", "stk_", links=("item_id",), expand=("item", "warehouse")),
        Resource("warehouses", "Warehouses", "whs_"),
    )
}
"""The five resources by name; the states and the values of ``expand`` are this implementation's choice."""
