from __future__ import annotations

from tests.bench.hostile.hazards import HAZARDS
from tests.bench.hostile.trial import Times, list_tools, try_hazard


async def test_what_is_late_is_lost_by_loops_and_told_by_dockbell() -> None:
    (hazard,) = (each for each in HAZARDS if each.name == "late")
    times = Times(learn=10, change=6, drain=12, every=1, rate=30)
    found = await try_hazard(hazard, list_tools(times.every), times)
    assert {name: each.invented for name, each in found.items()} == dict.fromkeys(found, 0)
    assert found["dockbell"].lost == 0
    assert found["script, `updated_since`"].lost > 0
    assert found["dlt"].lost > 0
