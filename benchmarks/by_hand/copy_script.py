"""The script that a developer would write who knows both databases by heart: no checks, no restart, no other writers.

COPY of JSON out of Postgres, decoded and encoded again in canonical form, and one INSERT of many rows per shard with
the counter row in the same transaction. What it writes are the same cells, but for how some values are written.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from hashlib import md5
from typing import Any

import msgspec
import psycopg2
import pymysql
from pymysql.constants import CLIENT

from benchmarks.cells import Config
from schemaless_core.urls import parse_node_url

TRIPS_PER_READ = 2_000
ROWS_PER_INSERT = 500

_TRIPS = """
SELECT t.trip_uuid, t.base_version, t.id, row_to_json(b) FROM trips AS t
LEFT JOIN users AS d ON d.id = t.driver_id LEFT JOIN users AS r ON r.id = t.rider_id
LEFT JOIN cities AS c ON c.id = t.city_id,
LATERAL (SELECT d.user_uuid AS driver_partner_uuid, r.user_uuid AS rider_uuid, c.city_uuid, t.status, t.product,
    t.request_at AS trip_created_at, t.begin_at, t.dropoff_at, t.local_date, t.currency, t.fare_amount::text AS fare,
    t.tip_amount::text AS tip, t.surge::text AS surge, t.distance_km, t.leg_km, t.duration_seconds, t.passengers,
    t.is_shared, t.tags, t.route, t.client, t.signature) AS b
WHERE t.id BETWEEN {first} AND {last}
"""
_ATTEMPTS = """
SELECT a.trip_uuid, a.attempt_no, row_to_json(b) FROM billing_attempts AS a,
LATERAL (SELECT a.result, a.amount::text AS amount, a.currency, a.payment_profile, a.processor_response, a.error_codes,
    a.attempted_at) AS b
WHERE a.trip_id BETWEEN {first} AND {last}
"""
_NOTES = """
SELECT n.trip_uuid, n.n << 20 | n.note_version, row_to_json(b) FROM trip_notes AS n
LEFT JOIN users AS u ON u.id = n.author_id,
LATERAL (SELECT n.kind, u.user_uuid AS author_uuid, n.text, n.rating, n.is_public, n.tags, n.attachment, n.context,
    n.written_at) AS b
WHERE n.trip_id BETWEEN {first} AND {last}
"""
_ADJUSTMENTS = """
SELECT f.trip_uuid, f.n << 20 | f.adjustment_version, row_to_json(b) FROM fare_adjustments AS f
LEFT JOIN users AS u ON u.id = f.approved_by,
LATERAL (SELECT f.amount::text AS amount, f.currency, f.reason, f.explanation, f.is_approved,
    u.user_uuid AS approved_by, f.effective_on, f.line_items, f.proposed_at) AS b
WHERE f.trip_id BETWEEN {first} AND {last}
"""
_CHILDREN = ((b"STATUS", _ATTEMPTS), (b"NOTES", _NOTES), (b"ADJUSTMENTS", _ADJUSTMENTS))
_BEGIN = "BEGIN; SELECT next_added_id FROM {name}_meta.shard_state WHERE shard = {shard} FOR UPDATE"
_INSERT = b"INSERT INTO %s.cell (added_id, row_key, column_name, ref_key, body, created_at) VALUES "
_END = "UPDATE {name}_meta.shard_state SET next_added_id = {next} WHERE shard = {shard}; COMMIT"

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder(order="sorted").encode

Row = tuple[bytes, bytes, int, bytes]


class CopyScript:
    """Copies the trips of ranges of ids."""

    def __init__(self, config: Config) -> None:
        self._name, self._shards = config["datastore"], config["shards"]
        node = parse_node_url("primary", config["clusters"]["a"]["primary"])
        self._legacy = psycopg2.connect(config["legacy"]["postgres"], options="-c TimeZone=UTC")
        self._store = pymysql.connect(
            host=node.host,
            port=node.port,
            user=node.user,
            password=node.password,
            client_flag=CLIENT.MULTI_STATEMENTS,
            ssl_disabled=True,
        )
        self._cursor = self._store.cursor()
        self._waiting: defaultdict[int, list[Row]] = defaultdict(list)

    def run(self, first: int, last: int) -> int:
        """Copy trips by id, both ends included; return how many cells they had."""
        cells = 0
        for start in range(first, last + 1, TRIPS_PER_READ):
            end = min(start + TRIPS_PER_READ - 1, last)
            for line in self._copied(_TRIPS.format(first=start, last=end)):
                key, version, number, text = line.split(b"\t", 3)
                row_key = bytes.fromhex(key.replace(b"-", b"").decode())
                self._add(row_key, b"BASE", int(version), text)
                self._put(row_key, b"_LEGACY_ID", 0, b'{"id":%b}' % number)
                cells += 2
            for name, select in _CHILDREN:
                for line in self._copied(select.format(first=start, last=end)):
                    key, ref_key, text = line.split(b"\t", 2)
                    self._add(bytes.fromhex(key.replace(b"-", b"").decode()), name, int(ref_key), text)
                    cells += 1
        for shard in list(self._waiting):
            self._flush(shard)
        return cells

    def close(self) -> None:
        self._legacy.close()
        self._store.close()

    def _copied(self, select: str) -> list[bytes]:
        lines: list[bytes] = []
        with self._legacy, closing(self._legacy.cursor()) as cursor:
            cursor.copy_expert(f"COPY ({select}) TO STDOUT", _Lines(lines))
        return lines

    def _add(self, row_key: bytes, name: bytes, ref_key: int, text: bytes) -> None:
        found = _decode(text.replace(b"\\\\", b"\\"))
        body = {field: value for field, value in found.items() if value is not None or field == "dropoff_at"}
        self._put(row_key, name, ref_key, _encode(body))

    def _put(self, row_key: bytes, name: bytes, ref_key: int, body: bytes) -> None:
        shard = int.from_bytes(md5(row_key, usedforsecurity=False).digest()[:4], "big") % self._shards
        rows = self._waiting[shard]
        rows.append((row_key, name, ref_key, body))
        if len(rows) == ROWS_PER_INSERT:
            self._flush(shard)

    def _flush(self, shard: int) -> None:
        rows = self._waiting.pop(shard)
        cursor = self._cursor
        cursor.execute(_BEGIN.format(name=self._name, shard=shard))
        cursor.nextset()
        ((first,),) = cursor.fetchall()
        values = b",".join(
            b"(%d,_binary'%b','%b',%d,_binary'%b',UTC_TIMESTAMP(6))"
            % (first + n, _quoted(row_key), name, ref_key, _quoted(body))
            for n, (row_key, name, ref_key, body) in enumerate(rows)
        )
        database = f"{self._name}_{shard:04d}".encode()
        cursor.execute(_INSERT % database + values)  # type: ignore[call-overload]  # PyMySQL takes bytes, too
        cursor.execute(_END.format(name=self._name, shard=shard, next=first + len(rows)))
        cursor.nextset()


class _Lines:
    """The file that the driver writes to."""

    def __init__(self, lines: list[bytes]) -> None:
        self.write = lines.append


def _quoted(data: bytes) -> bytes:
    return data.replace(b"\\", b"\\\\").replace(b"'", b"''")
