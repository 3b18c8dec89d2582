"""The ORMs whose models are known, by the names of what their models derive from."""

from __future__ import annotations

import builtins
from enum import Enum


class Orm(Enum):
    """Which library maps a class."""

    SQLALCHEMY = "SQLAlchemy"
    FLASK = "Flask-SQLAlchemy"
    SQLMODEL = "SQLModel"
    DJANGO = "Django"
    PEEWEE = "Peewee"
    OTHER = "another ORM"

    @property
    def is_active(self) -> bool:
        """Whether models themselves are asked for rows, and rows save themselves."""
        return self in (Orm.DJANGO, Orm.PEEWEE)


_OTHERS = frozenset({"tortoise", "ormar", "piccolo", "pony", "gino", "edgy", "saffier", "orator", "masoniteorm"})
#: Modules of libraries that hold managers.
_OF_MANAGERS = frozenset({"managers", "manager", "query", "querysets"})
_SQLALCHEMY_BASES = frozenset({"DeclarativeBase", "DeclarativeBaseNoMeta"})
#: The package of a base that this code base does not define, and its ORM.
_PACKAGES = {
    "flask_sqlalchemy": Orm.FLASK,
    "flask_appbuilder": Orm.FLASK,
    "sqlmodel": Orm.SQLMODEL,
    "peewee": Orm.PEEWEE,
    "playhouse": Orm.PEEWEE,
    **dict.fromkeys(_OTHERS, Orm.OTHER),
}


#: Libraries whose names a star may bring: `from peewee import *`.
_STARRED = frozenset({"peewee", "playhouse", "sqlmodel", "flask_sqlalchemy", "sqlalchemy", "django", *_OTHERS})
_BUILTINS = frozenset(dir(builtins))


def starred(module: str, name: str) -> str | None:
    """The full name that a star of an ORM may have brought; it is not known which names the library has."""
    return f"{module}.{name}" if module.partition(".")[0] in _STARRED and name not in _BUILTINS else None


def is_manager(dotted: str) -> bool:
    """Whether this is what managers of Django derive from: `hr.models.Manager` may be a model."""
    package, *inside = dotted.split(".")[:-1] or [""]
    return dotted.endswith(("Manager", "QuerySet")) and (package == "django" or bool(_OF_MANAGERS & {*inside}))


def orm_of_base(dotted: str) -> Orm | None:
    """The ORM of a base outside of the code base, by its full name."""
    if is_manager(dotted):
        return None
    package, _, last = dotted.partition(".")[0], "", dotted.rpartition(".")[2]
    if last in _SQLALCHEMY_BASES:
        return Orm.SQLALCHEMY
    if package == "django" and ".models." in f".{dotted}":
        return Orm.DJANGO
    if package in _PACKAGES:
        return _PACKAGES[package] if last.endswith("Model") or package in _OTHERS else None
    return Orm.SQLMODEL if last == "SQLModel" else None
