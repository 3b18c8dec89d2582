"""The past: a chunk of rows is read and put as a copier.

It may be late: a row that changed or went meanwhile has a higher ref key in the other store, or will have.
"""

from __future__ import annotations

from tripstore.handover.ports import Ports
from tripstore.handover.steps import Step, Steps

READ = Step("backfill.read", "read the latest cells of a chunk")
WRITE = Step("backfill.write", "put them as a copier at the epoch of the reading")


def copy_chunk(ports: Ports, chunk: int) -> Steps[bool]:
    """Copy a chunk; False: it is to be read again."""
    yield READ
    copies = ports.legacy.read_chunk(chunk)
    yield WRITE
    return len(ports.store.copy(copies.cells, copies.epoch)) == len(copies.cells)
