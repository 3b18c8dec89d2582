"""The example company on real Postgres: its revisions, its past, and every kind of work that its services do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from random import Random

import psycopg2
import pytest
import yaml
from psycopg2 import errors
from sqlalchemy.exc import OperationalError

from tests.chaos.actors import wait_until
from tests.companies import Companies, Company, effects
from tests.integration.id_company import FLAVOURS, ONE_FLAVOUR, companies_on, postgres
from tests.scale import scaled
from tripstore.demo.legacy import LAYOUT
from tripstore.demo.legacy.actions import ACTIONS, LegacyAction
from tripstore.demo.legacy.connections import Connections
from tripstore.demo.legacy.schema import ADDED, CompanySchema
from tripstore.demo.legacy.seeding import Seeds
from tripstore.demo.legacy.services import BILLING, SUPPORT
from tripstore.demo.legacy.turns import ServiceHabits, WorkTurn
from tripstore.demo.legacy.worker import CompanyWorker, Done, WorkOutcome
from tripstore.demo.legacy.workload import Workload
from tripstore.errors import TripstoreError
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

#: So often is an action performed to see all that it may do; with these seeds it does. Those that did all sooner, less.
PERFORMANCES, FEWEST = 8, scaled(8, least=2)
FIRM = ServiceHabits(rollback_ratio=0)
REVISIONS = ("0001", "0002", "0003", "0004", "0005")

OURS = "relnamespace = 'public'::regnamespace AND relname NOT LIKE 'alembic%%'"
RELATIONS = f"SELECT relname FROM pg_class WHERE {OURS}"
TYPES_AND_FUNCTIONS = """
SELECT typname::text AS name FROM pg_type WHERE typnamespace = 'public'::regnamespace AND typname NOT LIKE '%%alembic%%'
UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
"""
FOREIGN_KEYS = """
SELECT conrelid::regclass::text AS child, confrelid::regclass::text AS parent, attname AS name
FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1]
WHERE contype = 'f' AND conparentid = 0
"""
#: What tripstore's steps add to the company's tables, in short.
ADD_COLUMNS = """
ALTER TABLE trips ADD trip_uuid uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(), ADD base_extra json,
    ADD base_version bigint NOT NULL DEFAULT 1;
ALTER TABLE billing_attempts ADD trip_uuid uuid NOT NULL DEFAULT gen_random_uuid();
ALTER TABLE trip_notes ADD trip_uuid uuid NOT NULL DEFAULT gen_random_uuid(), ADD note_version bigint DEFAULT 0;
ALTER TABLE fare_adjustments ADD trip_uuid uuid NOT NULL DEFAULT gen_random_uuid(), ADD adjustment_version bigint;
"""
REFUSE_TRIPS = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'the gate is closed' USING ERRCODE = 'TS001'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON trips FOR EACH STATEMENT EXECUTE FUNCTION refuse();
"""


both_versions = pytest.mark.parametrize("company_server", FLAVOURS, indirect=True)


@pytest.fixture(scope="module", params=ONE_FLAVOUR)
def company_server(request: pytest.FixtureRequest, servers: LocalServers) -> Companies:
    flavour: Flavour = request.param
    return companies_on(postgres(servers, flavour))


@pytest.fixture
def companies(company_server: Companies) -> Iterator[Companies]:
    """Makes companies that end with the test."""
    yield company_server
    company_server.drop()


@pytest.fixture
def company(companies: Companies) -> Company:
    """A company of this test's own."""
    return companies.seeded()


@pytest.fixture
def workload(company: Company) -> Iterator[Workload]:
    """Services that never change their mind."""
    with Workload(company.url, habits=FIRM) as made:
        yield made


# --- Revisions ------------------------------------------------------------------------------------------------


