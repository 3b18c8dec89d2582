"""`Preflight`: judges statements one by one, and counts those that differ in their values alone together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from schemaless_core.definitions.index import IndexDefinition
from tripstore.audit.preflight.asked import Asked
from tripstore.audit.preflight.company import Company
from tripstore.audit.preflight.effects import effects_of
from tripstore.audit.preflight.grammar import TreeNode, UnreadableStatement, fingerprint, parsed
from tripstore.audit.preflight.others import other_reasons
from tripstore.audit.preflight.reads import read_reasons
from tripstore.audit.preflight.verdicts import ALWAYS, Judged, StatementVerdict, VerdictReason, judged
from tripstore.audit.preflight.writes import write_reasons

_ROWS = frozenset({"SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt", "CopyStmt"})
#: They have another statement inside, which runs.
_AROUND = {"PrepareStmt": "query", "DeclareCursorStmt": "query", "CreateTableAsStmt": "query", "ViewStmt": "query"}


@dataclass(frozen=True, slots=True)
class JudgedStatement:
    """A kind of statement, the first place that has it, and what becomes of it."""

    asked: Asked
    places: int
    judged: Judged


@dataclass
class Preflight:
    """Knows the company and its indexes, and the statements that were prepared before."""

    company: Company
    indexes: Sequence[IndexDefinition] = ()
    _prepared: dict[str, Judged] = field(default_factory=dict)

    def findings(self, every: Iterable[Asked]) -> list[JudgedStatement]:
        """One finding per kind of statement and judgement, in the order of their first places."""
        found: dict[tuple[str, Judged], JudgedStatement] = {}
        known: dict[str, tuple[str, Judged]] = {}
        for asked in every:
            if asked.text not in known or asked.unreadable is not None:
                known[asked.text] = (fingerprint(asked.text), self.judge(asked))
            key = known[asked.text]
            before = found.get(key)
            found[key] = JudgedStatement(asked, 1, key[1]) if before is None else _together(before, asked)
        return list(found.values())

    def judge(self, asked: Asked) -> Judged:
        """What becomes of a statement, by its form: what its values do to single rows is not known here."""
        if asked.unreadable is not None:
            return judged([VerdictReason(StatementVerdict.UNCLEAR, ALWAYS, asked.unreadable)])
        try:
            trees = parsed(asked.text)
        except UnreadableStatement as error:
            return judged([VerdictReason(StatementVerdict.UNCLEAR, ALWAYS, f"it does not parse: {error}")])
        return judged(reason for tree in trees for reason in self._reasons(tree))

    def _reasons(self, tree: TreeNode) -> Iterator[VerdictReason]:
        made = _made(tree)
        if made is not None:
            self.company = replace(self.company, made=self.company.made | {made})
        if tree.kind in _ROWS:
            yield from self._rows(tree)
        elif tree.kind == "ExplainStmt":
            if _runs(tree):
                yield from self._inside(tree, "query")
        elif tree.kind in _AROUND:
            found = list(self._inside(tree, _AROUND[tree.kind]))
            if tree.kind == "PrepareStmt":
                self._prepared[tree.text("name")] = judged(found)
            yield from found
        elif tree.kind == "ExecuteStmt":
            yield from self._executed(tree.text("name"))
        else:
            yield from other_reasons(tree, self.company)

    def _rows(self, tree: TreeNode) -> Iterator[VerdictReason]:
        effects = effects_of(tree)
        for write in effects.writes:
            yield from write_reasons(write, self.company)
        yield from read_reasons(effects, self.company, self.indexes)
        for function in sorted(effects.functions, key=str):
            if self.company.reaches(function):
                text = f"function {function} may touch mapped tables: judge the statements in it"
                yield VerdictReason(StatementVerdict.UNCLEAR, ALWAYS, text)

    def _inside(self, tree: TreeNode, name: str) -> Iterator[VerdictReason]:
        inner = tree.find(name)
        if inner is not None:
            yield from self._reasons(inner)

    def _executed(self, name: str) -> Iterator[VerdictReason]:
        if name in self._prepared:
            yield from self._prepared[name].reasons
        else:
            yield VerdictReason(StatementVerdict.UNCLEAR, ALWAYS, f"{name} was prepared elsewhere")


def _made(tree: TreeNode) -> str | None:
    """The table that a statement makes: nothing stands on it but what later statements say."""
    into = tree.find("into") or tree.find("intoClause")
    relation = tree.find("relation") if tree.kind == "CreateStmt" else into.find("rel") if into is not None else None
    return None if relation is None else relation.relation.name


def _runs(tree: TreeNode) -> bool:
    """Whether EXPLAIN runs the statement."""
    for option in tree.every("options"):
        if option.text("defname") == "analyze":
            said = option.find("arg")
            return said is None or said.text("sval").lower() not in ("false", "off", "0", "no")
    return False


def _together(finding: JudgedStatement, asked: Asked) -> JudgedStatement:
    first = finding.asked
    rows = None if first.rows is None or asked.rows is None else first.rows + asked.rows
    return JudgedStatement(
        replace(first, calls=first.calls + asked.calls, rows=rows), finding.places + 1, finding.judged
    )
