"""`tripstore cutover`: gates with numbers, the switch, the way back, the end; and a switcher that is killed."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg2
import pytest

from schemaless_core.control.audit import AuditEntry, AuditLog
from schemaless_core.failpoints import ENVIRONMENT_VARIABLE, use_folder
from tests.acceptance.migrations import CUTOVER, Migration, copied, migration_template
from tests.chaos.actors import wait_until
from tripstore.backends.postgres.capture.names import FIRST, LAST, LOGGED
from tripstore.backends.postgres.handover.closing import ROWS, STATEMENTS, are_closed
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.sqlstates import GATE_SHUT
from tripstore.backends.postgres.wire.connections import connected
from tripstore.handover import settle, switch
from tripstore.handover.steps import Step
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.gates import writers
from tripstore.phase import Phase

FORCED = ("--force", "--why", "a test", "--yes")
#: Each time another row, or it would be no change.
WRITE = """\
UPDATE trips SET status = (CASE status WHEN 'completed' THEN 'requested' ELSE 'completed' END)::trip_status
WHERE id = 1"""


@pytest.fixture
def migration(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Migration:
    return copied(migration_template(servers, tmp_path_factory), tmp_path / "own")


@pytest.fixture
def armed(failpoints: Path) -> Iterator[Path]:
    """Failpoints of this process."""
    use_folder(failpoints)
    yield failpoints
    use_folder(None)


def refused(document: Any) -> set[str]:
    return {gate["name"] for gate in document["gates"] if not gate["is_passed"]}


def audited(migration: Migration) -> list[AuditEntry]:
    """The lines of hand-overs, the oldest first."""
    with migration.datastore() as datastore:
        entries = AuditLog(datastore.control).newest(50)
    return [entry for entry in reversed(entries) if entry.action.startswith("cutover.")]


def write_by_sql(migration: Migration) -> None:
    migration.ask(WRITE)


def test_a_whole_migration_with_every_gate_open(migration: Migration) -> None:
    """Forwards, back, forwards again, to the end; each command refuses until its gates pass."""
    (row_key, *_) = migration.row_keys()
    migration.run("phase", "set", "dualwrite")
    with migration.worker():
        write_by_sql(migration)
        migration.wait_until_mirrored()
        migration.run("phase", "set", "shadow")
        early = migration.run("cutover", "plan", "--json", code=4).document
        assert {"backfill", "diff", "comparisons", "index legacy_ids"} <= refused(early)
        assert [step["name"] for step in early["steps"]] == [step.name for step in switch.FORWARD]
        assert migration.run("cutover", "switch", "--yes", "--json", code=4).document["is_allowed"] is False
        assert migration.authority == "postgres"

        wait_until("the shadow compares equal", lambda: is_compared(migration), seconds=30)
        migration.note_jobs()
        migration.run("index", "verify", "legacy_ids")
        wait_until("every gate passes", lambda: pass_all(migration), seconds=30)
        switched = migration.run("cutover", "switch", "--yes", "--why", "all pass", "--json").document

        assert (switched["is_decided"], switched["authority"], switched["epoch"]) == (True, "schemaless", 2)
        assert 0 < switched["pause_seconds"] < 2
        assert migration.authority == "schemaless"
        assert migration.run("phase", "show", "--json").document["phase"] == "live"
        assert migration.run("cutover", "status", "--json").document["is_fine"] is True
        with pytest.raises(psycopg2.Error) as caught:
            write_by_sql(migration)
        assert caught.value.pgcode == GATE_SHUT
        put(migration, row_key, "through Schemaless")

        migration.run("phase", "set", "rampdown")
        wait_until("the way back is open", lambda: migration.shell.call("cutover", "plan").code == 0, seconds=30)
        back = migration.run("cutover", "reverse", "--yes", "--why", "a rehearsal", "--json").document
        assert (back["is_decided"], back["authority"], back["epoch"]) == (True, "postgres", 4)
        anew = migration.run("shadow", "status", "--json", code=3).document["operations"]
        assert {each["operation"]: each["compared"] for each in anew} == {"get_cell_latest": 0}
        assert "comparisons of get_cell_latest" in refused(migration.run("cutover", "plan", "--json", code=4).document)
        assert migration.run("shadow", "status", "--hours", "1", "--json").document["operations"][0]["compared"] > 0
        write_by_sql(migration)
        assert read(migration, row_key)["note"] == "through Schemaless"

        migration.wait_until_mirrored()
        migration.run("cutover", "switch", *FORCED)
        finish(migration)


def pass_all(migration: Migration) -> bool:
    """Changes go on: those that come in the phase shadow are rehearsed, once the worker has seen it."""
    write_by_sql(migration)
    migration.wait_until_mirrored()
    return migration.shell.call("cutover", "plan").code == 0


def is_compared(migration: Migration) -> bool:
    migration.compare_reads()
    return migration.shell.call("shadow", "status").code == 0


def put(migration: Migration, row_key: UUID, note: str) -> None:
    with migration.store() as store:
        latest = store.get_cell_latest(row_key, "BASE")
        assert latest is not None
        assert isinstance(latest.body, dict)
        store.put_cell(row_key, "BASE", latest.ref_key + 1, {**latest.body, "note": note})


def read(migration: Migration, row_key: UUID) -> dict[str, Any]:
    with migration.store() as store:
        found = store.get_cell_latest(row_key, "BASE")
    assert found is not None
    assert isinstance(found.body, dict)
    return found.body


def finish(migration: Migration) -> None:
    """From live to complete."""
    planned = migration.run("cutover", "complete", "--dry-run").stdout
    assert "close billing_attempts, trip_notes, trips" in planned
    rows = migration.ask("SELECT count(*) FROM trips")
    assert "--datastore trips" in migration.run("cutover", "complete", code=4).complaint
    assert "not called trip;" in migration.run("cutover", "complete", "--datastore", "trip", code=4).complaint
    assert migration.run("phase", "show", "--json").document["phase"] == "live"

    done = migration.run("cutover", "complete", "--datastore", "trips", "--evidence", "evidence.json", "--json")

    assert done.document["is_done"] is True
    assert migration.run("phase", "show", "--json").document["phase"] == "complete"
    assert migration.ask("SELECT count(*) FROM trips") == rows
    evidence = json.loads((migration.shell.folder / "evidence.json").read_text())
    assert [line["action"] for line in evidence["audit"]].count("cutover.switch.end") == 2
    assert evidence["authority"][0]["backend"] == "schemaless"
    assert [each["operation"] for each in evidence["comparisons"]] == ["get_cell_latest"]
    assert_closed(migration)
    assert "no way back" in migration.run("cutover", "reverse", *FORCED, code=4).complaint
    assert (
        "evidence.json"
        in migration.run("cutover", "complete", "--datastore", "trips", "--evidence", "evidence.json", code=2).complaint
    )
    again = migration.run("cutover", "complete", "--datastore", "trips", "--evidence", "again.json", "--json")
    assert again.document["is_done"] is True


def assert_closed(migration: Migration) -> None:
    """Every write is refused, also by a session of a replica and by TRUNCATE; capture is gone."""
    for statement in (
        WRITE,
        "DELETE FROM trips WHERE false",
        "INSERT INTO trip_notes (trip_id, n, text) VALUES (1, 9, 'x')",
        "TRUNCATE billing_attempts",
        f"SET session_replication_role = replica; {WRITE}",
    ):
        with pytest.raises(psycopg2.Error) as caught:
            migration.ask(statement)
        assert caught.value.pgcode == GATE_SHUT, statement
    names = {name for (name,) in migration.ask("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal")}
    assert {ROWS, STATEMENTS} <= names
    assert not [name for name in names if name.startswith((FIRST, LOGGED, LAST))]


def test_force_wants_a_reason_and_is_written_down(migration: Migration) -> None:
    assert "--why" in migration.run("cutover", "switch", "--force", "--yes", code=2).complaint

    ran = migration.run("cutover", "switch", *FORCED)

    assert "FORCED" in ran.stderr
    begin, end = [json.loads(entry.detail) for entry in audited(migration) if "switch" in entry.action]
    assert begin["why"] == "a test"
    assert {"phase", "backfill", "diff", "comparisons"} <= set(begin["forced"])
    assert begin["switch_id"] == end["switch_id"]
    assert end["outcome"] == "decided"
    assert 0 < end["pause_seconds"] < 2


def test_a_dry_run_and_a_question_without_an_answer_change_nothing(migration: Migration) -> None:
    migration.run("cutover", "switch", "--dry-run", code=4)
    migration.run("cutover", "switch", "--force", "--why", "a test", code=4)

    assert migration.authority == "postgres"
    assert audited(migration) == []


@pytest.mark.parametrize("is_forced", [False, True], ids=["", "forced"])
def test_a_gate_that_refuses_only_after_the_answer_refuses(
    migration: Migration, monkeypatch: pytest.MonkeyPatch, is_forced: bool
) -> None:
    """The question may wait for hours; --force overrules what was shown, and no other gate."""
    migration.configure(cutover=CUTOVER | {"writer_seconds_max": 0.001})
    if not is_forced:
        monkeypatch.setattr("tripstore.migration.cutover.gates.FORWARD", (writers,))
    with migration.connection(autocommit=False) as writer, writer.cursor() as cursor:

        def answer(_question: str, *, is_answered: bool) -> None:
            assert not is_answered
            cursor.execute(WRITE)

        monkeypatch.setattr("tripstore.cli.cutover.commands.ask", answer)
        options = ("--force", "--why", "a test") if is_forced else ()
        document = migration.run("cutover", "switch", *options, "--json", code=4).document
        writer.rollback()

    assert "writers" in refused(document)
    assert audited(migration) == []
    assert_untouched(migration)


def test_an_end_whose_gates_refuse_after_the_answer_is_refused(
    migration: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    migration.run("cutover", "switch", *FORCED)

    def type_name(_question: str, **_options: Any) -> str:
        migration.ask("UPDATE tripstore.authority SET epoch = epoch + 1, target = 'postgres', switch_id = 'theirs'")
        return "trips"

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("click.prompt", type_name)
    document = migration.run("cutover", "complete", "--json", code=4).document

    assert refused(document) == {"authority"}
    assert document["is_done"] is False
    assert list(migration.shell.folder.glob("*evidence*")) == []
    with migration.store() as store:
        assert store.facade.flags.find().store_phase is Phase.LIVE


def test_a_phase_that_says_complete_while_postgres_is_the_authority_has_a_way_out(migration: Migration) -> None:
    """An operator's `complete` was killed before it looked at the row; meanwhile a colleague went back."""
    with migration.store() as store:
        store.facade.flags.change(lambda flags: flags.with_phase(Phase.COMPLETE), "test.phase")

    migration.run("cutover", "switch", *FORCED)

    assert migration.authority == "schemaless"
    assert migration.run("phase", "show", "--json").document["phase"] == "live"


