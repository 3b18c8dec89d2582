"""Servers that do not answer and a front that dies: what a caller is told, and what is there afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import yaml

from schemaless_core import Datastore
from schemaless_core.failpoints import ENVIRONMENT_VARIABLE
from tests.chaos.actors import wait_until
from tests.chaos.test_unresponsive_server import rows_on
from tests.http_clients import JSON, Served
from tests.integration.test_buffered_puts import Lame, lame
from tests.stores import ServerEngine, Stores

ENGINE: ServerEngine = "mariadb"


@contextmanager
def half(stores: Stores, **options: Any) -> Iterator[tuple[Lame, Served]]:
    """A front over two clusters, of which one can be down."""
    with lame(ENGINE, stores, **options) as made, closing(Served(made.store)) as served:
        yield made, served


def put(client: httpx.Client, row: UUID, body: bytes = b"1", **headers: str) -> httpx.Response:
    return client.put(f"/v1/cells/{row}/BASE/1", content=body, headers=JSON | headers)


def test_i5_a_put_that_waits_elsewhere_is_202_and_readable_later(stores: Stores) -> None:
    with half(stores) as (made, front):
        (row,) = rows_on(made.store, "a", 1)
        path = f"/v1/cells/{row}/BASE/1"
        with made.down():
            answer = put(front.client, row)
            batch = f'{{"cells": [{{"row_key": "{row}", "column_name": "BASE", "ref_key": 2, "body": 2}}]}}'
            together = front.client.post("/v1/cells", content=batch, headers=JSON)
            seen = front.client.get(path, headers={"Tripstore-Include-Buffered": "true"})
            unseen = front.client.get(path)
        assert made.drain() == 2
        again = put(front.client, row)

        assert (answer.status_code, answer.json()["status"], answer.json()["readable"]) == (202, "BUFFERED", False)
        assert (together.status_code, together.json()["results"][0]["status"]) == (202, "BUFFERED")
        assert (seen.status_code, seen.json()["body"], unseen.status_code) == (200, 1, 503)
        assert (again.status_code, again.json()["status"]) == (200, "EXISTS")
        assert front.client.get(f"/v1/latest/{row}/BASE").json()["ref_key"] == "2"


@pytest.mark.parametrize(("how", "status"), [("cut", 503), ("swallow", 504)])
def test_a_put_that_its_server_does_not_answer_may_be_repeated(stores: Stores, how: str, status: int) -> None:
    """Not kept elsewhere: the put expects a latest cell."""
    with half(stores) as (made, front):
        (row,) = rows_on(made.store, "a", 1)
        path = f"/v1/cells/{row}/BASE/1?expect_latest=none"
        with made.down(how):
            answer = front.client.put(path, content=b"1", headers=JSON | {"Tripstore-Deadline-Seconds": "0.5"})
        wait_until("the server is asked again", lambda: put(front.client, row).status_code in (200, 201))

        error = answer.json()["error"]
        assert (answer.status_code, error["outcome"], answer.headers["retry-after"]) == (status, "unknown", "1")
        assert [cell[3] for cell in made.log() if cell[0] == row] == [1]


@contextmanager
def front_of(config: Path, failpoints: Path) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """`tripstore serve`, at whose failpoints accidents happen."""
    code = "from tripstore.cli import main; main()"
    arguments = [sys.executable, "-c", code, "-c", str(config), "serve", "--port", "0"]
    environment = os.environ | {ENVIRONMENT_VARIABLE: str(failpoints)}
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            with httpx.Client(base_url=process.stderr.readline().split()[-1], timeout=60) as client:
                yield process, client
        finally:
            process.kill()


def is_refused(url: str) -> bool:
    try:
        httpx.get(url)
    except httpx.ConnectError:
        return True
    return False


@pytest.fixture
def config(stores: Stores, tmp_path: Path) -> Path:
    config = stores.config(ENGINE, shards=2)
    with Datastore.open(config) as datastore:
        datastore.create_schema()
    file = tmp_path / "tripstore.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


def test_a_front_that_dies_under_a_put_leaves_a_put_that_may_be_repeated(config: Path, tmp_path: Path) -> None:
    row = uuid4()
    with front_of(config, tmp_path) as (process, client):
        (tmp_path / "put.acknowledged").write_text("kill")
        with pytest.raises(httpx.TransportError):
            put(client, row)
        assert process.wait(20) == -signal.SIGKILL
    with Datastore.open(config) as datastore, closing(Served(datastore)) as next_front:
        again = put(next_front.client, row)

    assert (again.status_code, again.json()["status"]) == (200, "EXISTS")


def test_a_put_that_has_begun_is_answered_before_the_front_ends(config: Path, tmp_path: Path) -> None:
    row = uuid4()
    with front_of(config, tmp_path) as (process, client), ThreadPoolExecutor(1) as caller:
        (tmp_path / "put.acknowledged").write_text("wait")
        asked = caller.submit(put, client, row)
        wait_until("the put is at its server", (tmp_path / "put.acknowledged.hit").exists)
        process.send_signal(signal.SIGTERM)
        wait_until("it listens no more", lambda: is_refused(f"{client.base_url}/health"))
        (tmp_path / "put.acknowledged.go").touch()

        assert asked.result(20).status_code == 201
        assert process.wait(20) == 0
