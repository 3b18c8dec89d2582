"""The gates on jobs and indexes: what was copied, walked and verified, all of it, and not too long ago."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tripstore.migration.cutover.facts import Facts, IndexFacts, JobFacts, KeyFacts, Unknown
from tripstore.migration.cutover.job_advice import NAMED_MAX, begin, go_on, take_up
from tripstore.migration.cutover.verdicts import GateVerdict, Trouble, first_unknown, moment, unknown, verdict_of
from tripstore.thresholds import CutoverSettings

_INDEX_MEND = "`tripstore index repair {name} --version {version} --yes` makes the entries right."
_INDEX_SERVE = "`tripstore worker run` serves it: let it catch up."
_INDEX_VERIFY = "`tripstore index verify {name} --version {version}` compares every entry."
_ROWS_LEFT_OUT = (
    "`tripstore diff status` names the tables. A row that came back below its tombstone is lifted by"
    " `tripstore repair`; one whose row key is NULL has no cell: `tripstore doctor`. Then `tripstore diff start`."
)


def backfill(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """The past was copied, all of it, by a job that began after capture did."""
    yield _job("backfill", facts.backfill, "complete, younger than capture, nothing in quarantine", facts, settings)


def row_keys(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Child rows carry their parent's key; else both stores agree on cells of rows that do not exist."""
    wanted = "every child row carries its parent's"
    if isinstance(facts.keys, Unknown):
        yield unknown("row keys", facts.keys, wanted)
        return
    wrong = [f"{found.different:,} rows of {found.table} do not" for found in facts.keys if found.different]
    said = wrong or [f"{found.compared:,} rows of {found.table}{_share(found)} do" for found in facts.keys]
    hint = (
        "`tripstore doctor` says what to change in the layout, and `tripstore schema apply` puts it in force. Then"
        " `tripstore backfill start` copies these rows anew, and `tripstore diff start` compares them."
    )
    yield verdict_of("row keys", not wrong, "; ".join(said) or "there are no child rows", wanted, hint)


