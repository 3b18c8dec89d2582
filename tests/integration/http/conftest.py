"""A store in files behind the front, with a token that may read and one that may write."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tripstore
from schemaless_core import Datastore
from tests.http_clients import Served
from tests.integration.http.tokens import TOKENS, WRITER
from tests.stores import Stores
from tripstore.http.settings import HttpLimits, HttpSettings
from tripstore.store import TripStore


@pytest.fixture(scope="module")
def store(stores: Stores) -> Iterator[TripStore]:
    config = stores.config("sqlite", shards=2)
    with Datastore.open(config) as below:
        below.create_schema()
    with tripstore.connect(config) as opened:
        yield opened


@pytest.fixture(scope="module")
def front(store: TripStore) -> Iterator[Served]:
    served = Served(store, HttpSettings(HttpLimits(request_bytes_max=1000), TOKENS))
    served.client.headers["Authorization"] = f"Bearer {WRITER}"
    yield served
    served.close()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Calls of the store that hold a thread until it is opened."""
    may_end = threading.Event()

    def held(self: TripStore, *arguments: Any, **named: Any) -> None:
        assert may_end.wait(30), "the gate was never opened"

    for name in ("get_cell_latest", "put_cell"):
        monkeypatch.setattr(TripStore, name, held)
    yield may_end
    may_end.set()
