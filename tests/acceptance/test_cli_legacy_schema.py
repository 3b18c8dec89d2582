"""`tripstore schema` and `doctor` over a legacy store: the plan, the steps in order, resumable, one run at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
import yaml

from tests.acceptance.conftest import Shell
from tests.chaos.actors import wait_until
from tests.integration.id_company import killed
from tests.layouts import FLAVOURS, company_database, document, shop_layout
from tests.scale import scaled
from tripstore.backends.postgres.checks import keys as check_keys
from tripstore.backends.postgres.checks.layout import check_layout
from tripstore.backends.postgres.ids import key_match
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.connections import connected
from tripstore.cli.legacy import schema as legacy_schema
from tripstore.cli.legacy.schema import LOCK
from tripstore.cli.run import run
from tripstore.demo.legacy.schema import CompanySchema
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

ROWS = """
INSERT INTO users (id, user_uuid) SELECT n, gen_random_uuid() FROM generate_series(1, 3) n;
INSERT INTO trips (driver_id) SELECT 1 + n % 3 FROM generate_series(1, 50) n;
INSERT INTO billing_attempts (trip_id, attempt_no, result) SELECT id, 1, 'captured' FROM trips;
INSERT INTO trip_notes (trip_id, n, text) SELECT id, 1, 'hello' FROM trips;
"""


class Company:
    """A database with tables and rows, and a folder whose configuration names it."""

    def __init__(self, servers: LocalServers, shell: Shell, flavour: Flavour) -> None:
        self.url = company_database(servers, flavour)
        self.login = self.url.partition("://")[2].partition("@")[0]
        self.shell = shell
        self.ask(ROWS)
        self.configure(document())

    def configure(self, layout: dict[str, Any], *indexes: dict[str, Any]) -> None:
        (self.shell.folder / "layout.yaml").write_text(yaml.safe_dump(layout))
        config = {
            "datastore": "trips",
            "shards": 4,
            "clusters": {"a": {"primary": "sqlite:///data/a"}},
            "legacy": {"postgres": self.url, "layout": "layout.yaml"},
            "indexes": list(indexes),
        }
        (self.shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(config))

    @contextmanager
    def connection(self) -> Iterator[Any]:
        connection = psycopg2.connect(self.url)
        connection.autocommit = True
        try:
            yield connection
        finally:
            connection.close()

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with self.connection() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def columns(self) -> set[str]:
        found = self.ask("SELECT table_name || '.' || column_name FROM information_schema.columns")
        return {name for (name,) in found}


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    found: Flavour = request.param
    return found


@pytest.fixture
def company(servers: LocalServers, shell: Shell, flavour: Flavour) -> Company:
    return Company(servers, shell, flavour)


@pytest.fixture
def machine(servers: LocalServers, shell: Shell) -> Company:
    return Company(servers, shell, "machine")


def test_plan_shows_every_step_and_changes_nothing(company: Company) -> None:
    before = company.columns()

    ran = company.shell.call("schema", "plan")

    assert ran.code == 0, ran.stdout + ran.stderr
    assert "to do  trips: " in ran.stdout
    assert "ADD COLUMN" in ran.stdout
    assert re.search(r"(\d+) of \1 steps are to do", ran.stdout)
    assert company.columns() == before
    assert company.shell.call("schema", "apply", "--dry-run").stdout == ran.stdout


def test_apply_does_all_steps_and_a_second_one_finds_nothing_to_do(company: Company) -> None:
    first = company.shell.run("schema", "apply", "--json")
    second = company.shell.call("schema", "apply")
    planned = company.shell.call("schema", "plan", "--json")

    assert first.code == 0, first.stderr
    steps = first.document["legacy"]["steps"]
    # No earlier layout had left anything.
    assert first.document["legacy"]["applied"] == [
        step["title"] for step in steps if step["title"] != "what earlier layouts left"
    ]
    assert steps[0]["title"] in first.stderr, "progress is told without a terminal too"
    assert {"trips.trip_uuid", "trips.base_version", "trips.base_extra", "trip_notes.note_version"} <= company.columns()
    assert company.ask("SELECT count(*) FROM trips WHERE trip_uuid IS NULL") == [(0,)]
    assert second.code == 0
    assert f"all {len(steps)} steps were done" in second.stdout
    assert planned.document["legacy"]["is_complete"] is True
    assert [each for each in planned.document["legacy"]["complaints"] if each["severity"] == "error"] == []


def test_doctor_is_content_after_apply_and_not_before(company: Company) -> None:
    before = company.shell.call("doctor", "--json")
    assert company.shell.call("schema", "apply").code == 0
    after = company.shell.call("doctor", "--json")

    assert before.code == 1
    assert "capture is not installed" in str(before.document["legacy"]["complaints"])
    assert after.code == 0, after.stdout
    assert after.document["legacy"]["is_fine"] is True


def test_the_example_company_is_brought_from_init_to_a_content_doctor(
    servers: LocalServers, shell: Shell, flavour: Flavour
) -> None:
    url = company_database(servers, flavour, "")
    CompanySchema(url).upgrade()
    tables = ("trips", "billing_attempts", "trip_notes", "fare_adjustments")

    ran = [
        shell.call("init", "--from", url, *(word for table in tables for word in ("--table", table))),
        shell.call("schema", "plan"),
        shell.call("schema", "apply"),
        shell.call("doctor"),
    ]

    assert [each.code for each in ran] == [0, 0, 0, 0], [each.stdout + each.stderr for each in ran]


def test_doctor_names_a_disabled_trigger_and_capture_counts_as_broken_until_mended(machine: Company) -> None:
    assert machine.shell.call("schema", "apply").code == 0
    machine.ask("ALTER TABLE trips DISABLE TRIGGER USER")

    found = machine.shell.call("doctor")

    assert found.code == 1
    assert re.search(r"error +trips +trigger .* is disabled", found.stdout)
    assert machine.ask("SELECT since IS NULL, broken IS NOT NULL FROM tripstore.capture") == [(True, True)]
    # A person who enables it again has not undone what was missed.
    machine.ask("ALTER TABLE trips ENABLE TRIGGER USER")
    assert machine.shell.call("doctor").code == 1
    assert machine.shell.call("schema", "apply").code == 0
    assert machine.shell.call("doctor").code == 0


def index(name: str, field: str, kind: str) -> dict[str, Any]:
    fields = [{"field": field, "type": kind}, {"field": "fare", "type": "decimal"}]
    return {"table": name, "column_defs": [{"column_key": "BASE", "fields": fields}]}


DRIVERS, MOODS = index("by_driver", "driver_uuid", "UUID"), index("by_mood", "mood", "string")
LACKING = 'CREATE INDEX CONCURRENTLY ON "public"."trips" ("driver_id")'


def test_plan_advises_the_indexes_that_queries_lack_and_apply_makes_none(company: Company) -> None:
    company.configure(document(), DRIVERS, MOODS)

    planned, as_json = company.shell.call("schema", "plan"), company.shell.call("schema", "plan", "--json")
    applied = company.shell.call("schema", "apply")

    assert [planned.code, as_json.code, applied.code] == [0, 0, 0]
    assert re.search(r"advice +trips\.driver_id +no index leads with it, so queries of by_driver", planned.stdout)
    assert f"{LACKING};" in planned.stdout
    missing, unsearchable = as_json.document["legacy"]["advice"]
    assert (missing["where"], missing["statements"]) == ("trips.driver_id", [LACKING])
    assert (unsearchable["where"], unsearchable["statements"]) == ("index by_mood", [])
    assert "no physical column of trips holds it" in unsearchable["reason"]
    assert "Advice for the legacy tables: 2" in applied.stdout
    assert company.ask("SELECT 1 FROM pg_indexes WHERE indexdef LIKE '%driver_id%'") == []

    for statement in missing["statements"]:
        company.ask(statement)
    assert company.shell.call("schema", "plan", "--json").document["legacy"]["advice"] == [unsearchable]


def test_doctor_notes_what_queries_lack_and_stays_content(company: Company) -> None:
    company.configure(document(), DRIVERS)
    assert company.shell.call("schema", "apply").code == 0
    # The one that `schema apply` made.
    ((made,),) = company.ask("SELECT indexname FROM pg_indexes WHERE indexdef LIKE '%trip_notes%(trip_uuid, n)'")
    company.ask(f'DROP INDEX "{made}"')

    ran, as_json = company.shell.call("doctor"), company.shell.call("doctor", "--json")

    assert (ran.code, as_json.code) == (0, 0), ran.stdout
    notes = {each["where"]: each for each in as_json.document["legacy"]["complaints"]}
    assert {notes[where]["severity"] for where in ("trips.driver_id", "trip_notes.trip_uuid")} == {"note"}
    assert notes["trips.driver_id"]["hint"] == f"{LACKING};"
    assert "no index leads with it" in notes["trip_notes.trip_uuid"]["reason"]
    assert f"→ {LACKING};" in ran.stdout

    company.ask(LACKING)
    assert company.shell.call("schema", "apply").code == 0
    told = company.shell.call("doctor", "--json").document["legacy"]["complaints"]
    assert not {"trips.driver_id", "trip_notes.trip_uuid"} & {each["where"] for each in told}


def test_a_layout_that_does_not_fit_is_refused_before_anything_is_done(machine: Company) -> None:
    unfit = document()
    unfit["columns"]["NOTES"]["ref_key"]["column"] = "number"
    unfit["columns"]["BASE"]["fields"]["fare"]["type"] = "int"
    machine.configure(unfit)
    before = machine.columns()

    planned = machine.shell.call("schema", "plan")
    applied = machine.shell.call("schema", "apply")

    assert planned.code == 1
    assert "trip_notes.number" in planned.stdout
    assert "trips.fare_amount" in planned.stdout
    assert applied.code == 2
    assert "does not fit the tables: trips.fare_amount" in applied.complaint
    # n is a column without default then, which no INSERT fills.
    assert "; 2 more." in applied.complaint
    assert machine.columns() == before
    assert not (machine.shell.folder / "data").exists()


def test_i12_apply_compares_all_keys_of_a_companys_own_column_and_doctor_goes_on_doing_so(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many rows `plan` looks at a sample, which may miss one; what writes under a wrong key is never compared."""
    monkeypatch.setattr(key_match, "SAMPLE_ROWS", 1)  # a page in three thousand: it misses the one row
    company.ask("ALTER TABLE trips ADD trip_uuid uuid NOT NULL UNIQUE DEFAULT gen_random_uuid()")
    company.ask("INSERT INTO trip_notes (trip_id, n, text) SELECT 1, n, 'many' FROM generate_series(2, 30000) n")
    company.ask("ALTER TABLE trip_notes ADD trip_uuid uuid")
    company.ask("UPDATE trip_notes SET trip_uuid = (SELECT trip_uuid FROM trips WHERE id = trip_id)")
    company.ask("ALTER TABLE trip_notes ALTER trip_uuid SET NOT NULL")
    company.ask("UPDATE trip_notes SET trip_uuid = gen_random_uuid() WHERE trip_id = 1 AND n = 29999")
    company.ask("VACUUM ANALYZE trip_notes")

    refused = company.shell.call("schema", "apply")

    assert refused.code == 2
    assert "trip_notes.trip_uuid: is missing, or is another than the parent's trips.trip_uuid, in 1 rows" in (
        refused.complaint
    )
    assert "parent: {column: trip_id, uuid: trips_uuid}" in refused.complaint
    assert company.ask("SELECT 1 FROM pg_namespace WHERE nspname = 'tripstore'") == []

    company.ask("UPDATE trip_notes SET trip_uuid = (SELECT trip_uuid FROM trips WHERE id = 1) WHERE n = 29999")
    assert company.shell.call("schema", "apply").code == 0
    assert company.shell.call("doctor").code == 0
    # A restore under disabled triggers, say: capture saw nothing.
    company.ask(
        "SET session_replication_role = replica; ALTER TABLE trip_notes DISABLE TRIGGER ALL;"
        "UPDATE trip_notes SET trip_uuid = gen_random_uuid() WHERE n = 29999;"
        "ALTER TABLE trip_notes ENABLE TRIGGER ALL"
    )
    assert "in 1 rows" in company.shell.call("doctor").stdout
    assert "only a sample of the child rows was looked at" in company.shell.call("doctor", "--quick").stdout


