"""The steps on the example company, while its services work as they always did."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.companies import Companies, Company
from tests.integration.id_company import FLAVOURS, FULL_SPEED, apply, companies_on, postgres, session, strays
from tripstore.backends.postgres.ids.steps import id_steps
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.demo.legacy import LAYOUT
from tripstore.demo.legacy.workload import Workload
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers


@pytest.fixture(scope="module", params=FLAVOURS)
def companies(request: pytest.FixtureRequest, servers: LocalServers) -> Companies:
    flavour: Flavour = request.param
    return companies_on(postgres(servers, flavour))


@pytest.fixture
def company(companies: Companies) -> Iterator[Company]:
    yield companies.seeded()
    companies.drop()


@pytest.fixture
def ours(company: Company) -> Iterator[Connection]:
    with session(company.url) as opened:
        yield opened


def layout() -> Layout:
    return load_layout(LAYOUT)


def test_the_steps_are_done_while_all_services_work(company: Company, ours: Connection) -> None:
    with Workload(company.url).running() as tally:
        apply(ours, id_steps(layout(), pace=FULL_SPEED))

    assert tally.actions > 0
    assert tally.failures == {}
    assert all(step.is_done(ours) for step in id_steps(layout()))
    assert strays(ours, layout()) == []


def test_the_past_keeps_its_times(company: Company, ours: Connection) -> None:
    """The company's triggers, which set `updated_at`, do not hear of the back-fill."""
    before = company.query("SELECT id, updated_at FROM trips ORDER BY id")

    apply(ours, id_steps(layout()))

    assert company.query("SELECT id, updated_at FROM trips ORDER BY id") == before
