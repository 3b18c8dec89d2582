"""The HTTP front against the library: the same get and put, by `tripstore serve` and by a call in this process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from uuid import UUID, uuid4

import yaml

import tripstore
from benchmarks.cells import BODY, Config
from benchmarks.timing import Comparison, compare
from schemaless_core import canonical_bytes

BOUND = ("<=", 2.5)


def measure(config: Config, calls: int, pairs: int) -> Iterator[Comparison]:
    """On a datastore that is there."""
    row = uuid4()
    with tripstore.connect(config) as store, _served(config) as connection:
        store.put_cell(row, "BASE", 1, BODY)
        yield compare(
            "get over HTTP",
            lambda: _asked(connection, "GET", row, 1),
            lambda: store.get_cell(row, "BASE", 1),
            calls=calls,
            pairs=pairs,
            bound=BOUND,
        )
        yield compare(
            "put over HTTP",
            _puts(lambda number: _asked(connection, "PUT", row, number, canonical_bytes(BODY)), 10**6),
            _puts(lambda number: store.put_cell(row, "BASE", number, BODY), 10**9),
            calls=calls,
            pairs=pairs,
            bound=BOUND,
        )


def _puts(put: Callable[[int], object], first: int) -> Callable[[], object]:
    numbers = count(first)
    return lambda: put(next(numbers))


@contextmanager
def _served(config: Config) -> Iterator[HTTPConnection]:
    """A connection that is kept open, to the command."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tripstore.yaml"
        file.write_text(yaml.safe_dump(config))
        code = "from tripstore.cli import main; main()"
        arguments = [sys.executable, "-c", code, "-c", str(file), "serve", "--port", "0"]
        with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                port = int(process.stderr.readline().rsplit(":", 1)[1])
                yield HTTPConnection("127.0.0.1", port)
            finally:
                process.terminate()


def _asked(connection: HTTPConnection, method: str, row: UUID, ref_key: int, body: bytes | None = None) -> bytes:
    headers = {} if body is None else {"Content-Type": "application/json"}
    connection.request(method, f"/v1/cells/{row}/BASE/{ref_key}", body, headers)
    answer = connection.getresponse()
    content = answer.read()
    assert answer.status in (200, 201), content
    return content
