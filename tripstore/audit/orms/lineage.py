"""`Lineages`: which ORM maps a class, told by what it derives from, however far up."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass

from tripstore.audit.meaning.bindings import ClassFacts, last_name
from tripstore.audit.meaning.orm import Orm, is_manager, orm_of_base
from tripstore.audit.meaning.values import Entity, Module, OrmRoot, Scope
from tripstore.audit.orms.known import KnownModels

_BUILTINS = frozenset(dir(builtins))
#: Bases that are never models, though nothing of them is known.
_NO_MODELS = frozenset(
    {"typing", "abc", "enum", "collections", "typing_extensions", "pydantic", "marshmallow", "rest_framework"}
)


@dataclass(frozen=True, slots=True)
class Lineage:
    """The ORM, if it is certain; the bases that the code base does not define."""

    orm: Orm | None
    outside: tuple[str, ...] = ()
    is_root: bool = False  #: Models derive from it; it is none itself.


class Lineages:
    """Climbs from a class to its bases."""

    def __init__(self, models: KnownModels) -> None:
        self._models = models
        self._known: dict[ClassFacts, Lineage] = {}

    def forget(self) -> None:
        self._known.clear()

    def of(self, facts: ClassFacts, scope: Scope) -> Lineage:
        if facts not in self._known:
            self._known[facts] = Lineage(None)  # Bases that lead back to the class itself end here.
            self._known[facts] = self._climbed(facts, scope)
        return self._known[facts]

    def parents(self, facts: ClassFacts, scope: Scope) -> Iterator[Entity]:
        """The bases that the code base defines, those that a declarative base is made of too."""
        for base in facts.bases:
            found = self._models.denoting.value(_plain(base), scope)
            if isinstance(found, OrmRoot):
                found = found.base
            if isinstance(found, Entity) and found.facts is not None and found.facts is not facts:
                yield found

    def is_below(self, entity: Entity, facts: ClassFacts) -> bool:
        """Whether a class derives from another."""
        waiting, seen = [entity], set[ClassFacts]()
        while waiting:
            each = waiting.pop()
            if each.facts is facts:
                return True
            if each.facts is not None and each.facts not in seen:
                seen.add(each.facts)
                waiting += self.parents(each.facts, self._models.scope(each.file)) if each.line else []
        return False

    def _climbed(self, facts: ClassFacts, scope: Scope) -> Lineage:
        orms: list[Orm] = []
        outside: list[str] = []
        is_root = facts.is_root
        for base in map(_plain, facts.bases):
            found = self._models.denoting.value(base, scope)
            if isinstance(found, OrmRoot):
                orms.append(found.orm)
            elif isinstance(found, Entity) and found.facts is not None:
                above = self.of(found.facts, self._models.scope(found.file))
                orms += [above.orm] if above.orm is not None else []
                outside += above.outside
            elif isinstance(found, Module):
                orm = orm_of_base(found.dotted)
                is_root = is_root or orm is Orm.SQLALCHEMY
                if orm is not None:
                    orms.append(orm)
                elif found.file is None and found.dotted.partition(".")[0] not in _NO_MODELS:
                    outside.append(found.dotted)
            elif found is None and not (isinstance(base, ast.Name) and base.id in _BUILTINS):
                outside.append(ast.unparse(base))
        if facts.is_root:
            orms.append(Orm.SQLALCHEMY)
        return Lineage(orms[0] if orms else self._by_fields(facts, scope, outside), tuple(outside), is_root)

    def _by_fields(self, facts: ClassFacts, scope: Scope, outside: list[str]) -> Orm | None:
        """Of a class whose bases are elsewhere, what its fields say: `models.CharField` is Django's."""
        outside = [dotted for dotted in outside if not is_manager(dotted)]
        if not outside:
            return None
        packages = {self._package(facts.calls[name].func, scope) for name in facts.columns}
        if "django" in packages or any("models" in part for dotted in outside for part in dotted.split(".")[1:-1]):
            return Orm.DJANGO
        return Orm.PEEWEE if "peewee" in packages else None

    def has_columns(self, facts: ClassFacts, scope: Scope) -> bool:
        """Whether it has columns as SQLAlchemy has them: forms and tables of web frameworks have others."""
        known = ("sqlalchemy", "sqlmodel", "flask_sqlalchemy", "peewee", "")
        return any(
            self._package(call.func, scope) in known
            for name in facts.columns
            if last_name((call := facts.calls[name]).func) in ("Column", "mapped_column")
        )

    def _package(self, func: ast.expr, scope: Scope) -> str:
        """The package that a field comes from; `models.CharField` of Django's forms is none."""
        found = self._models.denoting.value(func, scope)
        if isinstance(found, Module):
            parts = found.dotted.split(".")
            return parts[0] if parts[0] != "django" or "models" in parts else "forms"
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
            return {"models": "django", "db": "", "sa": ""}.get(func.value.id, func.value.id)
        return ""


def _plain(base: ast.expr) -> ast.expr:
    """`Repository` of `Repository[Trip]`; the manager of `models.Manager.from_queryset(Rows)`."""
    if isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute) and base.func.attr == "from_queryset":
        return base.func.value
    return base.value if isinstance(base, ast.Subscript) else base
