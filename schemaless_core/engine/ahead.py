"""What a doctor says of shards whose times run ahead of their server's clock, as after it jumped forwards and back."""

from __future__ import annotations

from datetime import datetime

from schemaless_core.engine.base import Fact

#: Clocks are set right in small steps, too: what is less ahead is caught up with before anyone looks.
AHEAD_SECONDS = 60


def ahead_facts(shards: int, until: datetime | None) -> list[Fact]:
    """`until`: the latest time of a shard. Nothing where none is ahead."""
    if until is None:
        return []
    advice = (
        "Until then its cells all get that time, so read by positions and not by times there: "
        "docs/howto/runbook-3am.md, A server's clock jumped."
    )
    said = "1 shard stands" if shards == 1 else f"{shards} shards stand"
    return [Fact("created_at", f"{said} in the future, until {until:%Y-%m-%d %H:%M:%S} UTC", False, advice=advice)]
