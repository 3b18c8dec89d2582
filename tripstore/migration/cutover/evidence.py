"""`Evidence`: what justified a migration, as one JSON document: verdicts, what was compared, and the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from schemaless_core.cell.canonical import Json
from schemaless_core.control.audit import AuditEntry, AuditLog
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.process.private import private
from tripstore.engines.validation.shadow.ledger import KnownMismatch, OperationCounts, ShadowLedger
from tripstore.handover.authority import Authority
from tripstore.migration.cutover.facts import Facts
from tripstore.migration.cutover.gates import complete_verdicts
from tripstore.migration.cutover.look import BACKFILL, DIFF
from tripstore.migration.cutover.verdicts import GateVerdict
from tripstore.thresholds import CutoverSettings

#: Of each list, the newest.
ENTRIES_MAX = 10_000


class NotedJob(msgspec.Struct, frozen=True):
    """A backfill or diff as it was noted."""

    at: datetime
    body: Mapping[str, Json]


class Evidence(msgspec.Struct, frozen=True):
    """The document."""

    datastore: str
    at: datetime
    facts: Facts
    verdicts: list[GateVerdict]
    #: Of all hours that `prune.counts_days` has kept.
    comparisons: list[OperationCounts]
    mismatches: list[KnownMismatch]
    backfills: list[NotedJob]
    diffs: list[NotedJob]
    #: What the authority row was, the latest first.
    authority: list[Authority]
    audit: list[AuditEntry]


def gather(
    datastore: str, facts: Facts, settings: CutoverSettings, control: ControlDatabase, history: list[Authority]
) -> Evidence:
    """Everything that is known by now."""
    ledgers = Ledgers(control)
    shadow = ShadowLedger(ledgers)
    return Evidence(
        datastore,
        facts.at,
        facts,
        complete_verdicts(facts, settings),
        shadow.operations(),
        shadow.mismatches(ENTRIES_MAX),
        [NotedJob(*note) for note in ledgers.notes(BACKFILL, ENTRIES_MAX)],
        [NotedJob(*note) for note in ledgers.notes(DIFF, ENTRIES_MAX)],
        history,
        AuditLog(control).newest(ENTRIES_MAX),
    )


def export(evidence: Evidence, file: Path) -> None:
    """Write it; a file that is there already is earlier evidence, and stays."""
    with open(file, "xb", opener=private) as written:
        written.write(msgspec.json.format(msgspec.json.encode(evidence), indent=2))
