"""What real services do that loops do not expect, as options of the sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Hazard:
    """One of them; ``kills`` is how often each tool is killed and started again meanwhile."""

    name: str
    words: str
    options: Mapping[str, Any] = field(default_factory=dict)
    kills: int = 0


HAZARDS: Final = (
    Hazard("none", "nothing: the service does what its description says"),
    Hazard(
        "late",
        "one change in three becomes readable only 5 s after its timestamp",
        {"late_visibility": 5.0, "late_share": 0.33},
    ),
    Hazard("silent", "one update in ten leaves `updated_at` unchanged", {"silent_share": 0.1}),
    Hazard("future", "one write in a hundred is dated 2099", {"future_share": 0.01}),
    Hazard("minutes", "`updated_at` has whole minutes", {"timestamp_precision": "min"}),
    Hazard("pages", "one page in ten is empty, though the list goes on", {"empty_pages": 0.1, "short_pages": 0.1}),
    Hazard(
        "moving",
        "pages are addressed by offset, and lists are sorted by the last change",
        {"cursors": "offset", "order": "updated_at", "descending": True, "page_cap": 50},
    ),
    Hazard("replica", "one of two servers is 5 s behind", {"replicas": 2, "replica_lag": 5.0}),
    Hazard(
        "faults",
        "one answer in ten is an error, a broken connection or not JSON",
        {"error_rate": 0.04, "reset_rate": 0.03, "bad_body_rate": 0.03},
    ),
    Hazard("kill", "the tool is killed five times", kills=5),
)