@both_versions
def test_each_revision_goes_up_and_down_and_leaves_nothing(companies: Companies) -> None:
    company = companies.empty()
    schema = CompanySchema(company.url)
    relations: dict[str | None, list[dict[str, object]]] = {None: []}

    for revision in REVISIONS:
        schema.upgrade(revision)
        assert schema.revision() == revision
        relations[revision] = company.query(f"{RELATIONS} ORDER BY 1")
    assert len(relations["0005"]) > len(relations["0004"])

    for revision, before in zip(reversed(REVISIONS), [*reversed(REVISIONS[:-1]), None], strict=True):
        assert schema.revision() == revision
        schema.downgrade(before or "base")
        assert company.query(f"{RELATIONS} ORDER BY 1") == relations[before]
    assert company.query(TYPES_AND_FUNCTIONS) == []

    schema.upgrade()
    assert schema.differences() == []


def test_a_revision_on_tables_with_rows_keeps_the_rows(companies: Companies) -> None:
    """Users and cities have UUIDs of their own when revision 0004 met them as rows."""
    company = companies.seeded()
    schema = CompanySchema(company.url)

    schema.downgrade("0003")
    schema.upgrade()

    (found,) = company.query("SELECT count(*), count(DISTINCT user_uuid) AS uuids FROM users")
    assert found["count"] == found["uuids"] == 40


@both_versions
def test_the_models_are_the_tables(company: Company) -> None:
    schema = CompanySchema(company.url)
    assert schema.differences() == []

    # Control: the comparison sees a column and an index that the models do not know, and one that is gone.
    company.query("ALTER TABLE trips ADD forgotten int")
    company.query("CREATE INDEX ix_forgotten ON trip_notes (written_at)")
    company.query("ALTER TABLE trip_notes DROP COLUMN rating")
    assert sorted(str(found[0]) for found in schema.differences()) == ["add_column", "remove_column", "remove_index"]


def test_autogenerate_leaves_alone_what_tripstore_adds(company: Company) -> None:
    company.query(ADD_COLUMNS)
    company.query("CREATE UNIQUE INDEX ours ON trip_notes (trip_uuid, n)")

    assert CompanySchema(company.url).differences() == []


def test_the_layout_names_what_there_is(company: Company) -> None:
    """Every table, column and key of layout.yaml exists, but for those that tripstore adds."""
    columns = {
        (row["table_name"], row["column_name"])
        for row in company.query("SELECT table_name, column_name FROM information_schema.columns")
    }
    layout = yaml.safe_load(LAYOUT.read_text(encoding="utf-8"))
    named = set()
    for column in layout["columns"].values():
        table = column["table"]
        named |= {(table, field["column"]) for field in column["fields"].values()}
        named |= {(table, name) for name in column["ref_key"].values()}
        named |= {(table, column[key]) for key in ("extra",) if key in column}
        named |= {(table, column[key]["column"]) for key in ("parent",) if key in column}
        for lookup in (field["lookup"] for field in column["fields"].values() if "lookup" in field):
            named |= {(lookup["table"], lookup["key"]), (lookup["table"], lookup["value"])}

    assert {name for _, name in named - columns} == ADDED - {"trip_uuid"}
    assert len(named) > 40


# --- The past -------------------------------------------------------------------------------------------------


def test_the_same_seed_makes_the_same_past(companies: Companies) -> None:
    one, other, different = (companies.empty() for _ in range(3))
    for company, number in ((one, 7), (other, 7), (different, 8)):
        CompanySchema(company.url).upgrade()
        Seeds(company.url, number, users=20).plant(50)

    assert one.rows() == other.rows()
    assert one.rows() != different.rows()
    assert one.query("SELECT count(*) FROM trips") == [{"count": 50}]
    for child in ("billing_attempts", "trip_notes", "fare_adjustments"):
        (found,) = one.query(f"SELECT count(*), count(DISTINCT trip_id) AS trips FROM {child}")
        assert found["count"] != found["trips"] != 0


def test_seeding_again_adds_trips(company: Company) -> None:
    before = company.rows()
    Seeds(company.url, 2).plant(30)

    assert effects(before, company.rows()) == {
        f"insert {table}" for table in ("trips", "billing_attempts", "trip_notes", "fare_adjustments")
    }
    assert company.query("SELECT count(*) FROM trips") == [{"count": 110}]


