"""What a bundle of evidence holds, gathered from both stores and the control database."""

from __future__ import annotations

import platform
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from schemaless_core.control.audit import AuditLog, who_am_i
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.control.seals import SealedLine, SealHead
from schemaless_core.version import VERSION
from tripstore.engines.validation.report.document import Report
from tripstore.migration.evidence.bundle import AUDIT, FORMAT, BundleManifest, audit_file, digest_of
from tripstore.migration.evidence.cleaned import cleaned
from tripstore.migration.report.redacting import without_values

#: Whose versions matter to what was compared and moved.
PACKAGES = ("SQLAlchemy", "psycopg2-binary", "PyMySQL", "alembic", "PyYAML", "msgspec", "click")


def files_of(
    report: Report, page: str, document: Mapping[str, Any], control: ControlDatabase, *, with_bodies: bool
) -> dict[str, bytes]:
    """The files, by name. `page`: the report as HTML; `document`: the configuration as it was written."""
    return {
        "report.html": page.encode(),
        "report.json": _pretty(report),
        "configuration.json": _pretty(cleaned(dict(document))),
        "versions.json": _pretty(versions(control)),
        "jobs.jsonl": _lines(jobs(Jobs(control), with_bodies=with_bodies)),
        "ledgers.jsonl": _lines(counts(Ledgers(control))),
    }


def with_audit(
    datastore: str, files: Mapping[str, bytes], sealed: tuple[SealHead, list[SealedLine]]
) -> tuple[BundleManifest, dict[str, bytes]]:
    """The files with the audit log beside them, and the manifest of all."""
    head, lines = sealed
    whole = {**files, AUDIT: audit_file(lines)}
    digests = {name: digest_of(content) for name, content in whole.items()}
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    return BundleManifest(FORMAT, datastore, made_at, who_am_i(), socket.gethostname(), head, digests), whole


def sealed_log(control: ControlDatabase) -> tuple[SealHead, list[SealedLine]]:
    return AuditLog(control).sealed()


def jobs(stored: Jobs, *, with_bodies: bool) -> Iterator[dict[str, Any]]:
    """Every job that is kept, the oldest first, with its counts. Why it stopped may quote a row."""
    for job in reversed(stored.all()):
        progress = stored.progress(job.id)
        told = {"parts": progress.parts, "parts_done": progress.parts_done, "open": progress.findings_open}
        why = job.why if with_bodies else without_values(job.why)
        yield {**msgspec.to_builtins(job), "why": why, "counts": dict(progress.counts), **told}


def counts(ledgers: Ledgers) -> Iterator[dict[str, Any]]:
    """What was counted, hour by hour: calls, comparisons, mismatches."""
    for ledger, name, hour, total in ledgers.all_hours():
        yield {"ledger": ledger, "hour": hour, "name": name, "total": total}


def versions(control: ControlDatabase) -> dict[str, Any]:
    return {
        "tripstore": VERSION,
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "control_tables": control.version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name)) is not None},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _pretty(document: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document)) + b"\n"


def _lines(documents: Iterable[object]) -> bytes:
    return b"".join(msgspec.json.encode(each) + b"\n" for each in documents)