def test_the_way_back_from_where_authority_is_already_is_refused(migration: Migration) -> None:
    document = migration.run("cutover", "plan", "--direction", "reverse", "--json", code=4).document
    assert "authority" in refused(document)

    ran = migration.run("cutover", "reverse", *FORCED, code=1)

    assert "Schemaless is not the open authority" in ran.stdout
    assert migration.authority == "postgres"


def test_a_writer_who_stays_inside_undoes_the_switch_and_is_named(migration: Migration) -> None:
    migration.configure(mirror={"max_pause_seconds": 20.0})
    with migration.connection(autocommit=False) as writer, writer.cursor() as cursor:
        cursor.execute(WRITE)
        pid = writer.info.backend_pid

        ran = migration.run("cutover", "switch", *FORCED, code=1)

        writer.commit()
    assert "writers stay inside" in ran.stdout
    assert f"pid {pid} (billing" in ran.stdout
    assert_untouched(migration)


def test_a_switch_that_takes_too_long_is_undone(migration: Migration) -> None:
    migration.configure(mirror={"max_pause_seconds": 0.2})
    with migration.connection(autocommit=False) as writer, writer.cursor() as cursor:
        cursor.execute(WRITE)

        ran = migration.run("cutover", "switch", *FORCED, code=1)

        writer.commit()
    assert "It took longer than 0.2 s" in ran.stdout
    assert_untouched(migration)


