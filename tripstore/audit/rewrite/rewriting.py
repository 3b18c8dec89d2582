"""The rewrite of a code base: each function is tried, each use gets its verdict, each file its new text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from schemaless_core.definitions.index import IndexDefinition
from tripstore.audit.code import LookedThrough, look_through
from tripstore.audit.findings import UseKind
from tripstore.audit.meaning.bindings import last_name
from tripstore.audit.names import LegacyTable, LegacyTables, words
from tripstore.audit.places import Lines
from tripstore.audit.reading.parsing import parse
from tripstore.audit.rewrite.functions import FunctionRewrite
from tripstore.audit.rewrite.judging import FileRewrite, RewriteJudge, of_sql
from tripstore.audit.rewrite.models.hooks import Listening
from tripstore.audit.rewrite.models.models import RewriteModels
from tripstore.audit.rewrite.needs import merged
from tripstore.audit.rewrite.patches import is_sound, patched
from tripstore.audit.rewrite.regions import BlamedUse, Function, Region, RewriteContext, regions
from tripstore.audit.rewrite.verdicts import (
    CodeRewrite,
    IndexNeed,
    JudgedUse,
    NotCertain,
    RewriteAssumption,
    RewrittenFile,
)
from tripstore.audit.rewrite.wishes import RewriteWishes
from tripstore.backends.postgres.layout.layout import Layout

_LISTENS = re.compile(
    r"\blistens?(?:_for)?\s*\(|\bquery_cl(?:as)?s\b|\bquery_property\b|\bmodels_committed\b|\bwith_loader_criteria\b"
    r"|\bsqlalchemy_easy_softdelete\b|^\s*class\s+\w+\(.*Session\b",
    re.MULTILINE,
)
_SESSION_READS = words("get get_one query execute scalar scalars")
_SESSION_WRITES = words("add delete flush commit begin")
#: What makes drivers answer by dictionaries, or by values of other types.
_FORMS = re.compile(r"cursor_factory|row_factory|DictCursor|NamedTupleCursor|register_(?:type|adapter)|DEC2FLOAT")
_STRICTER = re.compile(r"REPEATABLE.?READ|SERIALIZABLE", re.IGNORECASE)


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
        has_forms = any(_FORMS.search(source) for source in looked.sources.values())
        referenced = {use.table.name for use in looked.audit.found if use.kind is UseKind.FOREIGN_KEY}
        entities = looked.models.mapped()
        self._context = RewriteContext(
            looked.models,
            models,
            entities,
            indexes,
            wishes.name,
            tuple(wishes.units),
            referenced,
            has_forms,
            is_stricter,
            lambda name: sum(len(re.findall(rf"\bdef\s+{name}\b", each)) for each in looked.sources.values()),
        )

    def run(self) -> CodeRewrite:
        judged: list[JudgedUse] = []
        changed: list[RewrittenFile] = []
        judge = RewriteJudge(self._looked.sources, self._wishes.assume)
        for name, uses in self._looked.uses.items():
            file = FileRewrite(name, uses, Lines(self._looked.sources[name]))
            self._try(file)
            judge.judge(file)
            rewritten = self._text(file)
            if rewritten is not None and not is_sound(rewritten, only_comments=not file.done):
                rewritten = self._without_edits(file, judge)
            judged += file.judged
            if rewritten is not None:
                changed.append(rewritten)
        known = {(each.use.file, each.use.line, each.use.column, each.use.kind) for each in judged}
        judged += [
            of_sql(use) for use in self._looked.audit.uses if (use.file, use.line, use.column, use.kind) not in known
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

    def _listens(self) -> Iterator[Listening]:
        """What code hears events of, wherever it does."""
        for name, source in self._looked.sources.items():
            if _LISTENS.search(source):
                for node in ast.walk(self._tree(name)):
                    if isinstance(node, ast.Call) and _is_listening(node) and node.args:
                        event = (
                            node.args[1].value
                            if len(node.args) > 1 and isinstance(node.args[1], ast.Constant)
                            else None
                        )
                        yield Listening(ast.unparse(node.args[0]), str(event) if event is not None else None)
                    elif isinstance(node, ast.Attribute) and last_name(node.value).endswith("models_committed"):
                        yield Listening("session", "before_commit")  # Flask-SQLAlchemy's signals
                    elif _is_query_class(node):
                        yield Listening("query_class", None)
                    elif isinstance(node, ast.ClassDef):
                        yield from _of_session(node)
                    elif isinstance(node, ast.Call) and last_name(node.func) == "with_loader_criteria":
                        yield Listening("with_loader_criteria", None)

    def _try(self, file: FileRewrite) -> None:
        clash = self._clash(file)
        for function in file.uses.scopes:
            if isinstance(function, Function):
                every = regions(function)
                for region in every:
                    self._try_region(file, function, region, clash)
                self._keep_together(file, every)

    def _try_region(self, file: FileRewrite, function: Function, region: Region, clash: NotCertain | None) -> None:
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

    def _keep_together(self, file: FileRewrite, every: Sequence[Region]) -> None:
        """A session that comes from elsewhere is that of the whole function: what is left of it keeps the rest."""
        blame = next((file.blamed[region] for region in every if region in file.blamed), None)
        for region in every if blame is not None else ():
            for found in (file.done, file.assumed):
                if region in found and RewriteAssumption.COMMITTED_READS in found[region].assumes and blame is not None:
                    del found[region]
                    file.blamed[region] = blame

    def _clash(self, file: FileRewrite) -> NotCertain | None:
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

    def _text(self, file: FileRewrite) -> RewrittenFile | None:
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
        return rewritten

    def _without_edits(self, file: FileRewrite, judge: RewriteJudge) -> RewrittenFile | None:
        """A file whose new text would be no Python stays as it is, but for comments, if these are sound."""
        why = NotCertain("with all changes the file would be no Python", "rewrite it by hand")
        for region in list(file.done):
            del file.done[region]
            file.blamed[region] = BlamedUse(region, why)
        file.gone, file.comments, file.judged = [], {}, []
        judge.judge(file)
        rewritten = self._text(file)
        return rewritten if rewritten is not None and is_sound(rewritten, only_comments=True) else None


def _is_listening(call: ast.Call) -> bool:
    """`event.listen(Trip, …)`, `listens_for(Trip, …)`; not `server.listen(port)`."""
    is_event = isinstance(call.func, ast.Name) or (
        isinstance(call.func, ast.Attribute) and "event" in last_name(call.func.value).lower()
    )
    return is_event and last_name(call.func) in ("listens_for", "listen")


def _of_session(node: ast.ClassDef) -> Iterator[Listening]:
    """What a session of the company's does besides, as `class Sharded(Session)` with a `get` of its own."""
    methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    is_session = any(last_name(base).endswith("Session") for base in node.bases)
    if is_session and methods & _SESSION_READS:
        yield Listening("query_class", None)
    if is_session and methods & _SESSION_WRITES:
        yield Listening("session", "before_flush")


def _is_query_class(node: ast.AST) -> bool:
    """Whether queries are those of a class of the company's: `query_cls=…`, `query_property(…)`."""
    match node:
        case ast.ImportFrom(module="sqlalchemy_easy_softdelete.mixin" | "sqlalchemy_easy_softdelete"):
            return True
        case ast.keyword(arg="query_class" | "query_cls") | ast.Constant(value="query_class" | "query_cls"):
            return True
        case ast.Call(args=args, keywords=words):
            return last_name(node.func) == "query_property" and bool(args or words)
    return False
