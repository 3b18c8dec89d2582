"""`RewriteJudge`: the verdict of each use, by what became of the part of the function that it stands in."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tripstore.audit.findings import Use, UseKind
from tripstore.audit.places import Lines
from tripstore.audit.rewrite.reasons import HANDED_ON, reason_of
from tripstore.audit.rewrite.regions import BlamedUse, FunctionEdits, Region, regions
from tripstore.audit.rewrite.verdicts import ASSUMPTIONS, Edit, JudgedUse, RewriteAssumption, RewriteVerdict
from tripstore.audit.uses.uses import Uses

_SCHEMA = frozenset({UseKind.SCHEMA, UseKind.FOREIGN_KEY, UseKind.SQL_SCHEMA, UseKind.SQL_TRUNCATE})


@dataclass
class FileRewrite:
    """One file while it is looked at."""

    name: str
    uses: Uses
    lines: Lines
    done: dict[Region, FunctionEdits] = field(default_factory=dict)
    blamed: dict[Region, BlamedUse] = field(default_factory=dict)
    assumed: dict[Region, FunctionEdits] = field(default_factory=dict)  #: which would be, if they were assumed
    gone: list[Edit] = field(default_factory=list)  #: texts of SQL that are no longer used
    comments: dict[int, list[str]] = field(default_factory=dict)
    judged: list[JudgedUse] = field(default_factory=list)


class RewriteJudge:
    """Judges file by file. SQL that has a name is judged by the functions that name it."""

    def __init__(self, sources: Mapping[str, str], assume: Collection[RewriteAssumption]) -> None:
        self._sources = sources
        self._assume = assume

    def judge(self, file: FileRewrite) -> None:
        for node, use in file.uses.placed():
            if use.allowed is not None:
                continue
            found = self._verdict(file, node, use)
            file.judged.append(found)
            if found.verdict is RewriteVerdict.LEFT:
                said = f"{found.reason}; {found.advice}" if found.advice else found.reason
                above = file.comments.setdefault(_statement_line(node, file.uses), [])
                if said not in above:
                    above.append(said)

    def _verdict(self, file: FileRewrite, node: ast.expr, use: Use) -> JudgedUse:
        function = _region(node, file.uses)
        if use.kind in _SCHEMA:
            return JudgedUse(use, RewriteVerdict.SCHEMA, "it goes with the table")
        if function in file.done:
            return JudgedUse(use, RewriteVerdict.REWRITTEN, "", assumes=tuple(sorted(file.done[function].assumes)))
        if function in file.assumed:
            return JudgedUse(use, RewriteVerdict.LEFT, *_of_assumptions(file.assumed[function], self._assume))
        if function is not None and function in file.blamed:
            return JudgedUse(use, RewriteVerdict.LEFT, *_of_blame(file.blamed[function], node, use, file.uses))
        return self._of_constant(file, node, use)

    def _of_constant(self, file: FileRewrite, node: ast.expr, use: Use) -> JudgedUse:
        """SQL that has a name: rewritten when each function that names it is."""
        name = _constant_name(node, file.uses)
        if name is None:
            return JudgedUse(use, RewriteVerdict.LEFT, *reason_of(use))
        loads = [
            each
            for each in ast.walk(file.uses.tree)
            if isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Load)
        ]
        stored = sum(
            isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Store)
            for each in ast.walk(file.uses.tree)
        )
        done = {each for edits in file.done.values() for each in edits.texts}
        open_ = [each for each in loads if each not in done]
        if loads and not open_ and stored == 1 and not self._is_imported(name, file.name):
            file.gone.append(_gone(node, file))
            assumed = {each for edits in file.done.values() if edits.texts & set(loads) for each in edits.assumes}
            return JudgedUse(use, RewriteVerdict.REWRITTEN, "", assumes=tuple(sorted(assumed)))
        for each in open_:
            function = _region(each, file.uses)
            if function in file.assumed:
                return JudgedUse(use, RewriteVerdict.LEFT, *_of_assumptions(file.assumed[function], self._assume))
            if function is not None and function in file.blamed:
                blame = file.blamed[function]
                if _line(blame.node) == each.lineno:
                    return JudgedUse(use, RewriteVerdict.LEFT, blame.why.reason, blame.why.advice)
                own = reason_of(use)
                if own == HANDED_ON:
                    return JudgedUse(
                        use,
                        RewriteVerdict.LEFT,
                        f"it stays with {_quoted(blame.node)}: {blame.why.reason}",
                        blame.why.advice,
                    )
        return JudgedUse(use, RewriteVerdict.LEFT, *reason_of(use))

    def _is_imported(self, name: str, file: str) -> bool:
        """Whether another file has the name, and that of the module, without which it cannot mean this one."""
        path = PurePosixPath(file)
        module = path.parent.name if path.stem == "__init__" else path.stem
        words = [re.compile(rf"\b{re.escape(word)}\b") for word in (name, module)]
        others = (source for other, source in self._sources.items() if other != file and "import" in source)
        return any(all(word.search(source) for word in words) for source in others)


def of_sql(use: Use) -> JudgedUse:
    if use.kind in _SCHEMA:
        return JudgedUse(use, RewriteVerdict.SCHEMA, "it goes with the table")
    return JudgedUse(use, RewriteVerdict.LEFT, "it is a file of SQL", "a job in Python that calls tripstore")


def _of_assumptions(found: FunctionEdits, assumed: Collection[RewriteAssumption]) -> tuple[str, str]:
    missing = sorted(found.assumes - set(assumed))
    return "; ".join(ASSUMPTIONS[each] for each in missing), " ".join(
        f"--assume {each.value}" for each in missing
    ) + ", if that is so"


def _of_blame(blame: BlamedUse, node: ast.expr, use: Use, uses: Uses) -> tuple[str, str]:
    """The use that is to blame says why; the others of its function stay with it."""
    if _is_within(node, blame.node, uses) or _is_within(blame.node, _statement(node, uses), uses):
        return blame.why.reason, blame.why.advice
    return f"it stays with {_quoted(blame.node)}: {blame.why.reason}", blame.why.advice


def _quoted(node: ast.AST) -> str:
    """The beginning of a node; no line number, which a comment above would make wrong."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.With):
        return "its function" if not isinstance(node, ast.With) else "its transaction"
    text = ast.unparse(node).split("\n")[0]
    return f"`{text}`" if len(text) <= 50 else f"`{text[:49]}…`"