#: The queue is empty.
QUIET = ("relay.claim", "relay.send", "relay.mark")


@pytest.mark.parametrize("step", [step.name for step in switch.FORWARD if step.name not in QUIET])
def test_a_switcher_that_fails_at_any_step_leaves_one_open_authority(
    migration: Migration, armed: Path, step: str
) -> None:
    """I9: undone before the decision, finished after it, by the same process and at once."""
    # A switch obeys the row before it looks at the gates.
    (armed / step).write_text("raise after=1" if step == "settle.obey" else "raise")

    migration.run("cutover", "switch", *FORCED, code=1)

    assert (armed / f"{step}.hit").exists()
    is_decided = step in ("settle.obey", "settle.open")
    if is_decided:
        assert migration.authority == "schemaless"
        assert json.loads(audited(migration)[-1].detail)["outcome"] == "decided"
    else:
        assert_untouched(migration)
        assert json.loads(audited(migration)[-1].detail)["outcome"].startswith("undone")
    assert migration.run("cutover", "status", "--json").document["is_fine"] is True


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (switch.SHUT, "The hand-over was undone: postgres is the authority at epoch 2."),
        (switch.DECIDE, "The hand-over was undone: postgres is the authority at epoch 2."),
        (settle.OPEN, "The hand-over is decided: schemaless is the authority at epoch 2."),
    ],
    ids=lambda value: value.name if isinstance(value, Step) else "",
)
def test_ctrl_c_says_what_became_of_the_hand_over(
    migration: Migration, failpoints: Path, step: Step, told: str
) -> None:
    code, stderr = interrupted(migration, failpoints, step)

    assert code == 5
    assert f"Error: Interrupted. {told}" in stderr
    assert "Run the same command again" not in stderr
    assert migration.authority in told


