"""`RIGHTS`: the one table. GRANTs, the page of the docs and the walk under least rights come from it.

A role has the rights of a phase before the phase is entered, so a phase has what the way to the next one asks for, too.
In live and rampdown nothing goes that shadow needs: the way back takes less than a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tripstore.migration.rights.roles import GrantPlace, LoginRole
from tripstore.phase import Phase

Phases = frozenset[Phase]


def _from(first: Phase, last: Phase = Phase.COMPLETE) -> Phases:
    order = list(Phase)
    return frozenset(order[order.index(first) : order.index(last) + 1])


ALWAYS = _from(Phase.OFF)
#: As long as a configuration has a section `legacy`.
LEGACY = _from(Phase.OFF, Phase.RAMPDOWN)
MIRRORED = _from(Phase.DUALWRITE, Phase.RAMPDOWN)
READ = _from(Phase.SHADOW)
#: A switch from shadow to live has no time for a GRANT.
SWITCHED = _from(Phase.SHADOW, Phase.RAMPDOWN)
#: `schema apply` runs in the first, `cutover complete` leads into the last.
STEPS = frozenset({Phase.OFF, Phase.COMPLETE})


@dataclass(frozen=True, slots=True)
class Right:
    """What some roles may do with some objects, from which phase to which, and why."""

    place: GrantPlace
    privileges: str
    roles: Mapping[LoginRole, Phases]
    why: str
    #: Tables or sequences of ours; empty: all that the place has.
    names: tuple[str, ...] = ()


def _by(*roles: LoginRole, phases: Phases) -> dict[LoginRole, Phases]:
    return dict.fromkeys(roles, phases)


_S, _W, _O, _R = LoginRole.SERVICE, LoginRole.WORKER, LoginRole.OPERATOR, LoginRole.READER

_POSTGRES = (
    Right(GrantPlace.DATABASE, "CONNECT", _by(_S, _W, _O, _R, phases=ALWAYS), "nothing without"),
    Right(GrantPlace.DATABASE, "CREATE", {_O: frozenset({Phase.OFF})}, "`schema apply` makes the schema tripstore"),
    Right(GrantPlace.SCHEMA, "USAGE", _by(_S, _W, _O, _R, phases=ALWAYS), "tables are named with their schema"),
    Right(GrantPlace.SCHEMA, "CREATE", {_O: STEPS}, "an index is made in the schema of its table"),
    Right(
        GrantPlace.OWNER,
        "",
        {_O: STEPS},
        "only an owner may alter a table or make a trigger on it: wanted while `schema apply` has a step to do, while "
        "a backfill walks by blocks, and by `cutover complete`; not between them",
    ),
    Right(
        GrantPlace.OPERATOR,
        "",
        {_W: LEGACY},
        "the gate lets only members of its functions' owner pass (the reverse mirror); only an owner gives the log "
        "a partition",
    ),
    Right(
        GrantPlace.SIGNAL,
        "",
        _by(_W, _O, phases=MIRRORED),
        "a hand-over whose process stopped holds the barrier until its session is ended",
    ),
    Right(
        GrantPlace.STATISTICS,
        "",
        _by(_W, _O, phases=LEGACY) | {_R: LEGACY},
        "limits on the load and the gate *writers* look at sessions of other roles",
    ),
    Right(GrantPlace.MAPPED, "SELECT", _by(_S, _W, _O, _R, phases=LEGACY), "cells are read from their rows"),
    Right(GrantPlace.MAPPED, "INSERT, UPDATE, DELETE", {_S: LEGACY}, "a put writes its row"),
    Right(
        GrantPlace.MAPPED,
        "INSERT, UPDATE, DELETE",
        _by(_W, _O, phases=MIRRORED),
        "reverse mirror and repair write rows",
    ),
    Right(
        GrantPlace.LOOKUP,
        "SELECT",
        _by(_S, _W, _O, _R, phases=LEGACY),
        "a row points to its key, a body holds its value",
    ),
    Right(GrantPlace.SEQUENCE, "USAGE, SELECT", _by(_S, _W, _O, phases=LEGACY), "a new row draws its id"),
    Right(
        GrantPlace.OWN_SCHEMA, "USAGE", _by(_S, _R, phases=LEGACY), "the operator, who made it, and the worker have it"
    ),
    Right(GrantPlace.OWN, "SELECT", _by(_S, _R, phases=LEGACY), "history, tombs, the authority row"),
    Right(
        GrantPlace.OWN,
        "INSERT, UPDATE, DELETE",
        {_S: LEGACY},
        "cells that the tables cannot hold; by INSERT on `cell` capture knows a session of ours",
        ("cell", "tomb", "kept", "queue"),
    ),
    Right(
        GrantPlace.OWN,
        "INSERT, DELETE",
        {_S: LEGACY},
        "ids of the emulated log are given when they are read",
        ("numbered",),
    ),
    Right(
        GrantPlace.OWN,
        "INSERT, UPDATE",
        {_S: SWITCHED},
        "every process undoes a hand-over that takes too long",
        ("authority", "authority_history"),
    ),
    Right(GrantPlace.OWN_SEQUENCE, "SELECT", _by(_S, _R, phases=LEGACY), "the gate"),
    Right(GrantPlace.OWN_SEQUENCE, "UPDATE", {_S: SWITCHED}, "the same undoing sets the gate", ("gate", "accepted")),
)

_CELLS = SWITCHED | {Phase.COMPLETE}
_STORE = (
    Right(GrantPlace.ALL, "CREATE, ALTER, DROP, INDEX", {_O: ALWAYS}, "shards, tables of indexes, migrations"),
    Right(GrantPlace.ALL, "SELECT, INSERT, UPDATE, DELETE", {_O: ALWAYS}, "jobs in the foreground, repair, hand-overs"),
    Right(GrantPlace.SERVER, "REPLICATION CLIENT", {_O: ALWAYS}, "`doctor` looks at replicas"),
    Right(GrantPlace.SHARDS, "SELECT", _by(_S, _W, _R, phases=ALWAYS), "cells and entries"),
    Right(
        GrantPlace.SHARDS,
        "INSERT, UPDATE, DELETE",
        {_S: _CELLS, _W: ALWAYS},
        "puts and entries; MySQL asks for UPDATE where a statement might update, and no pattern names tables",
    ),
    Right(GrantPlace.META, "SELECT", _by(_S, _W, _R, phases=ALWAYS), "heads, epochs, offsets"),
    Right(
        GrantPlace.META,
        "INSERT, UPDATE",
        {_S: _CELLS, _W: ALWAYS},
        "added ids; a hand-over's last step, which every process may do",
        ("shard_state", "shard_authority"),
    ),
    Right(
        GrantPlace.META,
        "INSERT, UPDATE",
        {_S: ALWAYS, _W: ALWAYS},
        "entries that do not parse; copies of the catalogue of indexes and of what the tables refuse",
        ("index_error", "document"),
    ),
    Right(
        GrantPlace.META,
        "INSERT, UPDATE, DELETE",
        {_W: ALWAYS},
        "offsets and parked cells of groups",
        ("trigger_offset", "trigger_parked"),
    ),
    Right(
        GrantPlace.META,
        "INSERT, UPDATE",
        {_S: _CELLS},
        "cells for servers that do not take them, and second copies",
        ("buffered", "second_copy"),
    ),
    Right(
        GrantPlace.META,
        "INSERT, UPDATE, DELETE",
        {_W: ALWAYS},
        "what waits in buffers is carried to its shards",
        ("buffered", "second_copy", "buffer_conflict"),
    ),
    Right(
        GrantPlace.META,
        "INSERT, UPDATE",
        _by(_S, _W, phases=ALWAYS),
        "leases of primaries that need one, which asks for a right of the server, too: see the page on promotion",
        ("lease", "promise"),
    ),
    Right(
        GrantPlace.META,
        "INSERT, UPDATE",
        {_W: ALWAYS},
        "a detached repair writes down what it did",
        ("mended", "purged"),
    ),
    Right(
        GrantPlace.META, "INSERT, UPDATE", {_W: ALWAYS}, "a detached purge writes down what it bars", ("purged_key",)
    ),
    Right(GrantPlace.CONTROL, "SELECT", _by(_S, _W, _R, phases=ALWAYS), "topology, phase, jobs, ledgers"),
    Right(
        GrantPlace.CONTROL,
        "INSERT, UPDATE, DELETE",
        {_S: ALWAYS},
        "what a process counted and what shadow reads compared",
        ("ledger_count", "ledger_note", "ledger_writer"),
    ),
    Right(GrantPlace.CONTROL, "INSERT, UPDATE", {_S: LEGACY}, "the copy of what the tables refuse", ("document",)),
    Right(
        GrantPlace.CONTROL, "INSERT", {_S: ALWAYS}, "documents that change, and hand-overs that were undone", ("audit",)
    ),
    Right(
        GrantPlace.CONTROL,
        "INSERT, UPDATE",
        {_S: ALWAYS},
        "the seals of those lines; without it they have none",
        ("audit_head", "audit_seal"),
    ),
    Right(
        GrantPlace.CONTROL,
        "INSERT, UPDATE, DELETE",
        {_W: ALWAYS},
        "leases, jobs, ledgers, paces, the catalogue of indexes",
        (
            "audit",
            "audit_head",
            "audit_seal",
            "document",
            "job",
            "job_count",
            "job_finding",
            "job_part",
            "job_worker",
            "ledger_count",
            "ledger_note",
            "ledger_writer",
            "trigger_group",
            "trigger_leader",
            "trigger_lease",
            "trigger_worker",
        ),
    ),
)
RIGHTS = (*_POSTGRES, *_STORE)


def rights_of(role: LoginRole, phase: Phase) -> list[Right]:
    """What a role has in a phase, in the order of the table."""
    return [right for right in RIGHTS if phase in right.roles.get(role, ())]


def former_rights_of(role: LoginRole, phase: Phase) -> list[Right]:
    """What it had in an earlier phase, and has no more."""
    earlier = set(list(Phase)[: list(Phase).index(phase)])
    return [
        right for right in RIGHTS if phase not in right.roles.get(role, ()) and earlier & set(right.roles.get(role, ()))
    ]
