"""A flavour of Postgres at a time."""

from __future__ import annotations

import pytest

from tests.layouts import FLAVOURS
from tripstore.local.postgres_programs import Flavour


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    found: Flavour = request.param
    return found
