"""What the doctor says of gate, authority row and rights."""

from __future__ import annotations

from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from tests.legacy import Legacy, captured, legacy_server
from tripstore.backends.postgres.capture.functions.gate import GateReading, GateState, set_gate
from tripstore.backends.postgres.handover.examination import examine_handover
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.servers import LocalServers


@pytest.fixture
def company(servers: LocalServers) -> Legacy:
    return captured(legacy_server(servers, "machine"))


def said(company: Legacy, url: str = "") -> list[str]:
    with connected(url or company.url, "test") as connection:
        return [f"{each.where}: {each.reason}" for each in examine_handover(connection, "trips")]


def test_after_apply_nothing_is_wrong(company: Legacy) -> None:
    assert said(company) == []


def test_a_gate_that_is_not_what_the_row_says_is_told(company: Legacy) -> None:
    with company.ours() as connection:
        set_gate(connection, GateReading(0, GateState.CLOSED))
    (found,) = said(company)
    assert found == "gate: is closed at epoch 0, the authority row says postgres at 0"


def test_changes_that_are_parked_are_told(company: Legacy) -> None:
    company.trip()
    company.trip()
    assert said(company) == [], "what waits to be carried is no trouble"
    company.sql("UPDATE tripstore.queue SET parked = 'conflict', because = 'another body is there'")
    (found,) = said(company)
    assert found.endswith("changes are parked: Schemaless does not take them as they are")


def test_a_handover_that_goes_on_is_told(company: Legacy) -> None:
    company.sql("UPDATE tripstore.authority SET epoch = 1, target = 'schemaless'")
    (found,) = said(company)
    assert found.startswith("authority: is being handed over to schemaless")


def test_a_login_that_the_shut_gate_would_refuse_is_told(company: Legacy) -> None:
    role = f"stranger_{uuid4().hex[:8]}"
    company.sql(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    company.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA tripstore TO {role}")
    place = urlsplit(company.url)
    url = place._replace(netloc=f"{role}:secret@{place.hostname}:{place.port}").geturl()
    found, powerless, blind = said(company, url)
    assert found.startswith(f"role: {role} is no member of")
    assert powerless.startswith(f"role: {role} may not end sessions of others")
    assert blind.startswith(f"role: {role} may not see what sessions of other roles do")
    company.sql(f"GRANT pg_signal_backend TO {role}")
    assert said(company, url) == [found, blind]


def test_a_session_of_a_version_that_knows_no_layout_is_told_while_it_is_connected(company: Legacy) -> None:
    company.sql("UPDATE tripstore.authority SET layout = 'cf6c'")
    assert said(company) == []
    with connected(company.url, "test") as older:
        rows(older, "SET application_name = 'tripstore'")
        (found,) = said(company)
    assert found.startswith("layout: 1 sessions from 127.0.0.1 go by an unknown layout (one is pid ")
