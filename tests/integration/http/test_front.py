"""The HTTP front: who may call, what of a request is taken, how errors are told. The calls have the contract suite."""

from __future__ import annotations

import json
import logging
from urllib.parse import quote
from uuid import UUID, uuid4

import httpx
import pytest

from schemaless_core import CellStore
from schemaless_core.errors import NodeUnavailable
from tests.http_clients import JSON, Served
from tests.integration.http.tokens import READER, WRITER
from tripstore.http.exact import exact_body
from tripstore.http.openapi import openapi_document
from tripstore.http.routes import ROUTES
from tripstore.http.statuses import fault_answer, status_of
from tripstore.store import TripStore


def put(front: Served, content: bytes, **headers: str) -> httpx.Response:
    return front.client.put(f"/v1/cells/{uuid4()}/BASE/1", content=content, headers=JSON | headers)


@pytest.mark.parametrize("token", ["", "Bearer", f"Basic {WRITER}", f"Bearer {WRITER}x", "Bearer é"])
def test_without_a_token_of_a_service_no_cell_is_told(front: Served, token: str) -> None:
    answer = front.client.get("/v1/shards/0/log", headers=[(b"Authorization", token.encode())])

    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert WRITER not in answer.text


def test_a_service_that_may_read_may_not_put(front: Served) -> None:
    reader = f"Bearer {READER}"

    assert put(front, b"1", Authorization=reader).status_code == 403
    assert put(front, b"1").status_code == 201
    assert front.client.get("/v1/shards/0/log", headers={"Authorization": reader}).status_code == 200


def test_the_health_check_needs_no_token_and_the_metrics_do(front: Served) -> None:
    no_token = {"Authorization": ""}

    assert front.client.get("/health", headers=no_token).json()["is_ready"] is True
    assert front.client.get("/metrics", headers=no_token).status_code == 401
    assert "tripstore_http_seconds" in front.client.get("/metrics").text


def test_without_tokens_a_page_of_a_browser_that_names_us_otherwise_is_refused(store: TripStore) -> None:
    open_to_all = Served(store)
    try:
        statuses = [
            open_to_all.client.get("/v1/shards/0/log", headers={"Host": host}).status_code
            for host in ("evil.example", "127.0.0.1:80", "localhost")
        ]
    finally:
        open_to_all.close()

    assert statuses == [403, 200, 200]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"0.12345678901234567890", 400),  # would be stored as another number
        (b"1e400", 400),
        (b"18446744073709551616", 400),
        (b"NaN", 400),
        (b'"\xff"', 400),
        (b"[" * 900, 400),
        (b"", 400),
        (b"1 2", 400),
        (b'{"a": 1, "a": 2}', 400),  # one of them would be lost
        (b'[{"b": {"a": 1, "a": 1}}]', 400),
        (b"9" * 900, 400),
        (b'"' + b"x" * 1000 + b'"', 413),
    ],
)
def test_what_would_not_be_stored_as_it_is_is_refused(front: Served, content: bytes, status: int) -> None:
    answer = put(front, content)

    assert (answer.status_code, answer.json()["error"]["outcome"]) == (status, "not_stored")


def test_numbers_come_back_as_they_were_sent(front: Served) -> None:
    path = f"/v1/cells/{uuid4()}/BASE/{-(2**63)}"
    content = b'{"a":18446744073709551615,"b":1.0,"c":0.1,"d":-9223372036854775808}'

    front.client.put(path, content=content, headers=JSON)

    answer = front.client.get(path)
    assert content in answer.content
    assert answer.json()["ref_key"] == str(-(2**63))


def test_a_zero_is_a_zero_whatever_its_exponent(front: Served) -> None:
    assert put(front, b"0e99999999999999999999").status_code == 201
    assert put(front, b"-0.00E-99999999999999999999").status_code == 201


def test_control_python_alone_would_change_a_number_and_lose_a_value() -> None:
    assert json.loads("0.12345678901234567890") == 0.12345678901234568
    assert json.loads('{"a": 1, "a": 2}') == {"a": 2}
    assert exact_body(b'{"a": 0.5}') == {"a": 0.5}


def test_no_cell_of_a_batch_is_lost_because_a_name_stands_twice(front: Served) -> None:
    row = uuid4()
    cell = f'{{"row_key": "{row}", "column_name": "BASE", "ref_key": 1, "body": 1}}'

    answer = front.client.post("/v1/cells", content=f'{{"cells": [{cell}], "cells": []}}', headers=JSON)

    assert (answer.status_code, answer.json()["error"]["outcome"]) == (400, "not_stored")
    assert "'cells' stands twice" in answer.json()["error"]["message"]


