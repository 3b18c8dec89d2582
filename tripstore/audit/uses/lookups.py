"""Lookups of Django's that reach another model by names: `filter(trip__city=…)`, `F("trip__fare")`.

Where the model that a query begins with is known, names are followed from there. Elsewhere a name that leads to a
legacy table from any model is believed if the lookup spans it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tripstore.audit.meaning.bindings import last_name
from tripstore.audit.meaning.orm import Orm
from tripstore.audit.meaning.values import Entity, ModelRows, Value
from tripstore.audit.names import LegacyTable, words
from tripstore.audit.orms.models import Models

_METHODS = words(
    "filter exclude get aget order_by select_related prefetch_related values values_list only defer annotate aggregate "
    "alias distinct earliest latest dates datetimes update get_or_create update_or_create exists"
)
_EXPRESSIONS = words("F Q OuterRef Prefetch Count Sum Avg Min Max StdDev Variance Subquery ArrayAgg StringAgg JSONBAgg")
#: Each name in these is fetched, the last one too.
_FETCHES = words("select_related prefetch_related Prefetch Count Sum Avg Min Max ArrayAgg StringAgg")
#: Options of the classes of Django's admin and views, and of those beside it: they name relations by texts.
_OPTIONS = words(
    "search_fields list_select_related list_filter ordering list_display date_hierarchy filterset_fields "
    "ordering_fields select_related prefetch_related"
)
_FETCHING_OPTIONS = words("list_select_related select_related prefetch_related")
#: What follows a foreign key without leaving the table that has it.
_OWN_COLUMN = words("id pk in isnull exact gt gte lt lte range")


class Spanned(NamedTuple):
    """A lookup and a table that it reaches."""

    node: ast.expr
    name: str
    table: LegacyTable


class SpanningLookups:
    """Finds the lookups of a call."""

    def __init__(
        self, models: Models, parents: Mapping[ast.AST, ast.AST], denoted: Callable[[ast.expr], Value | None]
    ) -> None:
        self._models = models
        self._parents = parents
        self._denoted = denoted

    def of(self, call: ast.Call) -> Iterator[Spanned]:
        method = last_name(call.func)
        if method not in _METHODS and method not in _EXPRESSIONS:
            return
        begins = self._begins(call)
        for node, text in _texts(call):
            parts = text.lstrip("-").split("__")
            fetches = method in _FETCHES
            if begins:
                yield from self._followed(node, parts, begins, fetches=fetches)
            elif len(parts) > 1 or fetches:
                yield from self._believed(node, parts, fetches=fetches)

    def of_class(self, node: ast.ClassDef) -> Iterator[Spanned]:
        """`list_select_related = ("trip",)` in the admin of another model."""
        options = [
            each for each in node.body if isinstance(each, ast.Assign) and last_name(each.targets[0]) in _OPTIONS
        ]
        begins = self._administered(node) if options else []
        for option in options:
            fetches = last_name(option.targets[0]) in _FETCHING_OPTIONS
            for text in _constants(option.value):
                parts = str(text.value).lstrip("-^=@").split("__")
                if begins:
                    yield from self._followed(text, parts, begins, fetches=fetches)
                elif len(parts) > 1:
                    yield from self._believed(text, parts, fetches=False)

    def _administered(self, node: ast.ClassDef) -> list[Entity]:
        """The models that a class is about: `@admin.register(Note)`, `ModelAdmin[Note]`, `model = Note`."""
        registered = [each for call in node.decorator_list if isinstance(call, ast.Call) for each in call.args]
        typed = [base.slice for base in node.bases if isinstance(base, ast.Subscript)]
        said = [
            each.value for each in node.body if isinstance(each, ast.Assign) and last_name(each.targets[0]) == "model"
        ]
        found = (self._denoted(each) for each in (*registered, *typed, *said))
        return [entity for entity in found if isinstance(entity, Entity) and entity.orm is Orm.DJANGO]

    def _begins(self, call: ast.Call) -> list[Entity]:
        """The models of the query that a call belongs to: of F and Q, of the call around."""
        node: ast.AST = call
        while isinstance(node, ast.expr | ast.keyword):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                found = self._denoted(node.func.value)
                entities = [found] if isinstance(found, Entity) else []
                if isinstance(found, ModelRows):
                    entities = list(found.entities)
                known = [entity for entity in entities if entity.orm is Orm.DJANGO]
                if known:
                    return known
            node = self._parents[node]
        return []

    def _followed(self, node: ast.expr, parts: list[str], begins: list[Entity], *, fetches: bool) -> Iterator[Spanned]:
        for begin in begins:
            entity: Entity | None = begin
            for number, part in enumerate(parts):
                target = self._models.joined(entity, part) if entity is not None else None
                if target is None:
                    break
                if fetches or _spans(parts, number) or self._is_reverse(entity, part):
                    yield from (Spanned(node, part, table) for table in target.tables)
                entity = target

    def _is_reverse(self, entity: Entity | None, part: str) -> bool:
        return entity is not None and (entity.facts, part) not in self._models.foreign.forward

    def _believed(self, node: ast.expr, parts: list[str], *, fetches: bool) -> Iterator[Spanned]:
        """From every model that has the first name; if none has it, each later name is believed by itself."""
        begins = self._models.joined_from(parts[0])
        if begins:
            found = self._followed(node, parts, begins, fetches=fetches)
            yield from {(each.name, each.table): each for each in found}.values()
            return
        for number, part in enumerate(parts):
            if part in self._models.joined_names and (fetches or _spans(parts, number)):
                yield from (Spanned(node, part, table) for table in self._models.joined_tables(part))


def _spans(parts: list[str], number: int) -> bool:
    return number + 1 < len(parts) and parts[number + 1] not in _OWN_COLUMN


def _constants(node: ast.expr) -> Iterator[ast.Constant]:
    parts = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    yield from (each for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str))


def _texts(call: ast.Call) -> Iterator[tuple[ast.expr, str]]:
    for argument in call.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield argument, argument.value
    for word in call.keywords:
        if word.arg is not None:
            yield word.value, word.arg
