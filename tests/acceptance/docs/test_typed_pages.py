"""The pages of typed rows and of asyncio: their code runs, on the index that the page of indexes defines."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import chdir
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

import tripstore
from tests.acceptance.conftest import Shell
from tests.chaos.actors import wait_until
from tests.documents import DOCS, block, blocks

MODULE = "trips_models"


@pytest.fixture
def company(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A datastore with the index, in its folder, and the module of its classes beside it."""
    definition, setting = [text for kind, text in blocks(DOCS / "howto" / "indexes.md") if kind == "yaml"]
    (shell.folder / "indexes").mkdir()
    (shell.folder / "indexes" / "driver_partner_index.yaml").write_text(definition)
    assert shell.call("init", "--shards", "2").code == 0
    config = shell.folder / "tripstore.yaml"
    config.write_text(config.read_text() + setting)
    assert shell.call("schema", "apply").code == 0
    command = block(DOCS / "howto" / "typed-rows.md", "sh").splitlines()[0]
    assert shell.call(*command.partition("#")[0].split()[1:]).code == 0
    monkeypatch.syspath_prepend(shell.folder)
    with chdir(shell.folder):
        yield shell
    sys.modules.pop(MODULE, None)


def run(code: str) -> dict[str, Any]:
    known: dict[str, Any] = {"__name__": "the_page"}
    exec(compile(code, "page", "exec"), known)
    return known


def test_the_page_of_typed_rows_shows_what_is_written_and_its_code_works(company: Shell) -> None:
    page = DOCS / "howto" / "typed-rows.md"
    shown, city, driver = block(page, "py"), uuid4(), uuid4()
    assert shown in (company.folder / f"{MODULE}.py").read_text()

    known = run(block(page, "python"))
    with tripstore.connect("tripstore.yaml") as store:
        row_key = uuid4()
        trip = known["TripBase"](
            row_key=row_key,
            ref_key=1,
            driver_partner_uuid=driver,
            trip_created_at=datetime(2026, 3, 2, tzinfo=UTC),
            unknown={"note": "kept"},
        )
        store.typed(known["TripBase"]).put(trip)

        assert known["move_trip"](store, row_key, city)
        assert not known["move_trip"](store, uuid4(), city)
        since = datetime(2026, 3, 1, tzinfo=UTC)
        wait_until("found", lambda: bool(known["trips_since"](store, driver, since)))
        (found,) = known["trips_since"](store, driver, since)

    assert (found.ref_key, found.city_uuid, found.unknown) == (2, city, {"note": "kept"})


Asked = Callable[[httpx.AsyncClient], Awaitable[None]]


def served(code: str, ask: Asked) -> None:
    """The service of the page, in an event loop, as a server runs it."""
    service = run(code)

    async def serve() -> None:
        transport = httpx.ASGITransport(service["app"])
        async with (
            service["lifespan"](service["app"]),
            httpx.AsyncClient(transport=transport, base_url="http://it") as it,
        ):
            await ask(it)

    asyncio.run(serve())


def test_the_service_of_the_page_of_asyncio_answers(company: Shell) -> None:
    trip, driver, city = uuid4(), uuid4(), uuid4()
    asked = {"driver": str(driver), "city": str(city)}

    async def ask(client: httpx.AsyncClient) -> None:
        assert (await client.get(f"/trips/{trip}")).status_code == 404
        assert (await client.put(f"/trips/{trip}/1", params=asked)).json() == {"status": "CREATED"}
        assert (await client.put(f"/trips/{trip}/1", params=asked)).json() == {"status": "EXISTS"}
        other = asked | {"city": str(uuid4())}
        assert (await client.put(f"/trips/{trip}/1", params=other)).status_code == 409
        body = {"driver_partner_uuid": str(driver), "city_uuid": str(city)}
        assert (await client.get(f"/trips/{trip}")).json() == {"version": 1, "trip": body}
        async with asyncio.timeout(20):  # until the index has it
            while (await client.get(f"/drivers/{driver}/trips")).json()["trips"] != [str(trip)]:
                await asyncio.sleep(0.01)

    served(block(DOCS / "howto" / "asyncio.md", "python"), ask)


def test_a_service_whose_store_is_away_says_when_to_try_again(company: Shell) -> None:
    config, ports = Path("tripstore.yaml"), count(1)
    away = re.sub(r'"sqlite:[^"\n]+"', lambda _url: f'"mysql://u:p@127.0.0.1:{next(ports)}"', config.read_text())
    config.write_text(away)

    async def ask(client: httpx.AsyncClient) -> None:
        answer = await client.get(f"/trips/{uuid4()}")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")

    served(block(DOCS / "howto" / "asyncio.md", "python"), ask)
