"""`IndexDiff`: the indexes of two stores. Entries against cells where there are entries, and answers against answers.

One index is one part. First all of its entries are verified by the store that has them; then both stores are asked the
same questions, about a sample of the shard values that rows really have, and about those that an earlier sample found
answered differently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from schemaless_core.calls.using import Using
from schemaless_core.cell.answers import IndexEntry, IndexPage, Scalar
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import ColumnKey
from schemaless_core.cell.children import ChildKey
from schemaless_core.control.jobs.jobs import Finding
from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.definitions.values import BadValue, parse
from schemaless_core.habits import Habits
from schemaless_core.indexes.verify import VerificationReport
from schemaless_core.store import CellStore
from tripstore.engines.validation.compare import AnswerDifference, compare
from tripstore.engines.validation.diff.differences import EXPLAINED, difference
from tripstore.engines.validation.diff.portions import Portion
from tripstore.engines.validation.diff.shard_values import ShardValues
from tripstore.engines.validation.diff.suspects import READ_SECONDS, Explaining, NothingExplained, Roles
from tripstore.engines.validation.reads import Failed, Incomparable, Read
from tripstore.engines.validation.recheck import Recheck
from tripstore.engines.validation.verdicts import Outcome

#: The kind of its findings, and what saw those in which answers differ.
INDEX, ANSWERS = "index", "answers"
ENTRIES_PER_PAGE = 100
#: Of the entries under one shard value.
PAGES_MAX = 20


class IndexDiff:
    """Compares one index at a time."""

    def __init__(
        self,
        definitions: Mapping[str, IndexDefinition],
        shard_values: ShardValues,
        roles: Callable[[], Roles],
        recheck: Recheck,
        verify: Callable[[str], VerificationReport | None],
        incomparable: Incomparable = (),
        explaining: Explaining | None = None,
    ) -> None:
        self._definitions = definitions
        self._shard_values = shard_values
        self._roles = roles
        self._recheck = recheck
        #: Holds the entries of the version that answers against the cells; None: there is none.
        self._verify = verify
        self._incomparable = incomparable
        self._explaining = explaining or NothingExplained()
        self._using = Using(Habits(deadline=READ_SECONDS))

    def step(self, bounds: Json, checkpoint: Json) -> Portion:
        assert isinstance(bounds, dict)
        name, again = str(bounds["name"]), bounds["again"]
        if checkpoint is None:
            return self._entries(name)
        assert isinstance(again, list)
        return self._answers(self._definitions[name], again)

    def _entries(self, name: str) -> Portion:
        counts, others = Counter[str](), list[Finding]()
        try:
            report = self._verify(name)
        except self._incomparable as error:
            return Portion("entries", False, Counter(index_not_compared=1), (), [_unverified(name, error)])
        if report is not None:
            counts.update(index_entries=report.entries, index_late=report.late)
            counts.update(index_not_compared=report.not_compared, open=report.differences)
            for each in report.samples:
                body: dict[str, Json] = {"index": name, "version": report.version, "path": str(each.kind)}
                others.append(Finding(INDEX, each.row_key, None, None, body))
            counts.update({f"index_{kind}": count for kind, count in report.counts.items()})
        return Portion("entries", False, counts, (), others)

    def _answers(self, definition: IndexDefinition, again: Sequence[Json]) -> Portion:
        counts, others = Counter[str](), list[Finding]()
        store = self._roles().authority.using(deadline=READ_SECONDS)
        known = [parse(definition.shard_field.kind, value) for value in again]
        values = [*self._shard_values.sample(store, definition), *known]
        for value in dict.fromkeys(value for value in values if not isinstance(value, BadValue)):
            self._compare(definition.name, value, counts, others)
        return Portion("answers", True, counts, (), others)

    def _compare(self, index: str, value: Scalar, counts: Counter[str], others: list[Finding]) -> None:
        read = Read("query_index", {"index": index, "shard_value": value, "limit": ENTRIES_PER_PAGE})
        for _page in range(PAGES_MAX):
            roles = self._roles()
            wanted, given = (read.ask(store, self._using, self._incomparable) for store in roles[:2])
            counts["index_answers"] += 1
            if isinstance(wanted, Failed) or isinstance(given, Failed) or compare(read.operation, wanted, given):
                self._judge(read, value, roles, counts, others)
            if not isinstance(wanted, IndexPage) or wanted.cursor is None:
                return
            read = replace(read, arguments={**read.arguments, "cursor": wanted.cursor})

    def _judge(self, read: Read, value: Scalar, roles: Roles, counts: Counter[str], others: list[Finding]) -> None:
        verdict = self._recheck.verdict(read, roles.authority, roles.mirror)
        if verdict.outcome is Outcome.NOT_COMPARED:
            counts["index_not_compared"] += 1
        elif verdict.outcome is Outcome.MISMATCH and self._is_explained(read, roles):
            counts[f"index_{EXPLAINED}"] += 1
        elif verdict.outcome is Outcome.MISMATCH:
            counts["index_answers_differ"] += 1
            counts["open"] += 1
            others.append(_finding(read, value, verdict.differences[0]))

    def _is_explained(self, read: Read, roles: Roles) -> bool:
        """Whether the answers are equal but for rows that one store keeps rightly."""
        try:
            wanted, given = (self._all_entries(read, store) for store in roles[:2])
            alone = {each.row_key for each in wanted} ^ {each.row_key for each in given}
            keys = [ColumnKey(key, self._definitions[read.arguments["index"]].column_names[0]) for key in alone]
            ours, theirs = (store.using(deadline=READ_SECONDS).get_cells_latest(keys) for store in roles[:2])
        except self._incomparable:
            return False
        sides = (ours, theirs) if roles.is_from else (theirs, ours)
        differences = [each for each in map(difference, [ChildKey(*key) for key in keys], *sides) if each is not None]
        explained = {each.row_key for each in self._explaining.explained(differences)}
        pages = (
            IndexPage([each for each in entries if each.row_key not in alone], None) for entries in (wanted, given)
        )
        return bool(alone) and alone <= explained and not compare(read.operation, *pages)

    def _all_entries(self, read: Read, store: CellStore) -> list[IndexEntry]:
        """Under one shard value; of very many the first."""
        found, cursor = list[IndexEntry](), None
        index, value = read.arguments["index"], read.arguments["shard_value"]
        for _page in range(PAGES_MAX):
            page = store.using(deadline=READ_SECONDS).query_index(index, value, limit=ENTRIES_PER_PAGE, cursor=cursor)
            found += page.entries
            cursor = page.cursor
            if cursor is None:
                break
        return found


def _unverified(index: str, error: BaseException) -> Finding:
    return Finding(INDEX, None, None, None, {"index": index, "path": type(error).__name__, "seen_by": "verify"})


def _finding(read: Read, value: Scalar, differing: AnswerDifference) -> Finding:
    body: dict[str, Any] = {
        "index": read.arguments["index"],
        "class": str(differing.kind),
        "entry": differing.entry,
        "path": differing.path,
        "seen_by": ANSWERS,
        "shard_value": str(value),
        "value": _json(value),
    }
    return Finding(INDEX, None, None, None, body)


def _json(value: Scalar) -> Json:
    """As it would stand in a body."""
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, str | int | float | bool) else str(value)
