"""What the doctor says of the buffer of a cluster."""

from __future__ import annotations

from datetime import UTC, datetime

from schemaless_core.engine.base import Fact
from schemaless_core.engine.buffers import BufferSize

#: A cell that waits for longer than this is a finding: a cluster is down, or nothing carries it.
OLD_SECONDS = 300.0


def facts_of(size: BufferSize, *, is_configured: bool) -> list[Fact]:
    """Nothing, where there is nothing to know: no section, and nothing there."""
    if not (is_configured or size.cells or size.conflicts):
        return []
    age = 0.0 if size.oldest_at is None else (datetime.now(UTC) - size.oldest_at).total_seconds()
    waiting = f"{size.cells:,} cells wait" + (f", the oldest for {age:,.0f} s" if size.cells else "")
    advice = "`tripstore worker run` carries them once their cluster takes writes: look at the other servers here."
    facts = [Fact("buffer", waiting, age < OLD_SECONDS, advice=advice)]
    if size.conflicts:
        advice = "`tripstore buffer conflicts` shows both bodies of each, and says what to do."
        facts.append(Fact("buffer", f"{size.conflicts:,} cells in conflict", False, advice=advice))
    return facts