def test_ctrl_c_once_more_while_it_is_undone_says_how_to_find_out(migration: Migration, failpoints: Path) -> None:
    """This process cannot know the outcome: the hand-over stays closing until another process undoes it."""
    code, stderr = interrupted(migration, failpoints, switch.SHUT, settle.UNDO)

    assert code == 5
    assert "What became of the hand-over is not known here" in stderr
    assert "`tripstore cutover status` says which" in stderr
    assert json.loads(audited(migration)[-1].detail)["outcome"] == "unknown"
    migration.run("cutover", "switch", *FORCED)
    assert migration.authority == "schemaless"


def test_ctrl_c_after_all_was_done_and_before_it_is_told_says_so(migration: Migration, failpoints: Path) -> None:
    code, stderr = interrupted(migration, failpoints, "cutover.settled")

    assert code == 5
    assert "The hand-over is decided: schemaless is the authority at epoch 2." in stderr


def test_a_bug_in_a_switch_says_what_became_of_it(migration: Migration, armed: Path) -> None:
    (armed / switch.SHUT.name).write_text("raise")

    ran = migration.run("cutover", "switch", *FORCED, code=1)

    assert "FailpointReached" in ran.complaint
    assert "The hand-over was undone: postgres is the authority at epoch 2." in ran.complaint


def interrupted(migration: Migration, failpoints: Path, *steps: Step | str) -> tuple[int, str]:
    """A switch that is interrupted at each of these steps, as by Ctrl-C; its exit code and what it complains of."""
    names = [step if isinstance(step, str) else step.name for step in steps]
    for name in names:
        (failpoints / name).write_text("wait")
    environment = {ENVIRONMENT_VARIABLE: str(failpoints)}
    process = migration.shell.start("cutover", "switch", *FORCED, environment=environment)
    for name in names:
        wait_until(f"it comes to {name}", (failpoints / f"{name}.hit").exists, 30)
        process.send_signal(signal.SIGINT)
    _stdout, stderr = process.communicate(timeout=30)
    return process.returncode, stderr


