"""The names that ORMs give to tables whose models say none: each as the library itself makes it."""

from __future__ import annotations

import re
from hashlib import md5

#: Postgres cuts names there; Django cuts its own before.
_NAME_MAX = 63
_FLASK = re.compile(r"((?<=[a-z0-9])[A-Z]|(?!^)[A-Z](?=[a-z]))")
_OLD_FLASK = re.compile(r"([A-Z]+)(?=[a-z0-9])")
_PEEWEE = (re.compile(r"(.)_*([A-Z][a-z]+)"), re.compile(r"([a-z0-9])_*([A-Z])"))


def flask_names(name: str) -> tuple[str, ...]:
    """As Flask-SQLAlchemy 3 has it; as Flask-SQLAlchemy 2 and Flask-AppBuilder had it, where that differs."""
    snake = _FLASK.sub(r"_\1", name).lower().lstrip("_")
    return tuple(dict.fromkeys((snake, _OLD_FLASK.sub(_old_flask, name).lstrip("_").lower())))


def _old_flask(found: re.Match[str]) -> str:
    word = found[0]
    return f"_{word[:-1]}_{word[-1]}" if len(word) > 1 else f"_{word}"


def django_name(label: str, name: str) -> str:
    """`app_model`, cut as Django cuts it."""
    return _cut(f"{label}_{name.lower()}")


def django_through_name(table: str, field: str) -> str:
    """The table between two models: that of the model, and the name of its field."""
    return _cut(f"{table}_{field}")


def _cut(name: str) -> str:
    if len(name) <= _NAME_MAX:
        return name
    digest = md5(name.encode(), usedforsecurity=False).hexdigest()[:4]
    return f"{name[: _NAME_MAX - 4]}{digest}"


def peewee_names(name: str) -> tuple[str, ...]:
    """With `legacy_table_names`, the default of version 3, and without."""
    return tuple(dict.fromkeys((re.sub(r"\W+", "_", name.lower()), peewee_snake(name))))


def peewee_snake(name: str) -> str:
    for pattern in _PEEWEE:
        name = pattern.sub(r"\1_\2", name)
    return name.lower()


def resembles(table: str, name: str) -> bool:
    """Whether a table may be that of a class whose rule of naming cannot be read: Trip and app_trips."""
    single = re.sub(r"[\W_]+", "", name).lower()
    if not single:
        return False
    forms = {single, f"{single}s", f"{single}es", f"{single[:-1]}ies"}
    parts = table.lower().split("_")
    return any("".join(parts[begin:]) in forms for begin in range(len(parts)))
