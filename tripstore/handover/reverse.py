"""The mirror, backwards: what Schemaless has is written into the legacy tables.

The offset is saved after the write, which is durable by then: twice is fine, never is not.
"""

from __future__ import annotations

from tripstore.handover.ports import Ports
from tripstore.handover.steps import Step, Steps

READ = Step("reverse.read", "read the log of a shard after the offset")
APPLY = Step("reverse.apply", "write the cells into the legacy tables, forward only")
SAVE = Step("reverse.save", "save the offset")

CELLS_PER_PAGE = 500


def mirror_back(ports: Ports, shard: int, limit: int = CELLS_PER_PAGE) -> Steps[int]:
    """Carry the next cells of a shard; return how many there were."""
    yield READ
    page = ports.store.read_log(shard, limit)
    if page.cells:
        yield APPLY
        ports.legacy.apply(page.cells)
        yield SAVE
        ports.store.save_offset(shard, page.position)
    return len(page.cells)
