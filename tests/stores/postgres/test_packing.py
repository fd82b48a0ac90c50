from __future__ import annotations

import json
from contextlib import closing

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.stores.postgres.connection import NoFence, PostgresConnection
from dockbell.stores.postgres.packing import pack, unpack
from dockbell.stores.postgres.schema import read_schema

MARK = b"\x00dz1"
RECORD = json.dumps(
    {
        "id": "shp_1",
        "reference": "SO-22671107",
        "status": "delivered",
        "consignee": {"name": "Γιώργος Baumgärtner", "zip": "412 48", "city": "Göteborg", "country": "SE"},
        "lines": [{"sku": f"BAT-SLV-0024{number}", "quantity": number} for number in range(4)],
        "created_at": "2025-10-03T04:41:07.678959Z",
        "updated_at": "2025-10-06T12:17:07.678959Z",
    },
    ensure_ascii=False,
).encode()

PACKED = (
    "00647a31000001b87595bd0ac23014855fe5903d92a46963bb591017c1c1e22a0a523af8833f8be2a00fe0e22bf80682e0e4e0debe92b7ad"
    "a551744dce3d249ccb77ca1c40292f86b400b03104d6ef71a53c23a530f95d451bd4f0c88fc97f95c4b309b962f7ee00b0f49cdeb3537648"
    "afe9233b221c6da6f1f3b25ccf287e1ada26941198960aba59b8144403eb3c6febc978be8c4beb7705d15bda142daab200ed4bd11160612b"
    "e2fdee800ba1340103566b40d0c84f61f1d7ba5e20ff09d59750fd133a5f4287f6873e605112796e2e97820b27123ad03210a6e199a6effa"
    "141d3e386989bd48aa401a5bbc7f01"
)


@given(st.binary(max_size=300) | st.builds(bytes.__add__, st.sampled_from([MARK, b"{"]), st.binary(max_size=2000)))
def test_whatever_is_stored_comes_back(data: bytes) -> None:
    assert unpack(pack(data)) == data


def test_a_record_takes_less_room() -> None:
    assert len(pack(RECORD)) < len(RECORD) * 0.7


def test_one_packed_by_the_first_version_is_read() -> None:
    """The dictionary may never change: this was stored with it."""
    assert unpack(bytes.fromhex(PACKED)) == RECORD


@pytest.mark.parametrize("data", [b"", b"{}", b"\x01" * 16, RECORD[1:]], ids=["empty", "short", "hash", "no object"])
def test_what_gains_nothing_stays_as_it_is(data: bytes) -> None:
    assert pack(data) == data


def test_the_database_has_it_packed_and_knows_its_length(postgres_url: str) -> None:
    with closing(psycopg.connect(postgres_url, autocommit=True)) as admin:
        admin.execute(read_schema().encode())
        admin.execute("CREATE TABLE pairs (id bigint, body bytea)")
        connection = PostgresConnection(postgres_url, NoFence())
        with closing(connection.raw):
            connection.executemany("INSERT INTO pairs VALUES (?, ?)", [(1, RECORD), (2, b"{}"), (3, MARK)])
            rows = connection.execute("SELECT body, length(body) FROM pairs ORDER BY id").fetchall()
        ((stored,), *_) = admin.execute("SELECT body FROM pairs ORDER BY id").fetchall()
    assert rows == [(RECORD, len(RECORD)), (b"{}", 2), (MARK, 4)]
    assert stored == pack(RECORD)
