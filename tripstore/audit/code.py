"""The audit of code: reads every file of a code base, finds the models in it, then their uses. It runs none of it."""

from __future__ import annotations

import ast
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from pathlib import Path

from tripstore.audit.allowing import allowances
from tripstore.audit.findings import CodeAudit, Remark, Use
from tripstore.audit.meaning.bindings import Bindings, bindings, last_name
from tripstore.audit.meaning.modules import Modules
from tripstore.audit.names import LegacyTables
from tripstore.audit.orms.models import Models
from tripstore.audit.reading.files import SourceFile, SourceTree, read
from tripstore.audit.reading.parsing import parse
from tripstore.audit.sql.statements import file_findings
from tripstore.audit.uses.uses import Uses

#: Files with these may define models whose tables or classes they do not name.
_FIRST_WORDS = frozenset({"__tablename__", "map_imperatively"})
#: SQL whose table may be known at run time only.
_OPEN = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE|from|join|into|update) +(?:\"?\{\w|%s|[\"'] *[+%])")
_REFLECTS = re.compile(r"\.(?:reflect|prepare)\s*\(|\bget_model\b|\bget_user_model\b")
_IMPERATIVE = re.compile(r"\b(?:map_imperatively|mapper)\s*\(")


def audit_code(path: Path, tables: LegacyTables, exclude: Sequence[str] = ()) -> CodeAudit:
    """Find the uses of tables below a folder, or in a file."""
    return look_through(path, tables, exclude).audit


@dataclass(frozen=True)
class LookedThrough:
    """An audit with what it was made of, for what goes on from there."""

    audit: CodeAudit
    models: Models
    sources: Mapping[str, str]
    uses: Mapping[str, Uses]  #: Of the files that have any.


def look_through(path: Path, tables: LegacyTables, exclude: Sequence[str] = ()) -> LookedThrough:
    """The same, and keep trees and scopes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the company's escapes and comparisons
        return _Audit(SourceTree(path, exclude), tables).run()


@dataclass
class _Audit:
    """One run: first the models, wherever they are, then the files that speak of them."""

    tree: SourceTree
    tables: LegacyTables
    _files: int = 0
    _sources: dict[str, str] = field(default_factory=dict)
    _relevant: set[str] = field(default_factory=set)
    _found: list[Use] = field(default_factory=list)
    _unread: list[Remark] = field(default_factory=list)
    _unclear: list[Remark] = field(default_factory=list)
    _uses: dict[str, Uses] = field(default_factory=dict)

    def run(self) -> LookedThrough:
        modules = Modules(self.tree.root.resolve(), self._bindings)
        for file in self.tree.files():
            with self._unreadable(file.name):
                self._read(file, modules)
        models = self._models(modules)
        for name in sorted(self._sources):
            with self._unreadable(name):
                if name in self._relevant or any(each.search(self._sources[name]) for each in (_OPEN, _REFLECTS)):
                    self._look(name, models)
        return LookedThrough(self._answer(models), models, self._sources, self._uses)

    def _read(self, file: SourceFile, modules: Modules) -> None:
        source = read(file)
        self._files += 1
        if file.is_sql:
            self._take(file_findings(file.name, source, self.tables))
        else:
            modules.add(file.name)
            self._sources[file.name] = source

    def _models(self, modules: Modules) -> Models:
        """Find all models. A file without any of their names has no use, only the others are looked through."""
        words: frozenset[str] = frozenset()
        found = _FIRST_WORDS | self.tables.names
        for name in sorted(self._sources):
            modules.bindings(name)
        while found - words:
            self._relevant.update(self._with_words(found - words))
            words |= found
            models = Models(modules, self.tables)
            for name in sorted(self._sources):
                self._map(name, models)
            found = models.words
        return models

    def _with_words(self, words: frozenset[str]) -> list[str]:
        """The files that were not yet relevant, and have one of these words, `trip__city` too. SQL folds case."""
        any_of = "|".join(map(re.escape, sorted(words)))
        pattern = re.compile(rf"(?:\b|(?<=__))(?:{any_of})(?:\b|(?=__))", re.IGNORECASE)
        folded = [word.lower() for word in words]
        found = []
        for name in sorted(self._sources.keys() - self._relevant):
            source = self._sources[name]
            lowered = source.lower()
            if any(word in lowered for word in folded) and pattern.search(source):
                found.append(name)
        return found

    def _bindings(self, name: str) -> Bindings:
        with self._unreadable(name):
            return bindings(parse(self._sources[name]).body)
        return Bindings()

    def _map(self, name: str, models: Models) -> None:
        if _IMPERATIVE.search(self._sources[name]) is None:
            return
        with self._unreadable(name):
            for node in ast.walk(parse(self._sources[name])):
                if isinstance(node, ast.Call) and last_name(node.func) in ("map_imperatively", "mapper"):
                    models.map_imperatively(node, models.scope(name))

    def _look(self, name: str, models: Models) -> None:
        source = self._sources[name]
        uses = Uses(name, source, parse(source), models, allowances(source))
        self._uses[name] = uses
        self._take([*uses.findings(), *uses.remarks])

    def _take(self, found: Iterable[Use | Remark]) -> None:
        for each in found:
            if isinstance(each, Use):
                self._found.append(each)
            else:
                self._unclear.append(each)

    @contextmanager
    def _unreadable(self, name: str) -> Iterator[None]:
        """A file that is no good Python is listed; the others are looked at."""
        try:
            yield
        except SyntaxError as error:
            self._unread.append(Remark(name, error.lineno or 0, f"does not parse: {error.msg}"))
        except (RecursionError, MemoryError):
            self._unread.append(Remark(name, 0, "is nested too deeply"))
        except OSError as error:
            self._unread.append(Remark(name, 0, f"cannot be read: {error.strerror or error}"))
        except (ValueError, tokenize.TokenError) as error:  # bytes that are none of the encoding; null bytes
            self._unread.append(Remark(name, 0, f"cannot be read: {error}"))

    def _answer(self, models: Models) -> CodeAudit:
        return CodeAudit(
            tables=self.tables.tables,
            files=self._files,
            found=tuple(sorted(self._found, key=_place)),
            definitions=tuple(sorted(set(models.definitions()), key=lambda each: (each.file, each.line, str(each)))),
            unread=tuple(sorted({*self._unread, *self.tree.unread}, key=astuple)),
            unclear=tuple(sorted({*self._unclear, *self._untold(models)}, key=astuple)),
        )

    def _untold(self, models: Models) -> Iterator[Remark]:
        """Models that cannot be told; a comment at the class says that they are none of these."""
        for remark in models.unclear():
            if allowances(self._sources[remark.file]).within(remark.line, remark.line) is None:
                yield remark


def _place(found: Use) -> tuple[str, int, int, str, str]:
    return found.file, found.line, found.column, found.kind, str(found.table)
