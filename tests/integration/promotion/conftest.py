"""Datastores whose cluster a has replicas to promote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promoted import Promotable, promotable
from tests.stores import ServerEngine


@pytest.fixture
def made(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Promotable]:
    with promotable(server_engine, tmp_path / "control") as it:
        yield it


@pytest.fixture
def kept(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Promotable]:
    """With buffers."""
    with promotable(server_engine, tmp_path / "control", replicas=1, buffer={"put_seconds": 5.0}) as it:
        yield it