@both_versions
def test_values_that_are_hard_to_write_arrive_by_copy(companies: Companies) -> None:
    company = companies.seeded(400)
    (found,) = company.query(r"""
        SELECT count(*) FILTER (WHERE text LIKE '%%' || chr(9) || '%%') AS tabs,
               count(*) FILTER (WHERE text LIKE '%%' || chr(10) || '%%') AS lines,
               count(*) FILTER (WHERE position('\N' IN text) > 0) AS backslashes,
               count(*) FILTER (WHERE text LIKE '%%🚕%%') AS taxis,
               count(*) FILTER (WHERE '{braces}' = ANY (tags)) AS braces,
               count(*) FILTER (WHERE 'back\slash' = ANY (tags)) AS slashes,
               count(*) FILTER (WHERE 'quoted "tag"' = ANY (tags)) AS quotes,
               count(*) FILTER (WHERE octet_length(attachment) > 3) AS attachments
        FROM trip_notes""")
    assert all(found.values()), found
    (numbers,) = company.query("SELECT array_agg(DISTINCT distance_km) AS found FROM trips")
    assert isinstance(numbers["found"], list)
    assert {0.1 + 0.2, 1e-7, 5.4e22} <= set(numbers["found"])


# --- Actions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", sorted({name.partition(".")[0] for name in ACTIONS}))
def test_an_action_does_what_it_says_and_no_more(style: str, company: Company, workload: Workload) -> None:
    names = [name for name in ACTIONS if name.startswith(f"{style}.")]
    seen: dict[str, set[str]] = {name: set() for name in names}
    before = company.rows()
    for name, seed in product(names, range(PERFORMANCES)):
        if seed >= FEWEST and seen[name] == ACTIONS[name].effects:
            continue
        done = workload.perform(name, Random(f"{name}/{seed}"))
        after = company.rows()
        happened = effects(before, after)
        assert done.outcome is WorkOutcome.COMMITTED, done
        assert happened <= ACTIONS[name].effects, done
        seen[name] |= happened
        before = after
    assert seen == {name: ACTIONS[name].effects for name in names}


def test_a_service_that_changes_its_mind_leaves_nothing(company: Company) -> None:
    before = company.rows()
    with Workload(company.url, habits=ServiceHabits(rollback_ratio=1)) as workload:
        outcomes = [workload.perform(name, Random(3)).outcome for name in ACTIONS]

    assert set(outcomes) == {WorkOutcome.ROLLED_BACK}
    assert effects(before, company.rows()) == set()


def test_quiet_actions_change_nothing_that_is_mapped(company: Company, workload: Workload) -> None:
    before, mapped = company.rows(), mapped_values(company)
    names = [name for name in ACTIONS if name.startswith("quiet.")]
    touched = company.query("SELECT id, updated_at FROM trips ORDER BY id")
    for name in names * 4:
        workload.perform(name, Random(name))

    assert mapped_values(company) == mapped
    assert effects(before, company.rows()) == {"update trips", "update trip_notes", "update billing_attempts"}
    assert company.query("SELECT id, updated_at FROM trips ORDER BY id") != touched

    # Control: an action that is not quiet is seen.
    workload.perform("billing.take_tip", Random(1))
    assert mapped_values(company) != mapped


@both_versions
def test_every_action_works_when_columns_have_been_added(company: Company) -> None:
    """The old code names the columns that it knows: those that tripstore adds do not disturb it."""
    company.query(ADD_COLUMNS)
    with Workload(company.url, habits=FIRM) as workload:
        outcomes = {name: workload.perform(name, Random(2)).outcome for name in ACTIONS}

    assert set(outcomes.values()) == {WorkOutcome.COMMITTED}


def test_the_same_chance_does_the_same(companies: Companies) -> None:
    def played(seed: int) -> tuple[list[Done], dict[tuple[str, str], str]]:
        company = companies.seeded()
        with Workload(company.url) as workload:
            random = Random(seed)
            return [workload.step(random) for _ in range(scaled(1000, least=60))], company.rows()

    one, other, different = played(5), played(5), played(6)

    assert one == other
    assert one[0] != different[0]
    assert one[1] != different[1]


# --- Roles and sessions ---------------------------------------------------------------------------------------


