"""A reader in a process of its own: by how much its memory grew at the most. `python -m tests.page_peak BOUND`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from uuid import uuid4

from schemaless_core import Datastore
from schemaless_core.cell import page_bytes
from tests.stores import PATIENT

CELLS = 80
BODY = "x" * 1_000_000


def main(bound: int) -> None:
    page_bytes.PAGE_BYTES = bound
    with tempfile.TemporaryDirectory() as folder:
        config = {"datastore": "t", "shards": 1, "clusters": {"a": {"primary": f"sqlite:///{folder}"}}}
        with Datastore.open(config | {"deadlines": PATIENT}) as store:
            store.create_schema()
            sys.stdout.write(str(_grown(store)))


def _grown(store: Datastore) -> int:
    row_key = uuid4()
    for n in range(CELLS):
        store.put_cell(row_key, "BASE", n, {"n": n, "text": BODY})
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _peak_megabytes()
    found, below = 0, None
    while page := store.get_history(row_key, "BASE", before=below):
        found, below = found + len(page), page[-1].ref_key
    del page
    at = 0
    while cells := (log := store.get_cells_for_shard(0, at, 1_000)).cells:
        found, at = found + len(cells), log.next_location
    assert found == 2 * CELLS
    return _peak_megabytes() - before


def _peak_megabytes() -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) // 1024


if __name__ == "__main__":
    main(int(sys.argv[1]))
