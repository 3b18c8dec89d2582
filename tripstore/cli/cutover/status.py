"""`tripstore cutover status`: who is the authority, whether both stores are what that says, and how it came to be."""

from __future__ import annotations

from collections.abc import Iterator

import click
import msgspec
import psycopg2
from rich.console import RenderableType
from rich.text import Text

from schemaless_core.control.audit import AuditEntry, AuditLog
from tripstore.backends.postgres.capture.functions.gate import GateReading, read_gate
from tripstore.backends.postgres.errors import LegacyRefused, PostgresNotAccepted
from tripstore.backends.postgres.handover.authority import gate_of
from tripstore.backends.postgres.wire.connections import connected
from tripstore.cli.both import Both, both
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.tables import show, table
from tripstore.handover.accept import lost_decision
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import StatedAuthority
from tripstore.phase import Phase
from tripstore.ports.control import RealControlPort

HISTORY = 10
#: Of these so many are looked through for those of a hand-over.
AUDIT_ENTRIES = 200
_OURS = "cutover."


class RowDocument(msgspec.Struct, frozen=True):
    """The authority row as it is or was; `target` is where a hand-over leads, null: it is open."""

    epoch: int
    authority: str
    target: str | None
    switch_id: str
    since: str | None
    who: str


class CutoverStatusDocument(msgspec.Struct, frozen=True):
    """The JSON document of `status`. Of a server that is silent nothing is known."""

    phase: str
    authority: RowDocument
    gate_epoch: int
    gate_state: str
    store_epoch: int | None
    shards_open: int
    shards_seen: int
    silent: list[str]
    timeline: int
    accepted_timeline: int | None
    is_fine: bool
    advice: list[str]
    history: list[RowDocument]
    audit: list[AuditEntry]


@click.command(cls=Command)
@json_option
@pass_settings
def status(settings: Settings, as_json: bool) -> Exit:
    """Show the authority, the gates of both stores, and the last hand-overs. Changes nothing.

    Exit code 1 while a hand-over goes on, or where a store is not what the authority row says.

    \b
    Example:
      tripstore cutover status
      tripstore cutover status --json
    """
    with both(settings) as stores:
        document = look_at_cutover(stores)
    if as_json:
        print_document(document)
    else:
        show(*_screen(document))
    return Exit.FINE if document.is_fine else Exit.FAILED


def look_at_cutover(stores: Both) -> CutoverStatusDocument:
    """Look once; raises what a server raises that does not answer."""
    control, store = stores.duo.ports.control, stores.facade.store
    assert isinstance(control, RealControlPort)
    stated = control.stated_authority()
    row = stated.row
    gate = _gate(stores)
    phase = stores.facade.flags.find().phase(row)
    seen = store.authority.find()
    silent = [] if seen is None else list(seen.silent)
    epoch, opened, known = (None, 0, 0) if seen is None else (seen.epoch, seen.shards_open, seen.shards_seen)
    advice = [*_unaccepted(stated), *_lost(row, epoch, opened)]
    advice += list(_advice(row, gate, phase, epoch, opened, known, silent))
    entries = [entry for entry in AuditLog(store.control).newest(AUDIT_ENTRIES) if entry.action.startswith(_OURS)]
    return CutoverStatusDocument(
        phase,
        _row(row),
        gate.epoch,
        gate.state.name.lower(),
        epoch,
        opened,
        known,
        silent,
        stated.timeline,
        None if stated.given is None else max(stated.given, 0),
        not advice,
        advice,
        [_row(each) for each in control.history(HISTORY)],
        entries[:HISTORY],
    )


def _unaccepted(stated: StatedAuthority) -> Iterator[str]:
    if not stated.is_accepted:
        row = stated.row
        unknown = PostgresNotAccepted(row.backend.value, row.epoch, stated.given or 0, stated.timeline)
        yield f"{unknown.message} {unknown.hint}"


def _lost(row: Authority, epoch: int | None, opened: int) -> Iterator[str]:
    if epoch is not None and opened and epoch > row.epoch:
        yield f"{lost_decision(epoch, row)}; `tripstore cutover settle`"


def _gate(stores: Both) -> GateReading:
    try:
        with connected(stores.legacy.postgres.text, "cutover") as connection:
            return read_gate(connection)
    except psycopg2.Error as error:
        reason = str(error).strip().splitlines()[0]
        raise LegacyRefused(f"The gate cannot be read: {reason}.", hint="Run `tripstore schema apply`.") from error


def _advice(
    row: Authority, gate: GateReading, phase: Phase, epoch: int | None, opened: int, known: int, silent: list[str]
) -> Iterator[str]:
    if not row.is_open:
        yield (
            f"hand-over {row.switch_id} by {row.who} goes on: every process of tripstore undoes it when it takes too"
            " long, and so does the next `tripstore cutover switch`"
        )
        return
    if gate != gate_of(row):
        said = f"{gate.state.name.lower()} at epoch {gate.epoch}"
        yield f"the gate of Postgres is {said}; every process of tripstore sets it, `tripstore worker run` too"
    if row.backend is Backend.STORE and (epoch, opened) != (row.epoch, known):
        yield f"{opened} of {known} shards are open at epoch {epoch}; `tripstore worker run` opens them"
    if row.backend is Backend.LEGACY and opened and epoch is not None and epoch > 0:
        yield f"{opened} of {known} shards are open to owners, and Postgres is the authority; `tripstore doctor`"
    for server in silent:
        yield f"{server} does not answer; `tripstore status`"


def _row(row: Authority) -> RowDocument:
    target = None if row.target is None else row.target.value
    since = None if row.since is None else row.since.isoformat(timespec="milliseconds")
    return RowDocument(row.epoch, row.backend.value, target, row.switch_id, since, row.who)


def _screen(seen: CutoverStatusDocument) -> Iterator[RenderableType]:
    row = seen.authority
    state = "open" if row.target is None else f"closing towards {row.target}"
    yield Text(f"phase {seen.phase}: {row.authority} is the authority, {state}, epoch {row.epoch}", style="bold")
    yield Text(f"gate of Postgres: {seen.gate_state} at epoch {seen.gate_epoch}")
    yield Text(f"Schemaless: {seen.shards_open} of {seen.shards_seen} shards open, epoch {seen.store_epoch}")
    yield from (Text(advice, style="bold red") for advice in seen.advice)
    yield Text()
    rows = [(str(each.epoch), _said(each), each.since or "", each.who, each.switch_id) for each in seen.history]
    yield table(("epoch", "authority", "since", "by", "hand-over"), rows)
    if seen.audit:
        yield Text()
        entries = [(entry.at[:19], f"{entry.who}@{entry.host}", entry.action, entry.detail) for entry in seen.audit]
        yield table(("when", "who", "what", ""), entries)


def _said(row: RowDocument) -> str:
    return row.authority if row.target is None else f"{row.authority} → {row.target}"
