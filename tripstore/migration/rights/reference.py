"""Writes docs/reference/rights.md from the table: `python -m tripstore.migration.rights.reference`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tripstore.migration.rights.roles import LoginRole
from tripstore.migration.rights.table import RIGHTS, Right
from tripstore.phase import Phase

_HEAD = """\
# Rights

Which role needs what, on which server, in which phase. [`tripstore schema grants`](cli.md) prints the GRANTs of a role
and a phase from this table; `tests/acceptance/test_least_rights.py` goes through a whole migration with them and
nothing else. Generated: `make docs`.

Each role is a login of its own, and none is a superuser. Create the logins first. Grant the rights of a phase before
you enter it. Run the operator's statements for phase `off`, then `tripstore schema apply`, then those of the others,
which name tables. `schema grants` also prints a REVOKE for what an earlier phase alone needed in Postgres.

The operator owns schema `tripstore`. Ownership of the mapped tables is wanted only while `schema apply` has a step to
do, and by `cutover complete`: grant it for that time. Patterns of databases hold where MySQL's `partial_revokes` is
off, as it is by default.
"""


def page() -> str:
    return "\n".join(
        [_HEAD, *_table("Postgres", is_postgres=True), "", *_table("MySQL and MariaDB", is_postgres=False), ""]
    )


def _table(title: str, *, is_postgres: bool) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| on | right | " + " | ".join(role.value for role in LoginRole) + " | why |"
    yield "|---|---|" + "---|" * len(LoginRole) + "---|"
    for right in RIGHTS:
        if right.place.is_postgres is is_postgres:
            yield _line(right)


def _line(right: Right) -> str:
    names = f": {', '.join(f'`{name}`' for name in right.names)}" if right.names else ""
    phases = " | ".join(_span(right.roles.get(role, frozenset())) for role in LoginRole)
    return f"| {right.place.value}{names} | {right.privileges or 'member'} | {phases} | {right.why} |"


def _span(phases: frozenset[Phase]) -> str:
    """Phases in their order, runs by their ends."""
    order = list(Phase)
    found = [phase for phase in order if phase in phases]
    if len(found) == len(order):
        return "always"
    is_run = bool(found) and order.index(found[-1]) - order.index(found[0]) + 1 == len(found)
    if is_run and len(found) > 1:
        return f"{found[0]} to {found[-1]}"
    return ", ".join(found) or "–"


if __name__ == "__main__":
    sys.stdout.write(page())
