"""The rewrite of a code base: each function is tried, each use gets its verdict, each file its new text."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from schemaless_core.definitions.index import IndexDefinition
from tripstore.audit.code import LookedThrough, look_through
from tripstore.audit.findings import Use, UseKind
from tripstore.audit.meaning.bindings import last_name
from tripstore.audit.names import LegacyTable, LegacyTables
from tripstore.audit.places import Lines
from tripstore.audit.reading.parsing import parse
from tripstore.audit.rewrite.functions import (
    BlamedUse,
    Function,
    FunctionEdits,
    FunctionRewrite,
    RewriteContext,
    reason_of,
    regions,
)
from tripstore.audit.rewrite.models import RewriteModels
from tripstore.audit.rewrite.needs import merged
from tripstore.audit.rewrite.patches import is_sound, patched
from tripstore.audit.rewrite.sqltext import sql_change
from tripstore.audit.rewrite.verdicts import (
    ASSUMPTIONS,
    CodeRewrite,
    Edit,
    IndexNeed,
    JudgedUse,
    NotCertain,
    RewriteAssumption,
    RewriteVerdict,
    RewrittenFile,
)
from tripstore.audit.uses.uses import Uses
from tripstore.backends.postgres.layout.layout import Layout

_SCHEMA = frozenset({UseKind.SCHEMA, UseKind.FOREIGN_KEY, UseKind.SQL_SCHEMA, UseKind.SQL_TRUNCATE})
_LISTENS = re.compile(r"\blistens?(?:_for)?\s*\(|\bquery_class\b|\bwith_loader_criteria\b")
_STRICTER = re.compile(r"REPEATABLE.READ|SERIALIZABLE|RepeatableRead|Serializable")
Region = ast.With | Function


@dataclass(frozen=True)
class RewriteWishes:
    """How the company wants it."""

    store: str | None = None  #: `app.stores:store`: where the store is imported from.
    units: Collection[str] = ()
    assume: Collection[RewriteAssumption] = ()
    comments: bool = True

    @property
    def name(self) -> str:
        return (self.store or ":store").rpartition(":")[2]

    @property
    def imports(self) -> list[tuple[str, str]]:
        module = (self.store or "").rpartition(":")[0]
        return [("tripstore", "rewritten"), *([(module, self.name.partition(".")[0])] if module else [])]


def rewrite_code(
    path: Path,
    layout: Layout,
    indexes: Sequence[IndexDefinition],
    exclude: Sequence[str] = (),
    wishes: RewriteWishes | None = None,
) -> CodeRewrite:
    """Say for each use below a folder, or in a file, what replaces it, or why it stays. Nothing is written."""
    tables = LegacyTables(LegacyTable(name.schema, name.name) for name in layout.tables)
    looked = look_through(path, tables, exclude)
    return _Rewriting(looked, layout, tuple(indexes), wishes or RewriteWishes()).run()


@dataclass
class _FileRewrite:
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


class _Rewriting:
    def __init__(
        self, looked: LookedThrough, layout: Layout, indexes: Sequence[IndexDefinition], wishes: RewriteWishes
    ) -> None:
        self._looked = looked
        self._layout = layout
        self._indexes = indexes
        self._wishes = wishes
        self._needs: list[IndexNeed] = []
        self._trees: dict[str, ast.Module] = {}
        models = RewriteModels(looked.models, layout, self._tree, tuple(self._listens()))
        is_stricter = any(_STRICTER.search(source) for source in looked.sources.values())
        entities = looked.models.mapped()
        self._context = RewriteContext(
            looked.models, models, entities, indexes, wishes.name, tuple(wishes.units), is_stricter
        )

    def run(self) -> CodeRewrite:
        judged: list[JudgedUse] = []
        changed: list[RewrittenFile] = []
        for name, uses in self._looked.uses.items():
            file = _FileRewrite(name, uses, Lines(self._looked.sources[name]))
            self._try(file)
            self._judge(file)
            rewritten = self._text(file)
            judged += file.judged
            if rewritten is not None:
                changed.append(rewritten)
        known = {(each.use.file, each.use.line, each.use.column, each.use.kind) for each in judged}
        judged += [
            _of_sql(use) for use in self._looked.audit.uses if (use.file, use.line, use.column, use.kind) not in known
        ]
        return CodeRewrite(
            files=self._looked.audit.files,
            uses=tuple(sorted(judged, key=lambda each: (each.use.file, each.use.line, each.use.column))),
            changed=tuple(changed),
            needs=tuple(dict.fromkeys(self._needs)),
            proposed=merged(self._needs, self._layout, self._indexes),
            unread=self._looked.audit.unread,
            unclear=self._looked.audit.unclear,
            untold=() if self._looked.audit.is_complete else self._looked.audit.untold,
        )

    def _tree(self, name: str) -> ast.Module:
        if name in self._looked.uses:
            return self._looked.uses[name].tree
        if name not in self._trees:
            self._trees[name] = parse(self._looked.sources[name])
        return self._trees[name]

    def _listens(self) -> Iterator[str]:
        """What code hears events of, wherever it does."""
        for name, source in self._looked.sources.items():
            if _LISTENS.search(source):
                for node in ast.walk(self._tree(name)):
                    if isinstance(node, ast.Call) and last_name(node.func) in ("listens_for", "listen") and node.args:
                        yield ast.unparse(node.args[0])
                    if isinstance(node, ast.keyword) and node.arg == "query_class":
                        yield node.arg
                    if isinstance(node, ast.Call) and last_name(node.func) == "with_loader_criteria":
                        yield "with_loader_criteria"

    # ------------------------------------------------------------------------------------------------ functions

    def _try(self, file: _FileRewrite) -> None:
        clash = self._clash(file)
        for function in file.uses.scopes:
            if isinstance(function, Function):
                every = regions(function)
                for region in every:
                    self._try_region(file, function, region, clash)
                self._keep_together(file, every)

    def _try_region(self, file: _FileRewrite, function: Function, region: Region, clash: NotCertain | None) -> None:
        try:
            if clash is not None:
                raise BlamedUse(function, clash)
            if file.name.endswith(".ipynb"):
                raise BlamedUse(function, NotCertain("it is in a notebook", "rewrite it by hand"))
            found = FunctionRewrite(self._context, file.uses, file.lines, function, region).edits()
        except BlamedUse as blame:
            file.blamed[region] = blame
            self._needs += [blame.why.need] if blame.why.need is not None else []
            return
        if found.edits:
            self._needs += found.needs
            is_assumed = found.assumes <= set(self._wishes.assume)
            (file.done if is_assumed else file.assumed)[region] = found

    def _keep_together(self, file: _FileRewrite, every: Sequence[Region]) -> None:
        """A session that comes from elsewhere is that of the whole function: what is left of it keeps the rest."""
        blame = next((file.blamed[region] for region in every if region in file.blamed), None)
        for region in every if blame is not None else ():
            for found in (file.done, file.assumed):
                if region in found and RewriteAssumption.COMMITTED_READS in found[region].assumes and blame is not None:
                    del found[region]
                    file.blamed[region] = blame

    def _clash(self, file: _FileRewrite) -> NotCertain | None:
        """Names that the rewrite would bring and that mean something else in the file."""
        brought = {name for _module, name in self._wishes.imports}
        ours = {"tripstore", (self._wishes.store or "").rpartition(":")[0]}
        for node in ast.walk(file.uses.tree):
            bound = None
            match node:
                case (
                    ast.Name(id=name, ctx=ast.Store())
                    | ast.FunctionDef(name=name)
                    | ast.ClassDef(name=name)
                    | ast.arg(arg=name)
                ):
                    bound = name
                case ast.alias(name=full, asname=alias):
                    above = file.uses.parent(node)
                    is_ours = isinstance(above, ast.ImportFrom) and above.module in ours and alias is None
                    bound = None if is_ours else alias or full.partition(".")[0]
            if bound in brought:
                return NotCertain(
                    f"the name {bound} means something else in this file",
                    "give that another name, or say --store module:name",
                )
        return None

    # ------------------------------------------------------------------------------------------------ verdicts

    def _judge(self, file: _FileRewrite) -> None:
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

    def _verdict(self, file: _FileRewrite, node: ast.expr, use: Use) -> JudgedUse:
        function = _region(node, file.uses)
        if use.kind in _SCHEMA:
            return JudgedUse(use, RewriteVerdict.SCHEMA, "it goes with the table")
        if function in file.done:
            return JudgedUse(use, RewriteVerdict.REWRITTEN, "", assumes=tuple(sorted(file.done[function].assumes)))
        if function in file.assumed:
            return JudgedUse(use, RewriteVerdict.LEFT, *_of_assumptions(file.assumed[function], self._wishes.assume))
        if function is not None and function in file.blamed:
            return JudgedUse(use, RewriteVerdict.LEFT, *_of_blame(file.blamed[function], node, use, file.uses))
        return self._of_constant(file, node, use)

    def _of_constant(self, file: _FileRewrite, node: ast.expr, use: Use) -> JudgedUse:
        """SQL that has a name: rewritten when each function that names it is."""
        name = _constant_name(node, file.uses)
        if name is None:
            return JudgedUse(use, RewriteVerdict.LEFT, *_of_use(use))
        loads = [
            each
            for each in ast.walk(file.uses.tree)
            if isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Load)
        ]
        done = {each for edits in file.done.values() for each in edits.texts}
        open_ = [each for each in loads if each not in done]
        if loads and not open_ and not self._is_imported(name, file.name):
            file.gone.append(_gone(node, file))
            return JudgedUse(use, RewriteVerdict.REWRITTEN, "")
        for each in open_:
            function = _region(each, file.uses)
            if function in file.assumed:
                return JudgedUse(
                    use, RewriteVerdict.LEFT, *_of_assumptions(file.assumed[function], self._wishes.assume)
                )
            if function is not None and function in file.blamed:
                blame = file.blamed[function]
                if _line(blame.node) == each.lineno:
                    return JudgedUse(use, RewriteVerdict.LEFT, blame.why.reason, blame.why.advice)
                own = _of_use(use)
                if own[0] == _WHOLE:
                    return JudgedUse(
                        use,
                        RewriteVerdict.LEFT,
                        f"it stays with {_quoted(blame.node)}: {blame.why.reason}",
                        blame.why.advice,
                    )
        return JudgedUse(use, RewriteVerdict.LEFT, *_of_use(use))

    def _is_imported(self, name: str, file: str) -> bool:
        pattern = re.compile(rf"\b{re.escape(name)}\b")
        return any(
            pattern.search(source)
            for other, source in self._looked.sources.items()
            if other != file and f"import" in source
        )

    # ------------------------------------------------------------------------------------------------ the new text

    def _text(self, file: _FileRewrite) -> RewrittenFile | None:
        if file.name.endswith(".ipynb"):
            return None
        edits = [edit for found in file.done.values() for edit in found.edits] + file.gone
        comments = file.comments if self._wishes.comments else {}
        before = self._looked.sources[file.name]
        rewritten = RewrittenFile(
            file.name, before, patched(before, edits, comments, self._wishes.imports if edits else ())
        )
        if rewritten.after == before:
            return None
        if not is_sound(rewritten, only_comments=not edits):
            raise AssertionError(f"the rewrite of {file.name} is no Python")  # a bug of this command, never of the code
        return rewritten


_WHOLE = "this SQL is handed to a function of yours"


def _of_use(use: Use) -> tuple[str, str]:
    if use.statement is not None and use.kind.value.startswith("sql."):
        try:
            sql_change(use.statement)
        except NotCertain as why:
            return why.reason, why.advice
        return _WHOLE, "let that function call tripstore"
    return reason_of(use)


def _of_sql(use: Use) -> JudgedUse:
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
    statement = _statement(node, uses)
    is_plain = (
        isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name)
    )
    return (
        statement.targets[0].id
        if is_plain and isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
        else None
    )


def _gone(node: ast.expr, file: _FileRewrite) -> Edit:
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