def test_two_names_in_a_url_are_never_one(front: Served) -> None:
    row = uuid4()
    refused = [
        front.client.put(f"/v1/cells/{row}/{name}/1", content=b"1", headers=JSON) for name in ("%FF", "%FE", "%C3")
    ]
    refused += [front.client.get(f"/v1/rows/{row}?columns={value}") for value in ("%FF", "%FE")]

    assert [answer.status_code for answer in refused] == [400] * 5
    assert refused[0].json()["error"]["outcome"] == "not_stored"
    assert front.client.get(f"/v1/rows/{row}").json()["cells"] == {}


def test_a_name_comes_back_as_it_was_escaped(front: Served) -> None:
    row, names = uuid4(), ["a/b", "ä%41+ ?#", "..", "%", "BASE"]
    for name in names:
        path = f"/v1/cells/{row}/{quote(name, safe='').replace('..', '%2E%2E')}/1"
        assert front.client.put(path, content=b"1", headers=JSON).status_code == 201

    cells = front.client.get(f"/v1/rows/{row}").json()["cells"]
    asked = front.client.get(f"/v1/rows/{row}", params={"columns": names}).json()["cells"]

    assert sorted(cells) == sorted(names)
    assert asked == cells


def test_a_header_that_says_two_things_is_refused(front: Served) -> None:
    twice = [("Authorization", f"Bearer {READER}"), ("Authorization", f"Bearer {WRITER}")]

    assert front.client.get("/v1/shards/0/log", headers=twice).status_code == 400
    assert front.client.get("/v1/shards/0/log", headers=[("X-Any", "1"), ("X-Any", "2")]).status_code == 200


def test_a_path_says_which_methods_it_takes(front: Served) -> None:
    answer = front.client.delete(f"/v1/cells/{uuid4()}/BASE/1")

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, PUT")
    assert front.client.get("/v2").status_code == 404
    assert front.client.head("/health").status_code == 200


def test_a_form_that_a_browser_sends_is_no_put(front: Served) -> None:
    assert put(front, b"1", **{"Content-Type": "text/plain"}).status_code == 415


def test_a_conflict_shows_the_stored_cell(front: Served) -> None:
    path = f"/v1/cells/{uuid4()}/a%2Fb/1"
    front.client.put(path, content=b"1", headers=JSON)

    answer = front.client.put(path, content=b"2", headers=JSON)

    error = answer.json()["error"]
    assert (answer.status_code, error["class"], error["outcome"]) == (409, "CellConflict", "not_stored")
    assert (error["stored"]["body"], error["stored"]["column_name"]) == (1, "a/b")


def test_a_misspelt_parameter_is_refused(front: Served) -> None:
    assert front.client.get("/v1/shards/0/log", params={"limits": 3}).status_code == 400
    assert front.client.get("/v1/shards/0/log", headers={"Tripstore-Deadline-Seconds": "nan"}).status_code == 400


def test_of_a_put_without_an_answer_the_outcome_is_unknown() -> None:
    silent = NodeUnavailable("a", "no answer", is_timeout=True)

    assert (status_of(silent), status_of(NodeUnavailable("a", "refused"))) == (504, 503)
    assert fault_answer(silent, is_put=True).error.outcome == "unknown"
    assert fault_answer(silent, is_put=False).error.outcome is None


def test_the_log_says_who_called_what_and_neither_token_nor_body(
    front: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        put(front, b'"a secret body"')

    noted = [vars(record) for record in caplog.records if vars(record).get("event") == "http.answered"]
    assert [(each["route"], each["service"], each["status"]) for each in noted] == [("put_cell", "trips", 201)]
    assert "secret" not in str([vars(record) for record in caplog.records])
    assert WRITER not in str([vars(record) for record in caplog.records])


def test_the_page_is_made_of_the_routes(front: Served) -> None:
    page = front.client.get("/openapi.json").json()

    assert page == json.loads(json.dumps(openapi_document(ROUTES)))
    served = {(path, method.upper()) for path, each in page["paths"].items() for method in each}
    assert served == {(route.path, route.method) for route in ROUTES}


def test_control_an_error_that_was_not_foreseen_is_500_and_says_nothing(
    front: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: CellStore, row_key: UUID) -> int:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(TripStore, "shard_of", fails)

    answer = front.client.get(f"/v1/rows/{uuid4()}/shard")

    assert (answer.status_code, answer.json()["error"]["class"]) == (500, "InternalError")
    assert "secret" not in answer.text
