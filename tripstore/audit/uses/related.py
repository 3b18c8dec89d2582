"""`RelatedUses`: relationships to legacy tables, reached through models and through objects of models."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tripstore.audit.findings import Access, Remark, UseKind
from tripstore.audit.meaning.heads import COLLECTION_WRITES
from tripstore.audit.meaning.values import Entity, ModelRows, Scope
from tripstore.audit.orms.models import Models
from tripstore.audit.uses.found import FoundUses


class RelatedUses:
    """Of one file."""

    def __init__(self, file: str, models: Models, parents: Mapping[ast.AST, ast.AST], found: FoundUses) -> None:
        self._file = file
        self._models = models
        self._parents = parents
        self._found = found
        self._unfollowed: dict[str, list[int]] = {}

    def look(self, node: ast.Attribute, scope: Scope) -> None:
        """`User.trips` and `user.trips`, where trips is a relationship."""
        if node.attr not in self._models.relation_names:
            return
        base = self._models.denoting.value(node.value, scope)
        entities = base.entities if isinstance(base, ModelRows) and not base.is_statement else ()
        if base is None and node.attr.endswith("_set"):  # no other attribute is called so
            self._reverse(node)
        elif base is None:
            self._unfollowed.setdefault(node.attr, []).append(node.lineno)
        for entity in [base] if isinstance(base, Entity) else entities:
            target = self._models.relation(entity, node.attr)
            for table in target.tables if target is not None else ():
                access = Access.WRITE if self._changes(node) else Access.READ
                self._found.add(node, (self._found.statement, node.attr), UseKind.RELATIONSHIP, table, access)

    def _reverse(self, node: ast.Attribute) -> None:
        """`driver.trip_set`, whatever driver is."""
        access = Access.WRITE if self._changes(node) else Access.READ
        for table in self._models.reverse_tables(node.attr):
            self._found.add(node, (self._found.statement, node.attr), UseKind.RELATIONSHIP, table, access)

    def _changes(self, node: ast.Attribute) -> bool:
        """Whether a collection is assigned to, or something is put into it."""
        parent = self._parents[node]
        is_called = isinstance(parent, ast.Attribute) and isinstance(self._parents[parent], ast.Call)
        is_change = isinstance(parent, ast.Attribute) and is_called and parent.attr in COLLECTION_WRITES
        return is_change or not isinstance(node.ctx, ast.Load)

    def remarks(self) -> Iterator[Remark]:
        """Attributes of objects that are not followed, and have the name of a relationship to a legacy table."""
        for name, lines in sorted(self._unfollowed.items()):
            places = f"in {len(lines)} places of this file " if len(lines) > 1 else ""
            yield Remark(self._file, lines[0], f".{name} {places}may be the relationship to a legacy table")
