"""`Fault`: what fsck may find. Each breaks an invariant; one command shows it, and one mends it."""

from __future__ import annotations

import shlex
from collections import defaultdict
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.stored import StoredCell
from schemaless_core.control.jobs.records import Finding

#: The kind of a finding that says what could not be looked at: it is neither right nor wrong (I12).
NOT_COMPARED = "not_compared"


class Fault(StrEnum):
    """What is not as it should be."""

    HOLE = "hole"  #: Nothing stands at an added id, and readers of the log stop there.
    ABOVE_HEAD = "above_head"  #: A cell above its shard's counter: readers do not come to it.
    TIME = "time"  #: A cell is older than the one before it in the log.
    BYTES = "bytes"  #: A body is no canonical JSON.
    ELSEWHERE = "elsewhere"  #: A cell in the log of a shard that its row does not belong to.
    NO_OWNER = "no_owner"  #: No cluster takes the shard's calls.
    TWO_OWNERS = "two_owners"  #: Two do.
    FENCED = "fenced"  #: The shard is RO, and does not open.
    MISPLACED = "misplaced"  #: The shard is not where the control database says, or not at that epoch.
    MIXED = "mixed"  #: One shard is open to owners; another is not, or at another authority epoch.
    OFFSET = "offset"  #: A group's offset is above the head of its shard's log.
    WAITING = "waiting"  #: Cells have waited in a buffer for too long.
    CONFLICT = "conflict"  #: Cells that waited conflict with what is stored.
    PARKED = "parked"  #: Cells that a group could not deliver.
    TAIL = "tail"  #: Cells that a primary had acknowledged are on its disk alone.
    ENTRY = "entry"  #: An entry of an index is not what the cells say.
    REPLICA = "replica"  #: A replica does not hold what its primary holds.


class Rule(NamedTuple):
    """What an operator needs to know of a fault. Commands name what a finding says in braces.

    Where no command mends it, a page says what a person can do.
    """

    invariant: str
    shows: str
    mends: str
    #: The same where Schemaless is a company's mirror, or was: the other store may know what is right.
    mends_beside_postgres: str = ""


_CELL = "tripstore cell get {row_key} {column_name} {ref_key}"
_LOG = "tripstore cell log {shard} --from {before}"
_STATUS = "tripstore status"
_MEND = "tripstore fsck --mend {job}"
_REPAIR = "tripstore diff start, then tripstore repair"

RULES = {
    Fault.HOLE: Rule("I3", _LOG, _MEND, _REPAIR),
    Fault.ABOVE_HEAD: Rule("I3", _LOG, _MEND),
    Fault.TIME: Rule("I3", _LOG, _MEND),
    Fault.BYTES: Rule("I2", _CELL, _MEND, _REPAIR),
    Fault.ELSEWHERE: Rule("I2", _LOG, _MEND),
    Fault.NO_OWNER: Rule("I9", _STATUS, "docs/howto/fsck.md#owners"),
    Fault.TWO_OWNERS: Rule("I9", _STATUS, "docs/howto/fsck.md#owners"),
    Fault.FENCED: Rule("I9", "tripstore shards status", "tripstore shards promote {cluster}"),
    Fault.MISPLACED: Rule("I9", _STATUS, "docs/howto/fsck.md#owners"),
    Fault.MIXED: Rule("I9", _STATUS, "docs/howto/fsck.md#owners", "tripstore cutover status"),
    Fault.OFFSET: Rule(
        "I7", "tripstore triggers status {group}", "tripstore triggers reset {group} --shard {shard} --to TIME"
    ),
    Fault.WAITING: Rule("I5", "tripstore buffer status", "tripstore buffer drain"),
    Fault.CONFLICT: Rule("I5", "tripstore buffer conflicts", "tripstore buffer conflicts"),
    Fault.PARKED: Rule("I7", "tripstore triggers parked list {group}", "tripstore triggers retry {group} --all"),
    Fault.TAIL: Rule("I1", "tripstore shards status", "tripstore shards salvage {cluster} --from {server}"),
    Fault.ENTRY: Rule(
        "I6", "tripstore index verify {index} --version {version}", "tripstore index repair {index} --version {version}"
    ),
    Fault.REPLICA: Rule("I1", "tripstore shards status", "docs/howto/promotion.md"),
}


def found(fault: Fault, reason: str, **where: Json) -> Finding:
    """A finding that is about no single cell."""
    return Finding(fault.value, body={"reason": reason, **where})


def found_at(fault: Fault, shard: int, cell: StoredCell, reason: str, **more: Json) -> Finding:
    """A finding about a cell in the log of a shard."""
    place: dict[str, Json] = {"shard": shard, "added_id": cell.added_id, "before": cell.added_id - 1}
    name = cell.column_name.decode("utf-8", "backslashreplace")
    return Finding(fault.value, UUID(bytes=cell.row_key), name, cell.ref_key, {"reason": reason, **place, **more})


def not_compared(reason: str, **where: Json) -> Finding:
    """A finding of something that could not be looked at."""
    return Finding(NOT_COMPARED, body={"reason": reason, **where})


def commands_of(finding: Finding, job: str, *, is_beside_postgres: bool) -> tuple[str, str, str]:
    """Of a finding of a job: the broken invariant, the command that shows it, the one that mends it; "": none."""
    if finding.kind == NOT_COMPARED:
        return "I12", "", ""
    rule = RULES[Fault(finding.kind)]
    words = {name: shlex.quote(str(value)) for name, value in finding.body.items()}
    key = {"row_key": finding.row_key, "column_name": finding.column_name, "ref_key": finding.ref_key}
    words |= {name: shlex.quote(str(value)) for name, value in key.items()} | {"job": job}
    known = defaultdict(str, words)
    mends = rule.mends_beside_postgres if is_beside_postgres and rule.mends_beside_postgres else rule.mends
    return rule.invariant, rule.shows.format_map(known), mends.format_map(known)
