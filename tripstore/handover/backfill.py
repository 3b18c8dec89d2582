"""The past: a chunk of rows is read and put as a copier.

It may be late: a row that changed or went meanwhile has a higher ref key in the other store, or will have.
"""

from __future__ import annotations

from typing import NamedTuple

from schemaless_core.cell.encoded import EncodedOutcome
from schemaless_core.cell.put_errors import CellConflict
from schemaless_core.errors import InvalidCell
from tripstore.handover.ports import Chunk, Past, Ports
from tripstore.handover.steps import Step, Steps

READ = Step("backfill.read", "read the cells of a chunk")
WRITE = Step("backfill.write", "put them as a copier at the epoch of the reading")


class CopiedChunk(NamedTuple):
    """What was read, and what became of it."""

    past: Past
    outcome: EncodedOutcome

    @property
    def is_whole(self) -> bool:
        """Whether everything that can ever be there is; else the chunk is to be read again."""
        return all(isinstance(each.error, CellConflict | InvalidCell) for each in self.outcome.problems)


def copy_chunk(ports: Ports, chunk: Chunk) -> Steps[CopiedChunk]:
    """Copy a chunk. It may be done as often as wanted, and by several at once."""
    yield READ
    past = ports.legacy.read_chunk(chunk)
    yield WRITE
    outcome = ports.store.put_encoded(past.cells, past.epoch)
    return CopiedChunk(past, outcome)
