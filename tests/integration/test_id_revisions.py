"""The steps as revisions of the company's own alembic: they lead where the steps lead, and back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import psycopg2
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy.exc import SAWarning

from schemaless_core.errors import InvalidRequest
from tests.companies import Companies, Company
from tests.integration import id_company
from tests.integration.id_company import (
    FLAVOURS,
    FULL_SPEED,
    ONE_FLAVOUR,
    OldCode,
    apply,
    companies_on,
    company_session,
    killed,
    one,
    postgres,
    session,
    small_company,
    strays,
    unfilled,
)
from tests.scale import SCALE
from tripstore.backends.postgres.capture import remove
from tripstore.backends.postgres.errors import LegacyRefused
from tripstore.backends.postgres.ids.id_step import IdStep
from tripstore.backends.postgres.ids.revisions import id_revisions
from tripstore.backends.postgres.ids.steps import id_steps
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.schema_steps import schema_steps
from tripstore.backends.postgres.wire.connections import rows
from tripstore.demo.legacy import LAYOUT
from tripstore.demo.legacy.actions import ACTIONS
from tripstore.demo.legacy.models import Base
from tripstore.demo.legacy.schema import OWN, PARTITION, CompanySchema
from tripstore.demo.legacy.turns import ServiceHabits
from tripstore.demo.legacy.urls import sqlalchemy_url
from tripstore.demo.legacy.workload import Workload
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "ids-to-uuids.md"

#: All that a step could leave or change. Tables and functions of others are the same before and after.
CATALOGUE = {
    "columns": """
        SELECT attrelid::regclass::text, attname::text, format_type(atttypid, atttypmod), attnotnull,
            col_description(attrelid, attnum)
        FROM pg_attribute WHERE attrelid = ANY (%s) AND attnum > 0 AND NOT attisdropped ORDER BY 1, 2""",
    "constraints": """
        SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid), convalidated
        FROM pg_constraint WHERE conrelid = ANY (%s) ORDER BY 1, 2""",
    "indexes": """
        SELECT indrelid::regclass::text, pg_get_indexdef(indexrelid), indisvalid
        FROM pg_index WHERE indrelid = ANY (%s) ORDER BY 1, 2""",
    "triggers": """
        SELECT tgrelid::regclass::text, pg_get_triggerdef(oid), tgenabled::text
        FROM pg_trigger WHERE tgrelid = ANY (%s) AND NOT tgisinternal ORDER BY 1, 2""",
    "functions": """
        SELECT oid::regprocedure::text, pg_get_functiondef(oid) FROM pg_proc
        WHERE %s IS NOT NULL AND pronamespace::regnamespace::text IN ('public', 'billing', 'tripstore') ORDER BY 1""",
}
TABLES = """
SELECT array_agg(oid) FROM pg_class WHERE relkind IN ('r', 'p') AND relname <> 'alembic_version'
AND relnamespace::regnamespace::text IN ('public', 'billing')"""

#: Where an upgrade is killed: within a revision, and between one that is done and alembic's note of it.
POINTS = [("ids.batch_filled", 3), ("legacy.step_applied", 8)]
#: In CI each on one version of Postgres.
KILLS = [
    pytest.param(flavour, *point, id=f"{flavour}-{point[0]}")
    for number, point in enumerate(POINTS)
    for flavour in (FLAVOURS if SCALE >= 1 else [FLAVOURS[number]])
]


def layout() -> Layout:
    return load_layout(LAYOUT)


REVISIONS = [revision.id for revision in id_revisions(layout(), OWN)]


@pytest.fixture(scope="module", params=FLAVOURS)
def companies(request: pytest.FixtureRequest, servers: LocalServers) -> Companies:
    flavour: Flavour = request.param
    return companies_on(postgres(servers, flavour))


@pytest.fixture(scope="module")
def stepped(companies: Companies) -> dict[str, list[tuple[object, ...]]]:
    """The catalogue as the steps leave it."""
    company = companies.seeded()
    with session(company.url) as ours:
        apply(ours, id_steps(layout(), pace=FULL_SPEED))
    return catalogue(company.url)


@pytest.fixture
def company(companies: Companies) -> Iterator[Company]:
    yield companies.seeded()
    companies.drop()


@pytest.fixture(params=ONE_FLAVOUR)
def url(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[str]:
    """The small company, whose tables are partitioned twice and in two schemas."""
    flavour: Flavour = request.param
    with small_company(postgres(servers, flavour), 20) as made:
        yield made


def catalogue(url: str) -> dict[str, list[tuple[object, ...]]]:
    with session(url) as connection:
        tables = one(connection, TABLES)
        return {what: rows(connection, question, (tables,)) for what, question in CATALOGUE.items()}


def work(workload: Workload, number: int, share: int = 1) -> None:
    """Do one of everything that services do, or each so many-th."""
    for name in list(ACTIONS)[number % share :: share]:
        workload.perform(name, Random(number))


# --- The example's ----------------------------------------------------------------------------------------------


def test_every_service_goes_on_after_every_revision(
    company: Company, stepped: dict[str, list[tuple[object, ...]]]
) -> None:
    """In CI both versions of Postgres together see every action after every revision."""
    first, share = (0, 1) if SCALE >= 1 else (int(company.server.name.endswith(FLAVOURS[1])), 2)
    before = catalogue(company.url)
    schema = CompanySchema(company.url)
    with Workload(company.url, habits=ServiceHabits(rollback_ratio=0)) as workload:
        for number, revision in enumerate(REVISIONS, first):
            schema.upgrade(revision)
            assert schema.revision() == revision
            work(workload, number, share)
        assert catalogue(company.url) == stepped
        assert schema.differences() == []
        with session(company.url) as ours:
            assert strays(ours, layout()) == []
            assert all(step.is_done(ours) for step in id_steps(layout())), "`schema apply` has nothing more to do"

        schema.downgrade(OWN)
        assert catalogue(company.url) == before
        work(workload, len(REVISIONS))


def test_autogenerate_leaves_alone_what_we_added_when_it_is_filtered_as_the_page_says(company: Company) -> None:
    with session(company.url) as ours:
        apply(ours, schema_steps(layout()))
    [found] = re.findall(r"```py\n(.*?)context\.configure", PAGE.read_text(), re.DOTALL)
    page: dict[str, Any] = {}
    exec(found, page)
    filters = {name: page[name] for name in ("include_object", "include_name")}

    assert generated(company, **filters) == set()
    # Controls: it would drop them, and our tables.
    dropped = generated(company, include_name=page["include_name"])
    assert {("remove_column", "trip_uuid"), ("remove_column", "base_version")} <= dropped
    assert ("remove_index", "tripstore_trips_trip_uuid") in dropped
    with pytest.warns(SAWarning, match="xid8"):
        assert ("remove_table", "queue") in generated(company, include_object=page["include_object"])


def generated(company: Company, **filters: Any) -> set[tuple[str, str]]:
    """What autogenerate would write, but for the partitions of the company's."""
    with sa.create_engine(sqlalchemy_url(company.url)).connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_schemas": True, **filters})
        differences = [each for each in compare_metadata(context, Base.metadata) if isinstance(each, tuple)]
    # The last of a tuple is the column, index or table that is concerned.
    return {(each[0], each[-1].name) for each in differences if PARTITION.fullmatch(each[-1].name) is None}