def test_a_service_acts_as_its_role_with_its_own_settings(company: Company) -> None:
    connections = Connections(company.url)
    with connections.raw(BILLING) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT current_user, current_setting('TimeZone'), current_setting('extra_float_digits')")
        assert cursor.fetchone() == ("svc_billing", "America/Los_Angeles", "0")
        cursor.execute("SELECT current_setting('search_path'), current_setting('application_name')")
        assert cursor.fetchone() == ("pg_catalog", "billing")
    connections.close()


@pytest.mark.parametrize(
    "statement",
    ["SELECT * FROM tripstore.queue", "INSERT INTO public.trips DEFAULT VALUES", "DELETE FROM public.billing_attempts"],
)
def test_roles_may_do_their_work_and_nothing_else(statement: str, company: Company, workload: Workload) -> None:
    company.query("CREATE SCHEMA tripstore")
    company.query("CREATE TABLE tripstore.queue (id int)")
    connections = Connections(company.url)
    for service in (BILLING, SUPPORT):
        with connections.raw(service).cursor() as cursor, pytest.raises(errors.InsufficientPrivilege):
            cursor.execute(statement)
    connections.close()

    for name in ("billing.bill_trip", "billing.take_tip", "support.add_note", "quiet.export_attempts"):
        assert workload.perform(name, Random(1)).outcome is WorkOutcome.COMMITTED


# --- Conflicts and failures -----------------------------------------------------------------------------------


def raise_surge(company: Company, interruptions: int) -> LegacyAction:
    """An action that reads in a snapshot and writes; so often, another service writes in between."""
    calls = iter(range(interruptions))

    def work(turn: WorkTurn) -> None:
        with turn.cursor(isolation="REPEATABLE READ") as cursor:
            cursor.execute("SELECT surge FROM trips WHERE id = 1")
            if next(calls, None) is not None:
                company.query("UPDATE trips SET surge = surge + 1 WHERE id = 1")
            cursor.execute("UPDATE trips SET surge = surge + 10 WHERE id = 1")

    return LegacyAction("test.raise_surge", frozenset(), 1, work)


def test_a_conflict_is_tried_again(company: Company) -> None:
    company.query("UPDATE trips SET surge = 0 WHERE id = 1")
    with CompanyWorker(company.url, FIRM) as worker:
        done = worker.do(raise_surge(company, 2), Random(1))

    assert (done.outcome, done.retries) == (WorkOutcome.COMMITTED, 2)
    assert company.query("SELECT surge::int AS surge FROM trips WHERE id = 1") == [{"surge": 12}]


def test_conflicts_without_end_are_given_up(company: Company) -> None:
    company.query("UPDATE trips SET surge = 0 WHERE id = 1")
    with CompanyWorker(company.url, ServiceHabits(rollback_ratio=0, retries=3)) as worker:
        done = worker.do(raise_surge(company, 100), Random(1))

    assert (done.outcome, done.retries) == (WorkOutcome.GAVE_UP, 3)
    assert company.query("SELECT surge::int AS surge FROM trips WHERE id = 1") == [{"surge": 4}]


def test_a_refusal_is_counted_and_the_work_goes_on(company: Company) -> None:
    company.query(REFUSE_TRIPS)
    workload = Workload(company.url, only=["raw.insert_trip"], habits=FIRM)

    refused = workload.run(actions=3, workers=1)
    assert refused.failures == {("raw.insert_trip", "TS001"): 3}
    assert refused.first_failure is not None
    assert "the gate is closed" in refused.first_failure
    assert refused.committed == 0

    company.query("DROP TRIGGER refuse ON trips")
    tally = workload.run(actions=3, workers=1)
    assert (tally.failed, tally.committed) == (0, 3)