def _region(node: ast.AST, uses: Uses) -> Region | None:
    """The part of its function that a node stands in."""
    function = uses.function_of(node)
    every = regions(function) if function is not None else []
    return next((region for region in every if _is_within(node, region, uses)), None)


def _is_within(node: ast.AST, other: ast.AST, uses: Uses) -> bool:
    above: ast.AST | None = node
    while above is not None and above is not other:
        above = uses.parent(above)
    return above is not None


def _statement(node: ast.AST, uses: Uses) -> ast.AST:
    above: ast.AST = node
    while not isinstance(above, ast.stmt) and (parent := uses.parent(above)) is not None:
        above = parent
    return above


def _statement_line(node: ast.AST, uses: Uses) -> int:
    statement = _statement(node, uses)
    decorators = getattr(statement, "decorator_list", ())
    return min([_line(statement), *(_line(each) for each in decorators)])


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 1))


def _constant_name(node: ast.expr, uses: Uses) -> str | None:
    """The name that a module gives to a text."""
    match _statement(node, uses):
        case ast.Assign(targets=[ast.Name(id=name)]) as statement if isinstance(uses.parent(statement), ast.Module):
            return name
    return None


def _gone(node: ast.expr, file: FileRewrite) -> Edit:
    """The lines of an assignment, and the blank ones below where blank ones are above as well."""
    statement = _statement(node, file.uses)
    assert isinstance(statement, ast.stmt)  # a constant's name is that of an assignment
    start, end = file.lines.span(statement)
    source = file.lines.source
    first = source.rfind("\n", 0, start) + 1
    after = source.find("\n", end) + 1 or len(source)
    while source[:first].endswith("\n\n") and source.startswith("\n", after):
        after += 1
    return Edit(first, after, "")