def test_a_switcher_that_was_killed_before_its_decision_is_undone_by_the_next(
    migration: Migration, failpoints: Path
) -> None:
    killed(migration, failpoints, switch.SHUT.name)
    status = migration.run("cutover", "status", "--json", code=1).document
    assert status["authority"]["target"] == "schemaless"
    assert "goes on" in status["advice"][0]

    migration.run("cutover", "switch", *FORCED)

    assert migration.authority == "schemaless"
    epochs = [row["epoch"] for row in migration.run("cutover", "status", "--json").document["history"]]
    assert epochs == [4, 3, 2, 1, 0] or epochs == [4, 3, 2, 1], "closing, undone, closing, decided"


def test_a_switcher_that_was_killed_after_its_decision_is_finished_by_the_next(
    migration: Migration, failpoints: Path
) -> None:
    killed(migration, failpoints, "settle.open")
    assert migration.authority == "schemaless"
    assert "shards are open" in migration.run("cutover", "status", code=1).stdout

    migration.run("cutover", "switch", "--yes", code=4)

    assert migration.run("cutover", "status", "--json").document["is_fine"] is True


def killed(migration: Migration, failpoints: Path, step: str) -> None:
    (failpoints / step).write_text("kill")
    ran = migration.shell.run("cutover", "switch", *FORCED, environment={ENVIRONMENT_VARIABLE: str(failpoints)})
    assert ran.code == -signal.SIGKILL


def assert_untouched(migration: Migration) -> None:
    """Postgres is the authority, open, and takes writes."""
    assert migration.ask("SELECT backend, target FROM tripstore.authority") == [("postgres", None)]
    write_by_sql(migration)


def test_completing_is_refused_while_postgres_is_the_authority(migration: Migration) -> None:
    document = migration.run("cutover", "complete", "--datastore", "trips", "--json", code=4).document

    assert refused(document) == {"authority", "phase"}
    write_by_sql(migration)
    assert list(migration.shell.folder.glob("*evidence*")) == []


@pytest.mark.parametrize("step", ["complete.phase", "complete.stop", "closing.table_closed", "closing.step_reverted"])
def test_an_end_that_was_killed_half_way_is_gone_on_with(migration: Migration, armed: Path, step: str) -> None:
    """I9: at no moment anybody may write the tables again."""
    migration.run("cutover", "switch", *FORCED)
    (armed / step).write_text("raise")

    migration.run("cutover", "complete", "--datastore", "trips", "--evidence", "one.json", code=1)
    with pytest.raises(psycopg2.Error) as caught:
        write_by_sql(migration)
    assert caught.value.pgcode == GATE_SHUT
    migration.run("cutover", "complete", "--datastore", "trips", "--evidence", "two.json")

    assert_closed(migration)
    layout = load_layout(migration.shell.folder / "layout.yaml", "trips")
    with connected(migration.url, "test") as connection:
        assert are_closed(connection, layout)


def test_no_service_writes_while_the_end_goes_on(migration: Migration) -> None:
    """I9: who never rests finds no gap between the gate and what takes its place."""
    migration.run("cutover", "switch", *FORCED)
    is_over, written, refusals = threading.Event(), list[str](), list[str]()

    def write() -> None:
        with migration.connection() as connection, connection.cursor() as cursor:
            while not is_over.is_set():
                try:
                    cursor.execute(WRITE)
                    written.append("a row")
                except psycopg2.Error as error:
                    (refusals if error.pgcode == GATE_SHUT else written).append(error.diag.message_primary or "")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        migration.run("cutover", "complete", "--datastore", "trips")
    finally:
        is_over.set()
        writer.join()

    assert written == []
    assert any("shut off" in refusal for refusal in refusals), "the gate"
    assert any("takes no more writes" in refusal for refusal in refusals), "what takes its place"