@pytest.mark.parametrize(("companies", "point", "after"), KILLS, indirect=["companies"])
def test_an_upgrade_that_was_killed_is_ended_by_the_next(
    company: Company, stepped: dict[str, list[tuple[object, ...]]], failpoints: Path, point: str, after: int
) -> None:
    killed(failpoints, point, after, upgrade, company.url)
    schema = CompanySchema(company.url)
    assert schema.revision() in REVISIONS[:-1], "what was done is noted, up to the last revision but one"
    with Workload(company.url, habits=ServiceHabits(rollback_ratio=0)) as workload:
        work(workload, 1)

    schema.upgrade("head")

    assert schema.revision() == REVISIONS[-1]
    assert catalogue(company.url) == stepped
    with session(company.url) as ours:
        assert strays(ours, layout()) == []


def upgrade(url: str) -> None:
    """What the process does that is killed."""
    CompanySchema(url).upgrade("head")


# --- Those of any layout, in an environment as alembic makes it ---------------------------------------------------

BEFORE = "5eed0000feed"


@pytest.fixture
def environment(url: str, tmp_path: Path) -> Config:
    """`alembic init`, a revision of the company's own, then ours."""
    folder = tmp_path / "migrations"
    command.init(Config(tmp_path / "alembic.ini"), str(folder))
    config = Config()  # without the file, whose loggers would replace those of the tests
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "os")
    config.set_main_option("sqlalchemy.url", sqlalchemy_url(url).render_as_string(hide_password=False))
    command.revision(config, "the company's own", rev_id=BEFORE)
    for revision in id_revisions(id_company.LAYOUT, BEFORE):
        (folder / "versions" / revision.file).write_text(revision.text)
    return config


@pytest.mark.parametrize("url", FLAVOURS, indirect=True)
def test_any_layout_goes_up_and_down(url: str, environment: Config) -> None:
    before = catalogue(url)

    command.upgrade(environment, "head")

    with company_session(url) as company, session(url) as ours:
        OldCode(company).work()
        assert unfilled(company) == 0
        assert all(step.is_done(ours) for step in id_steps(id_company.LAYOUT))
    command.downgrade(environment, BEFORE)
    assert catalogue(url) == before

    command.stamp(environment, "head")  # as if it had been killed before alembic noted anything
    command.downgrade(environment, BEFORE)
    assert catalogue(url) == before
    with company_session(url) as company:
        OldCode(company).work()


def test_no_way_back_leads_through_installed_capture(url: str, environment: Config) -> None:
    command.upgrade(environment, "head")
    with session(url) as ours:
        apply(ours, schema_steps(id_company.LAYOUT))
        captured = catalogue(url)

        with pytest.raises(LegacyRefused, match="Changes of fare_adjustments are captured"):
            command.downgrade(environment, BEFORE)
        assert catalogue(url) == captured

        remove(ours, id_company.LAYOUT)
        command.downgrade(environment, BEFORE)
        assert one(ours, "SELECT version_num FROM public.alembic_version") == BEFORE


def test_what_looks_at_the_database_is_no_script(environment: Config) -> None:
    with pytest.raises(InvalidRequest, match="without --sql"):
        command.upgrade(environment, "head", sql=True)


def test_a_step_is_done_as_the_role_that_alembic_has_taken(url: str) -> None:
    """A role that owns nothing may add no column, whichever login took it."""
    public = ("public", "trips")
    step = IdStep(
        kind="AddColumn",
        table=public,
        uuid="trip_uuid",
        id="id",
        parent=public,
        parent_id="id",
        parent_uuid="trip_uuid",
    )
    role = f"stranger_{url.rpartition('/')[2]}"
    with session(url) as ours, sa.create_engine(sqlalchemy_url(url)).connect() as bind:
        rows(ours, f"CREATE ROLE {role}")
        try:
            bind.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql(f"SET ROLE {role}")
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                step.apply(bind)
            bind.exec_driver_sql("RESET ROLE")
            step.apply(bind)
        finally:
            rows(ours, f"DROP ROLE {role}")
        assert one(ours, "SELECT count(*) FROM pg_attribute WHERE attname = 'trip_uuid'") == 1
