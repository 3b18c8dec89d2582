"""The table of rights, and the statements that follow from it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tripstore.migration.rights import mysql, postgres
from tripstore.migration.rights.reference import page
from tripstore.migration.rights.roles import GrantPlace, LoginRole
from tripstore.migration.rights.table import RIGHTS, former_rights_of, rights_of
from tripstore.phase import Phase


def named(pattern: str, database: str) -> bool:
    """As GRANT reads a name before `.*`."""
    return fnmatchcase(database, pattern.replace(r"\_", "\0").replace("_", "?").replace("\0", "_"))


def test_the_page_of_the_docs_is_the_table() -> None:
    assert (Path(__file__).parents[2] / "docs/reference/rights.md").read_text() == page()


@pytest.mark.parametrize("shards", [1, 64, 1000, 4096, 65536])
def test_patterns_name_every_shard_and_no_other_database_of_ours(shards: int) -> None:
    patterns = mysql.shard_patterns("my_trips", shards)

    for shard in {0, shards // 2, shards - 1}:
        assert any(named(pattern, f"my_trips_{shard:04d}") for pattern in patterns)
    for other in ("my_trips_meta", "my_trips_control", "mystrips_0000", "my_trips2_0000", "mysql"):
        assert not any(named(pattern, other) for pattern in patterns), other


def test_no_role_but_the_operator_makes_or_drops_anything() -> None:
    for role in (LoginRole.SERVICE, LoginRole.READER, LoginRole.WORKER):
        for phase in Phase:
            words = {word for right in rights_of(role, phase) for word in right.privileges.split(", ")}
            assert not words & {"CREATE", "ALTER", "DROP", "INDEX"}, (role, phase)


def test_a_reader_changes_nothing() -> None:
    words = {
        word for phase in Phase for right in rights_of(LoginRole.READER, phase) for word in right.privileges.split(", ")
    }
    assert words - {""} == {"CONNECT", "USAGE", "SELECT"}


def test_ownership_is_revoked_when_the_steps_are_done() -> None:
    assert GrantPlace.OWNER in {right.place for right in rights_of(LoginRole.OPERATOR, Phase.OFF)}
    assert GrantPlace.OWNER not in {right.place for right in rights_of(LoginRole.OPERATOR, Phase.DUALWRITE)}
    assert GrantPlace.OWNER in {right.place for right in former_rights_of(LoginRole.OPERATOR, Phase.DUALWRITE)}


def test_names_of_logins_are_quoted() -> None:
    (right,) = [each for each in RIGHTS if each.place is GrantPlace.OWN_SCHEMA]
    objects = postgres.PostgresObjects("d", (), (), (), ())
    login = 'x"; DROP SCHEMA public; --'
    (statement,) = postgres.statements(right, objects, login, "o", is_given=True)
    assert statement == 'GRANT USAGE ON SCHEMA tripstore TO "x""; DROP SCHEMA public; --"'
    assert mysql.account_of("a'b\\", "%") == "'a''b\\\\'@'%'"
