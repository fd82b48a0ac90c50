"""The tests that CI runs under other dates are where their list says."""

from pathlib import Path

HERE = Path(__file__).parent


def test_every_listed_path_is_there() -> None:
    listed = (HERE / "paths").read_text(encoding="utf-8").split()
    assert [path for path in listed if not (HERE.parents[1] / path).exists()] == []
