"""Files of row keys: one UUID per line, or JSON that names them as `row_key`, as diffs and reports do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.errors import InvalidRequest, shown
from tripstore.engines.validation.diff.runner import LEFT_OUT
from tripstore.migration.backfill.portions import check_number

FINDINGS_PER_PAGE = 1_000
#: Lists of a report that are cut where it says.
REPORTED = ("mismatches", "quarantine", "conflicts")


def read_row_keys(path: Path) -> list[UUID]:
    """The row keys of a file, each once; `InvalidRequest` names the line that is none, or a list that was cut."""
    keys: dict[UUID, None] = {}
    for number, line in enumerate(_lines(path), 1):
        for key in _row_keys(line.strip(), f"Line {number} of {path}"):
            keys[key] = None
        check_number(len(keys))
    if not keys:
        raise InvalidRequest(f"{path} names no row key.", hint="Write one UUID per line.")
    return list(keys)


def row_keys_of_diff(jobs: Jobs, job_id: str) -> list[UUID]:
    """The rows that a diff found different, as long as it could keep all of them."""
    job = jobs.find("diff", job_id)
    if jobs.progress(job.id).counts.get(LEFT_OUT):
        hint = "`tripstore diff start --keys FILE` writes all of them; give that file."
        raise InvalidRequest(f"{job.id} found more differences than it keeps.", hint=hint)
    keys: dict[UUID, None] = {}
    after = 0
    while page := jobs.findings(job.id, after=after, limit=FINDINGS_PER_PAGE):
        after = page[-1].id
        keys.update((found.row_key, None) for found in page if found.row_key is not None)
    if not keys:
        raise InvalidRequest(f"{job.id} has no open finding.", hint="There is nothing to copy because of it.")
    return list(keys)


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8") as lines:
            yield from lines
    except UnicodeDecodeError as error:
        hint = "Write one UUID per line, or JSON with row_key, as UTF-8."
        raise InvalidRequest(f"{path} is no text in UTF-8.", hint=hint) from error


def _row_keys(line: str, where: str) -> Iterator[UUID]:
    if not line:
        return
    if not line.startswith(("{", "[")):
        yield _row_key(line, where)
        return
    try:
        document = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{where} is no JSON ({error}).", hint="Write one document per line.") from error
    _check_whole(document, where)
    for found in _named(document):
        yield _row_key(found, where)


def _check_whole(document: Any, where: str) -> None:
    """A list that was cut would copy a part and look like all of it."""
    if not isinstance(document, dict):
        return
    if document.get("is_complete") is False:
        hint = "Give a larger --limit to what listed it; `tripstore diff start --keys FILE` writes all."
        raise InvalidRequest(f"{where} lists a part of what was found.", hint=hint)
    limits = document.get("limits")
    listed_max = limits.get("listed_max") if isinstance(limits, dict) else None
    cut = [name for name in REPORTED if isinstance(listed_max, int) and len(document.get(name) or ()) >= listed_max]
    if cut:
        hint = "`tripstore report --json --mismatches 1000` lists more; `--from-diff JOB` takes all that a diff found."
        raise InvalidRequest(f"{where} is a report cut after {listed_max}: {' and '.join(cut)} may be more.", hint=hint)


def _named(document: Any) -> Iterator[object]:
    """Whatever stands under `row_key`, however deep."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name == "row_key" and value is not None:
                yield value
            else:
                yield from _named(value)
    elif isinstance(document, list):
        for value in document:
            yield from _named(value)


def _row_key(text: object, where: str) -> UUID:
    try:
        return UUID(text if isinstance(text, str) else "")
    except ValueError:
        hint = "Write one UUID per line, or JSON with row_key."
        raise InvalidRequest(f"{where}: {shown(text)} is no row key.", hint=hint) from None