def test_a_lost_connection_is_opened_anew(company: Company, workload: Workload) -> None:
    losses = {"raw.start_trip": 2, "orm.complete_trip": 1, "core.insert_event": 1}
    for name in losses:
        workload.perform(name, Random(1))
    company.query(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    # Each service meets its dead connection once; the very first one to look a trip up, the reader's as well.
    for name, times in losses.items():
        for _ in range(times):
            with pytest.raises((psycopg2.OperationalError, OperationalError)):
                workload.perform(name, Random(1))
        assert workload.perform(name, Random(1)).outcome is WorkOutcome.COMMITTED


def test_a_workload_needs_people_and_an_end(companies: Companies) -> None:
    company = companies.empty()
    CompanySchema(company.url).upgrade()

    with Workload(company.url) as workload:
        with pytest.raises(TripstoreError, match="no users"):
            workload.step(Random(1))
        with pytest.raises(TripstoreError, match="needs an end"):
            workload.run()
    with pytest.raises(TripstoreError, match="No action is called"):
        Workload(company.url, only=["nothing.*"])


# --- Many at once ---------------------------------------------------------------------------------------------


@both_versions
def test_services_at_work_together_leave_a_sound_database(company: Company) -> None:
    habits = ServiceHabits(rollback_ratio=0.1, hot_ratio=0.5, hot_trips=6, pause_seconds=0.01)
    tally = Workload(company.url, habits=habits).run(seconds=scaled(40, least=2), workers=4)

    assert tally.first_failure is None
    assert tally.committed > 20
    assert tally.total(WorkOutcome.ROLLED_BACK) > 0
    assert_sound(company)


def test_processes_share_the_work(company: Company) -> None:
    tally = Workload(company.url).run(actions=31, workers=2, processes=True)

    assert tally.first_failure is None
    assert tally.actions == 31
    assert_sound(company)


def test_a_workload_in_the_background_ends_with_its_block(company: Company) -> None:
    with Workload(company.url).running(workers=1) as tally:
        (before,) = company.query("SELECT pg_current_xact_id()::text::bigint AS now")
        while company.query("SELECT pg_current_xact_id()::text::bigint > %s + 20 AS is_past", before["now"]) != [
            {"is_past": True}
        ]:
            pass

    assert tally.committed > 0
    assert tally.first_failure is None
    at_work = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND backend_type = 'client backend'"""
    wait_until("Postgres has ended its sessions", lambda: company.query(at_work) == [{"count": 0}])


def test_the_command_creates_fills_and_works(companies: Companies) -> None:
    company = companies.empty()
    command = [sys.executable, "-m", "tripstore.demo.legacy", "--url", company.url]

    unseeded = subprocess.run([*command, "--run-actions", "1"], capture_output=True, text=True, check=False)
    assert unseeded.returncode == 1

    arguments = ["--create", "--seed-trips", "20", "--uuids", "--run-actions", "25", "--json"]
    finished = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
    total = json.loads(finished.stdout)["total"]
    assert total["failed"] == 0
    assert sum(total[str(outcome)] for outcome in WorkOutcome) == 25
    assert CompanySchema(company.url).revision() == "0025"
    assert company.query("SELECT count(*) FROM trips WHERE trip_uuid IS NULL") == [{"count": 0}]


# --- Looks ----------------------------------------------------------------------------------------------------


def mapped_values(company: Company) -> dict[str, list[tuple[object, ...]]]:
    """The values of the columns that layout.yaml maps, read without it."""
    layout = yaml.safe_load(LAYOUT.read_text(encoding="utf-8"))
    found = {}
    connection = psycopg2.connect(company.url)
    with connection, connection.cursor() as cursor:
        for column in layout["columns"].values():
            names = ", ".join(f"{field['column']}::text" for field in column["fields"].values())
            cursor.execute(f"SELECT {names} FROM {column['table']} ORDER BY {names}")
            found[column["table"]] = cursor.fetchall()
    connection.close()
    return found


def assert_sound(company: Company) -> None:
    """No child without its parent, no gap in the numbers of attempts, nothing that a savepoint took back."""
    keys = company.query(FOREIGN_KEYS)
    assert len(keys) == 8
    for key in keys:
        orphans = company.query(
            f"SELECT count(*) FROM {key['child']} AS child WHERE child.{key['name']} IS NOT NULL"
            f" AND NOT EXISTS (SELECT FROM {key['parent']} AS parent WHERE parent.id = child.{key['name']})"
        )
        assert orphans == [{"count": 0}], key
    gaps = "SELECT trip_id FROM billing_attempts GROUP BY 1 HAVING (min(attempt_no), max(attempt_no)) <> (1, count(*))"
    assert company.query(gaps) == []
    assert company.query("SELECT count(*) FROM trips WHERE product = 'never to be seen'") == [{"count": 0}]
