"""Seals of the audit log on control databases of every engine: what was done to it since it was written is found."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import pytest
import sqlalchemy as sa

from schemaless_core.config import DatastoreConfig, parse_config
from schemaless_core.control import seals
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.changes import make_change
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Documents
from schemaless_core.control.seals import UNSEALED, add_sealed, prune_seals, seal_faults, seal_of
from schemaless_core.control.tables import audit, audit_head, audit_seal
from schemaless_core.errors import InvalidServer
from schemaless_core.urls import NodeUrl
from tests.stores import ServerEngine, Stores

Opener = Callable[[], ControlDatabase]


@pytest.fixture
def open_control(datastore_engine: str, stores: Stores) -> Opener:
    config = parse_config(stores.config(datastore_engine), Path())
    return lambda: _control(config, config.control)


@pytest.fixture
def control(open_control: Opener) -> Iterator[ControlDatabase]:
    """With five lines."""
    with closing(open_control()) as opened:
        opened.migrate()
        log = AuditLog(opened)
        for n in range(4):
            log.add("test.line", {"n": n})
        Documents(opened).put("d", {}, expected_version=0, action="test.document", detail={})
        yield opened


def faults(control: ControlDatabase) -> list[tuple[int | None, str, bool]]:
    return [*seal_faults(*AuditLog(control).sealed())]


def entries(control: ControlDatabase) -> list[int]:
    return [each.line.entry for each in AuditLog(control).sealed()[1]]


def run(control: ControlDatabase, *statements: sa.Executable) -> None:
    with control.begin() as connection:
        for statement in statements:
            connection.execute(statement)


def test_lines_of_every_kind_of_change_make_one_chain(control: ControlDatabase) -> None:
    head, lines = AuditLog(control).sealed()

    assert [each.number for each in lines] == [1, 2, 3, 4, 5]
    assert head.number == 5
    assert faults(control) == []


@pytest.mark.parametrize("column", ["at", "who", "host", "action", "detail"])
def test_a_line_that_was_changed_is_named(control: ControlDatabase, column: str) -> None:
    entry = entries(control)[2]

    run(control, sa.update(audit).where(audit.c.id == entry).values({column: "other"}))

    assert faults(control) == [(entry, "is not as it was written", False)]


def test_a_line_that_was_changed_and_sealed_again_breaks_the_next_one(control: ControlDatabase) -> None:
    lines = AuditLog(control).sealed()[1]
    before, changed, following = lines[1], lines[2], lines[3]
    assert before.seal is not None
    line = changed.line._replace(detail="other")

    run(
        control,
        sa.update(audit).where(audit.c.id == line.entry).values(detail="other"),
        sa.update(audit_seal).where(audit_seal.c.entry == line.entry).values(seal=seal_of(before.seal, 3, line)),
    )

    assert faults(control) == [(following.line.entry, "is not as it was written", False)]


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ([0], "number 1 is missing"),
        ([1, 2], "numbers 2 to 3 are missing"),
        ([4], "number 5 is missing"),
        ([3, 4], "numbers 4 to 5 are missing"),
    ],
)
def test_lines_that_were_removed_are_counted(control: ControlDatabase, gone: list[int], said: str) -> None:
    those = [entries(control)[n] for n in gone]

    run(
        control,
        sa.delete(audit).where(audit.c.id.in_(those)),
        sa.delete(audit_seal).where(audit_seal.c.entry.in_(those)),
    )

    assert faults(control) == [(None, said, False)]


def test_lines_that_were_put_elsewhere_are_named(control: ControlDatabase) -> None:
    """Two lines with their seals in each other's place."""
    second, fourth, spare = entries(control)[1], entries(control)[3], 1_000_000
    for table, key in ((audit, audit.c.id), (audit_seal, audit_seal.c.entry)):
        for before, after in ((second, spare), (fourth, second), (spare, fourth)):
            run(control, sa.update(table).where(key == before).values({key.name: after}))

    assert faults(control)[0] == (None, "numbers 2 to 3 are missing", False)
    assert (fourth, "stands behind a later one: its number is 2", False) in faults(control)


def test_a_line_that_was_added_by_hand_is_named(control: ControlDatabase) -> None:
    line = {"at": "2026-01-01", "who": "me", "host": "here", "action": "cutover.switch", "detail": "{}"}
    run(control, sa.insert(audit).values(line))

    assert faults(control) == [(entries(control)[-1], UNSEALED, True)]


def test_a_control_that_recomputes_the_whole_chain_is_found_by_an_earlier_bundle_alone(
    control: ControlDatabase,
) -> None:
    """Who may write everything may write everything anew: what was kept elsewhere tells."""
    head, lines = AuditLog(control).sealed()
    before, seals = "0" * 64, []
    for each in lines:
        line = each.line._replace(who="another")
        before = seal_of(before, each.number or 0, line)
        seals.append((line.entry, before))
    run(
        control,
        sa.update(audit).values(who="another"),
        *(sa.update(audit_seal).where(audit_seal.c.entry == entry).values(seal=seal) for entry, seal in seals),
        sa.update(audit_head).values(seal=before),
    )

    assert faults(control) == []
    assert AuditLog(control).sealed()[0].seal != head.seal


