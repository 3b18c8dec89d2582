"""A refusal: one sentence that names the thing, a way out, no password."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from schemaless_core import (
    CellStore,
    Datastore,
    SchemalessError,
)
from tests.integration.written import Written
from tripstore.local.ports import free_port

ROW = UUID(int=1)


Config = dict[str, Any]


@contextlib.contextmanager
def refused(kind: type[SchemalessError], *words: str, config: Mapping[str, Any] | None = None) -> Iterator[None]:
    """The block raises exactly this error of ours: one sentence with these words, a hint, and no password."""
    with pytest.raises(SchemalessError) as raised:
        yield
    error = raised.value
    assert type(error) is kind, repr(error)
    assert "\n" not in error.message
    assert error.message.endswith(".")
    assert error.hint
    for word in words:
        assert word in str(error)
    for password in _passwords(config or {}):
        assert password not in "".join(_texts(error))


def _texts(error: BaseException | None) -> Iterator[str]:
    """What a log would show: the error and whatever it came from."""
    while error is not None:
        yield f"{error} {error!r}"
        error = error.__cause__ or error.__context__


def _passwords(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _passwords(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _passwords(inner)
    elif isinstance(value, str) and (password := urlsplit(value).password if "://" in value else None):
        yield password


def everything_refuses(
    config: Config, kind: type[SchemalessError], *words: str, written: Written | None = None
) -> None:
    """Creation, reads and writes all meet the same error, and leave the servers as they were."""
    written = written or Written(config)
    before = written.now(), written.cells()
    with Datastore.open(config) as datastore:
        with refused(kind, *words, config=config):
            datastore.create_schema()
        with refused(kind, *words, config=config):
            datastore.get_cell_latest(ROW, "BASE")
        with refused(kind, *words, config=config):
            datastore.put_cell(ROW, "BASE", 1, "body")
    assert (written.now(), written.cells()) == before


def nowhere() -> str:
    return f"mysql://root:S3cr3t@127.0.0.1:{free_port()}"


Call = Callable[[CellStore], object]