def diff(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Both stores were walked and found equal, since authority moved last."""
    wanted = (
        f"complete, after the backfill and the last hand-over, within {settings.evidence_hours} hours,"
        " every row of the tables compared, nothing different or not compared"
    )
    if verdict := first_unknown("diff", wanted, facts.handed_over):
        yield verdict
        return
    yield _job("diff", facts.diff, wanted, facts, settings)


def indexes(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Every index answers, and its entries were held against the cells not long ago."""
    wanted = f"verified without a difference within {settings.evidence_hours} hours"
    if isinstance(facts.indexes, Unknown):
        yield unknown("indexes", facts.indexes, wanted)
        return
    if not facts.indexes:
        yield verdict_of("indexes", True, "none is configured", wanted)
    for index in facts.indexes:
        yield _index(index, wanted, facts, settings)


def _share(found: KeyFacts) -> str:
    """What was left out is said: it was not compared."""
    return "" if found.is_all else ", a sample,"


def _job(
    name: str, found: JobFacts | None | Unknown, wanted: str, facts: Facts, settings: CutoverSettings
) -> GateVerdict:
    if isinstance(found, Unknown):
        return unknown(name, found, wanted)
    if found is None:
        return GateVerdict(name, False, "none was ever begun", wanted, begin(name))
    said = f"{moment(found.begun_at)}: {found.rows:,} rows{_of_tables(found)}"
    return _job_trouble(name, found, facts, settings).verdict(name, said, wanted)


def _job_trouble(name: str, found: JobFacts, facts: Facts, settings: CutoverSettings) -> Trouble:
    if found.is_partial:
        return Trouble("none of everything is complete", begin(name))
    if name == "diff" and not found.compares_rows:
        return Trouble("by an earlier version, which compared one child of each parent", begin(name))
    if not found.is_complete:
        return Trouble(f"not complete: {found.rows:,} rows so far", go_on(name, found))
    if found.table_rows != found.table_rows_compared:
        said = f"{found.table_rows_compared or 0:,} of {found.table_rows or 0:,} rows of the tables were compared"
        return Trouble(said, _ROWS_LEFT_OUT)
    if found.open or found.not_compared:
        by = ", ".join(each.job for each in found.left[:NAMED_MAX] if each.job)
        said = f"{found.open:,} open, {found.not_compared:,} not compared"
        return Trouble(said + (f", left by {by}" if by else ""), take_up(name, found))
    if name == "diff" and found.begun_at < facts.at - timedelta(hours=settings.evidence_hours):
        return Trouble(f"from {moment(found.begun_at)}", begin(name))
    troubles = [_trouble_of_capture]
    if name == "diff":
        troubles += [_trouble_of_backfill, _trouble_of_hand_over]
    said = next((said for trouble in troubles if (said := trouble(found, facts))), "")
    return Trouble(said, begin(name))


def _of_tables(found: JobFacts) -> str:
    if found.table_rows is None:
        return ""
    return f", {found.table_rows_compared or 0:,} of {found.table_rows:,} rows of the tables"


def _trouble_of_capture(found: JobFacts, facts: Facts) -> str:
    """Whether it began before capture did. A job that noted which capture it relied on needs no two servers' clocks."""
    begun = None if isinstance(facts.capture, Unknown) else facts.capture.since
    if begun is None:
        return ""
    is_after = found.begun_at >= begun if found.capture_since is None else found.capture_since == begun
    said = f"from {moment(found.begun_at)}, before capture began at {moment(begun)}"
    return "" if is_after else said


def _trouble_of_backfill(found: JobFacts, facts: Facts) -> str:
    """Whether it began before the last of what it is to compare was copied."""
    backfill = facts.backfill
    if not isinstance(backfill, JobFacts):
        return ""
    copied_at = backfill.ended_at or backfill.begun_at
    said = f"from {moment(found.begun_at)}, before the backfill ended at {moment(copied_at)}"
    return said if found.begun_at < copied_at else ""


def _trouble_of_hand_over(found: JobFacts, facts: Facts) -> str:
    """Whether it began before authority moved: since then other code has carried every change."""
    moved = facts.handed_over
    if moved is None or isinstance(moved, Unknown):
        return ""
    is_after = found.begun_at >= moved.at if found.epoch is None else found.epoch >= moved.epoch
    said = f"from {moment(found.begun_at)}, before the hand-over at {moment(moved.at)}"
    return "" if is_after else said


def _index(index: IndexFacts, wanted: str, facts: Facts, settings: CutoverSettings) -> GateVerdict:
    name = f"index {index.name}"
    if index.version is None:
        hint = (
            f"`tripstore index status {index.name}` shows its versions; `tripstore index verify {index.name}` and"
            f" `tripstore index promote {index.name}` let the newest answer."
        )
        return GateVerdict(name, False, "answers no queries", wanted, hint)
    is_close = index.lag_cells <= settings.lag_changes_max
    is_right = not index.differences and not index.not_compared
    hints = [_INDEX_VERIFY]
    if index.differences:
        hints.insert(0, _INDEX_MEND)
    if not is_close:
        hints.insert(0, _INDEX_SERVE)
    hint = " ".join(hints).format(name=index.name, version=index.version)
    behind = (
        ""
        if is_close
        else f"; it is behind by {index.lag_cells:,} cells, and what it has not passed cannot be compared"
    )
    if index.verified_at is None:
        return GateVerdict(name, False, f"version {index.version} was never verified{behind}", wanted, hint)
    is_young = index.verified_at >= facts.at - timedelta(hours=settings.evidence_hours)
    said = (
        f"version {index.version} at {moment(index.verified_at)}: {index.differences:,} differences,"
        f" {index.not_compared:,} not compared{behind or f'; {index.lag_cells:,} cells behind'}"
    )
    return verdict_of(name, is_young and is_close and is_right, said, wanted, hint)
