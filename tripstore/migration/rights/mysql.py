"""The GRANTs for MySQL and MariaDB. Shards have a database each: patterns name those, and no other one of ours."""

from __future__ import annotations

from collections.abc import Iterator

from tripstore.migration.rights.roles import GrantPlace
from tripstore.migration.rights.table import Right


def statements(right: Right, datastore: str, shards: int, control: str, account: str) -> Iterator[str]:
    """The statements of a line of the table, for all servers of the datastore alike."""
    for what in _named(right, datastore, shards, control):
        yield f"GRANT {right.privileges} ON {what} TO {account}"


def account_of(login: str, host: str) -> str:
    return f"{_text(login)}@{_text(host)}"


def _named(right: Right, datastore: str, shards: int, control: str) -> list[str]:
    match right.place:
        case GrantPlace.SHARDS:
            return [f"`{pattern}`.*" for pattern in shard_patterns(datastore, shards)]
        case GrantPlace.META:
            return _tables(right, f"{datastore}_meta")
        case GrantPlace.CONTROL:
            return _tables(right, control)
        case GrantPlace.ALL:
            own = [f"`{_literal(datastore)}\\_%`.*"]
            return own if control.startswith(f"{datastore}_") else [*own, f"`{_literal(control)}`.*"]
        case GrantPlace.SERVER:
            return ["*.*"]
    return []


def shard_patterns(datastore: str, shards: int) -> list[str]:
    """Databases of shards: a digit, and as many characters more as their numbers have. `…_meta` begins with none."""
    prefix = _literal(f"{datastore}_")
    lengths = {len(f"{shard:04d}"): None for shard in (0, shards - 1)}
    return [
        f"{prefix}{digit}{'_' * (length - 1)}"
        for length in range(min(lengths), max(lengths) + 1)
        for digit in _first_digits(length, shards)
    ]


def _first_digits(length: int, shards: int) -> list[int]:
    if length > 4:
        unit = 10 ** (length - 1)
        return [digit for digit in range(1, 10) if digit * unit < shards]
    return [digit for digit in range(10) if digit * 1000 < shards]


def _tables(right: Right, database: str) -> list[str]:
    """A pattern holds only in the name of a database that stands before `.*`."""
    if not right.names:
        return [f"`{_literal(database)}`.*"]
    return [f"`{database}`.`{name}`" for name in right.names]


def _literal(name: str) -> str:
    return name.replace("_", "\\_")


def _text(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "''") + "'"