def test_processes_that_write_at_once_make_one_chain(control: ControlDatabase, open_control: Opener) -> None:
    def write() -> None:
        with closing(open_control()) as own:
            for n in range(8):
                AuditLog(own).add("test.at_once", {"n": n})

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    head, lines = AuditLog(control).sealed()
    assert faults(control) == []
    assert [each.number for each in lines] == [*range(1, 38)]
    assert head.number == 37


def test_a_change_that_is_undone_leaves_the_chain_as_it_was(control: ControlDatabase) -> None:
    def work(connection: sa.Connection) -> None:
        AuditLog(control).add_within(connection, "test.undone", {})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_change(control, work)

    assert AuditLog(control).sealed()[0].number == 5
    assert faults(control) == []


def test_what_is_pruned_leaves_a_chain_that_begins_later(control: ControlDatabase) -> None:
    """The control: lines that are removed without it."""
    oldest = entries(control)[:2]
    with control.begin() as connection:
        connection.execute(sa.delete(audit).where(audit.c.id.in_(oldest)))
    assert faults(control)[0] == (None, "numbers 1 to 2 are missing", False)
    with control.begin() as connection:
        prune_seals(connection, oldest)

    assert faults(control) == []
    assert AuditLog(control).sealed()[0].pruned == 2


def test_the_log_is_read_as_it_was_at_one_moment(server_engine: ServerEngine, stores: Stores) -> None:
    """A line is added between the reading of the head and that of the lines. The control: each as it is then.

    On files no line is added while another process reads.
    """
    read_head, config = seals._read_head, parse_config(stores.config(server_engine), Path())
    with closing(_control(config, config.control)) as control, closing(_control(config, config.control)) as other:
        control.migrate()

        def added_behind(connection: sa.Connection) -> seals.SealHead:
            head = read_head(connection)
            AuditLog(other).add("test.between", {})
            return head

        with patch.object(seals, "_read_head", added_behind):
            assert faults(control) == []
            with patch.object(seals, "ONE_MOMENT", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"):
                assert faults(control) == [(None, "the head has another seal than the newest line", False)]


def test_who_prunes_later_what_went_before_moves_no_head_back(control: ControlDatabase) -> None:
    those = entries(control)
    for some in (those[:4], those[:2]):
        with control.begin() as connection:
            connection.execute(sa.delete(audit).where(audit.c.id.in_(some)))
            prune_seals(connection, some)

    assert AuditLog(control).sealed()[0].pruned == 4
    assert faults(control) == []


def test_a_log_that_lost_its_newest_line_says_so_and_is_no_lost_race(control: ControlDatabase) -> None:
    """SQLite gives the number of the newest line again; a server does, when the table was restored alone."""
    newest = entries(control)[-1]
    run(control, sa.delete(audit).where(audit.c.id == newest))
    run(control, sa.insert(audit_seal).values(entry=newest + 1, number=9, seal="x"))

    with pytest.raises(InvalidServer, match="its audit log has lost line"):
        Documents(control).put("e", {}, expected_version=0, action="test.document", detail={})


def test_a_control_database_of_an_earlier_version_has_lines_without_seals(control: ControlDatabase) -> None:
    with control.begin() as connection:
        connection.execute(sa.text("DROP TABLE audit_head"))
    log = AuditLog(control)

    log.add("test.earlier", {})

    assert log.newest(1)[0].action == "test.earlier"
    with control.begin() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(audit)).scalar() == 6
        assert not add_sealed(connection, {})


@pytest.mark.parametrize("right", ["SELECT", "SELECT, UPDATE"])
def test_a_login_that_may_add_no_seal_adds_its_line_all_the_same(
    server_engine: ServerEngine, stores: Stores, right: str
) -> None:
    """As services that were granted their rights before: a hand-over that is undone must be written down."""
    config = parse_config(stores.config(server_engine), Path())
    with closing(_control(config, config.control)) as opened:
        opened.migrate()
        user = f"clerk_{uuid4().hex[:8]}"
        database = config.control.database or f"{config.datastore}_control"
        with opened.begin() as connection:
            for statement in (
                f"CREATE USER {user}@'%' IDENTIFIED BY 'x'",
                f"GRANT {right} ON `{database}`.* TO {user}@'%'",
                f"GRANT INSERT ON `{database}`.audit TO {user}@'%'",
            ):
                connection.execute(sa.text(statement))
        url = replace(config.control, user=user, password="x")
        with closing(_control(config, url)) as clerks:
            AuditLog(clerks).add("test.clerk", {})

        assert AuditLog(opened).newest(1)[0].action == "test.clerk"
        assert AuditLog(opened).sealed()[0].number == 0


def _control(config: DatastoreConfig, url: NodeUrl) -> ControlDatabase:
    return ControlDatabase(url, config.datastore, config.tls, config.deadlines.connect_seconds)
