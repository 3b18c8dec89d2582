"""What a doctor says of offsets that stand above the heads of their logs, as after a restore from an older backup."""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.engine.base import Fact
from schemaless_core.engine.groups import Beyond


def beyond_facts(beyond: Sequence[Beyond]) -> list[Fact]:
    """What a doctor says of offsets above the heads of their logs; nothing where there are none."""
    facts = []
    for place in beyond:
        value = f"{place.group} is at {place.added_id} of epoch {place.epoch} in shard {place.shard}"
        command = f"tripstore triggers reset {place.group} --shard {place.shard} --to TIME"
        advice = f"No cell of it is delivered. `{command}`, a time before the backup that the shard was restored from."
        facts.append(Fact("offsets", f"{value}, whose log ends at {place.head}", False, advice=advice))
    return facts