def test_a_killed_apply_goes_on_where_it_was(company: Company, failpoints: Path) -> None:
    (failpoints / "legacy.step_applied").write_text("kill after=2")

    killed = company.shell.run("schema", "apply", environment={"TRIPSTORE_FAILPOINTS": str(failpoints)})
    done = [
        step for step in company.shell.call("schema", "plan", "--json").document["legacy"]["steps"] if step["is_done"]
    ]
    again = company.shell.call("schema", "apply", "--json")

    assert killed.code < 0
    assert done
    assert again.code == 0, again.stderr
    assert not {step["title"] for step in done} & set(again.document["legacy"]["applied"])
    assert company.shell.call("doctor").code == 0


#: Of `schema apply`, from one kill to the next; in `make soak` it is killed after each.
STEPS = scaled(1, short=4)


def apply_in(folder: str) -> None:
    """What the process does that is killed."""
    with chdir(folder):
        run(["schema", "apply"])


def refused_by(company: Company) -> list[str]:
    """What the layout's check has against the tables as they are now."""
    with connected(company.url, "test") as connection:
        return [each.reason for each in check_layout(connection, load_layout(document())) if each.is_error]


@pytest.mark.long
def test_apply_may_be_killed_after_every_step(
    machine: Company, failpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: without the rule for a column of ours there is a step after which the next run is refused."""
    refusals: list[str] = []
    done = -1
    while True:
        planned = machine.shell.call("schema", "plan", "--json").document["legacy"]
        before, done = done, sum(step["is_done"] for step in planned["steps"])
        assert planned["is_refused"] is False, planned["complaints"]
        assert done > before, "the run that was killed had done a step"
        if planned["is_complete"]:
            break
        with monkeypatch.context() as without:
            without.setattr(check_keys, "_is_indexed_later", lambda _column: False)
            refusals += refused_by(machine)
        left = len(planned["steps"]) - done
        killed(failpoints, "legacy.step_applied", min(STEPS, left) - 1, apply_in, str(machine.shell.folder))

    assert any("there is no unique index" in reason for reason in refusals)
    assert machine.shell.call("schema", "apply").code == 0
    assert machine.shell.call("doctor").code == 0


@contextmanager
def migrator(company: Company) -> Iterator[str]:
    """The configuration names a role that owns the tables, and may create nothing."""
    role = f"migrator_{uuid4().hex[:8]}"
    own = " ".join(
        f"ALTER TABLE {name} OWNER TO {role};" for name in ("trips", "billing_attempts", "trip_notes", "users")
    )
    company.ask(f"REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE {role} LOGIN PASSWORD 'weak'; {own}")
    whole, company.url = company.url, company.url.replace(company.login, f"{role}:weak")
    company.configure(document())
    company.url = whole
    yield role


def test_plan_names_the_rights_that_apply_will_need_and_the_grants_are_enough(machine: Company) -> None:
    with migrator(machine) as role:
        planned = machine.shell.call("schema", "plan", "--json").document["legacy"]
        refused = machine.shell.call("schema", "apply")
        hints = [each["hint"] for each in planned["complaints"] if each["severity"] == "error"]

        assert [re.sub(r'ON DATABASE "\w+"', "ON DATABASE …", hint) for hint in hints] == [
            f'GRANT CREATE ON SCHEMA "public" TO "{role}";',
            f'GRANT CREATE ON DATABASE … TO "{role}";',
        ]
        assert refused.code == 2
        assert "may not create anything in it" in refused.complaint
        assert "trips.trip_uuid" not in machine.columns(), "nothing was done"

        for hint in hints:
            machine.ask(hint)
        assert machine.shell.call("schema", "apply").code == 0
        # What exists needs no right to create it.
        machine.ask("".join(hint.replace("GRANT", "REVOKE").replace(" TO ", " FROM ") for hint in hints))
        again = machine.shell.call("schema", "apply")
        assert (again.code, "steps were done" in again.stdout) == (0, True), again.stderr


def test_control_without_that_look_apply_fails_half_way_and_goes_on_after_the_grant(
    machine: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legacy_schema, "check_rights", lambda *_given, **_also: [])
    with migrator(machine) as role:
        machine.ask(f"GRANT CREATE ON DATABASE {machine.url.rpartition('/')[2]} TO {role}")
        failed = machine.shell.call("schema", "apply")

        assert failed.code == 1
        assert "permission denied for schema public" in failed.complaint
        assert "trips.trip_uuid" in machine.columns()
        machine.ask(f"GRANT CREATE ON SCHEMA public TO {role}")
        again = machine.shell.call("schema", "apply")
        assert again.code == 0, again.stderr


def test_a_second_apply_at_the_same_time_is_told_who_is_at_it(machine: Company) -> None:
    with machine.connection() as other, other.cursor() as cursor:
        cursor.execute("SET application_name = 'tripstore schema'")
        cursor.execute("SELECT pg_advisory_lock(%s), pg_backend_pid()", (LOCK,))
        pid = cursor.fetchone()[1]

        ran = machine.shell.call("schema", "apply", "--json")

    assert ran.code == 6
    assert f"tripstore schema, pid {pid}" in ran.complaint
    assert ran.document["error"]["kind"] == "Locked"
    wait_until("the lock is free", lambda: machine.shell.call("schema", "apply").code == 0)


def test_a_role_without_rights_is_told_what_it_lacks(machine: Company) -> None:
    machine.ask("CREATE ROLE onlooker LOGIN PASSWORD 'weak'")
    try:
        host = machine.url.partition("@")[2]
        machine.url = f"postgresql://onlooker:weak@{host}"
        machine.configure(document())

        ran = machine.shell.call("schema", "apply")
    finally:
        machine.url = machine.url.replace("onlooker:weak", machine.login)
        machine.ask("DROP ROLE onlooker")

    assert ran.code == 2
    assert "onlooker may not alter it: only its owner postgres may" in ran.complaint
    assert 'GRANT "postgres" TO "onlooker";' in ran.complaint


def test_a_server_that_cannot_be_reached_is_said_without_the_password(shell: Shell) -> None:
    config = {
        "datastore": "trips",
        "shards": 4,
        "clusters": {"a": {"primary": "sqlite:///data/a"}},
        "legacy": {"postgres": "postgresql://a:S3cr3t@127.0.0.1:1/d", "layout": document()},
    }
    (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(config))

    planned, examined = shell.call("schema", "plan"), shell.call("doctor")

    assert (planned.code, examined.code) == (1, 1)
    assert "Postgres cannot be reached" in planned.complaint
    assert "Postgres cannot be reached" in examined.stdout
    assert "S3cr3t" not in planned.stdout + planned.stderr + examined.stdout + examined.stderr


# What fills the UUIDs of new rows stays.
CAPTURED = """
SELECT t.tgname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'tripstore' AND t.tgparentid = 0 AND t.tgname NOT LIKE 'zz%'
"""


def test_remove_takes_capture_off_and_leaves_every_row(company: Company) -> None:
    assert company.shell.call("schema", "apply").code == 0
    company.ask("UPDATE trips SET driver_id = 1 WHERE id <= 3")
    before = company.ask("SELECT * FROM trips ORDER BY id")
    dry = company.shell.call("schema", "remove", "--dry-run", "--json")
    assert dry.document == {
        "is_removed": False,
        "tables": False,
        "columns": False,
        "undelivered": company.ask("SELECT count(*) FROM tripstore.queue")[0][0],
        "delivered": 0,
    }
    refused = company.shell.call("schema", "remove", "--json")
    assert refused.code != 0
    assert company.ask(CAPTURED) != []

    removed = company.shell.call("schema", "remove", "--yes")
    assert removed.code == 0, removed.stderr
    assert company.ask(CAPTURED) == []
    assert company.ask("SELECT * FROM trips ORDER BY id") == before
    assert company.ask("SELECT count(*) > 0 FROM tripstore.queue") == [(True,)]
    names = "SELECT proname FROM pg_proc WHERE pronamespace = 'tripstore'::regnamespace ORDER BY 1"
    assert [name for (name,) in company.ask(names) if "uuid" not in name] == []

    assert company.shell.call("schema", "remove", "--tables", "--columns", "--yes").code == 0
    assert company.ask("SELECT to_regclass('tripstore.queue')") == [(None,)]
    assert company.shell.call("schema", "apply").code == 0


@pytest.mark.parametrize(
    ("arguments", "gate", "reason"),
    [(["--columns"], 1, "begin anew"), ([], 4 * 3, "closed at epoch 3"), ([], 4 * 3 + 2, "closing at epoch 3")],
)
def test_remove_is_refused_where_it_would_do_harm(
    machine: Company, arguments: list[str], gate: int, reason: str
) -> None:
    assert machine.shell.call("schema", "apply").code == 0
    machine.ask(f"SELECT setval('tripstore.gate', {gate})")
    refused = machine.shell.call("schema", "remove", "--yes", *arguments)

    assert refused.code != 0
    assert reason in refused.stderr
    assert machine.ask(CAPTURED) != []


def test_remove_without_a_legacy_store_says_so(shell: Shell) -> None:
    shell.call("init")
    refused = shell.call("schema", "remove", "--yes")
    assert refused.code == 2
    assert "legacy" in refused.stderr


SHOP = """
CREATE TABLE customers (id int PRIMARY KEY, uuid uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(), name text);
CREATE TABLE orders (id bigserial PRIMARY KEY, customer_id int NOT NULL REFERENCES customers (id), total int);
"""
SHOP_LAYOUT = shop_layout("trips")
#: What an operator grants who forgets the sequence.
CLERK = """
DO $$ BEGIN
    CREATE ROLE shop_clerk LOGIN PASSWORD 'secret';
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;
END $$;
GRANT USAGE ON SCHEMA tripstore TO shop_clerk;
GRANT ALL ON ALL TABLES IN SCHEMA tripstore, public TO shop_clerk;
GRANT ALL ON ALL SEQUENCES IN SCHEMA tripstore TO shop_clerk;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tripstore TO shop_clerk;
"""


def test_plan_and_doctor_as_the_role_that_may_not_draw_print_the_grant_and_it_helps(machine: Company) -> None:
    """Both are run by that role itself; a superuser's session sees every right."""
    machine.ask(SHOP)
    machine.configure(SHOP_LAYOUT)
    applied = machine.shell.call("schema", "apply")
    assert applied.code == 0, applied.stderr
    machine.ask(CLERK)
    owner, machine.url = machine.url, machine.url.replace(machine.login, "shop_clerk:secret")
    machine.configure(SHOP_LAYOUT)
    wanted = "shop_clerk may not draw from it"

    planned, examined = machine.shell.call("schema", "plan"), machine.shell.call("doctor")
    assert wanted in " ".join(planned.stdout.split()), planned.stdout + planned.stderr
    assert wanted in " ".join(examined.stdout.split()), examined.stdout + examined.stderr
    assert examined.code == 1
    (grant,) = re.findall(r"GRANT [^;]+", " ".join(planned.stdout.split()))
    assert grant in " ".join(examined.stdout.split())

    machine.url = owner
    machine.ask(grant)
    for ran in (machine.shell.call("schema", "plan"), machine.shell.call("doctor")):
        assert wanted not in " ".join(ran.stdout.split())
        assert "ON SEQUENCE" not in ran.stdout
