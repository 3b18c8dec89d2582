"""A role that may not draw from the sequence of a column's numbers: plan, doctor and gates print the GRANT."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from urllib.parse import urlsplit

import psycopg2
import pytest

from schemaless_core.errors import InvalidServer
from tests.discussions import comment_by_sql, discussion, number, post, talk_layout
from tests.facades import facts_of
from tests.layouts import company_database, shop_layout
from tests.stores import Stores
from tripstore.backends.postgres.layout.complaints import Complaint
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.numbers.numbers import DRAWN_MAX
from tripstore.backends.postgres.numbers.sequences import read_barred
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.cli.legacy.advice import AdviceDocument, advice_notes, advised
from tripstore.config import load_config, parse_postgres_url
from tripstore.facade import number_ranges
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.look import Looker
from tripstore.migration.cutover.plan import Direction, plan
from tripstore.phase import Phase
from tripstore.store import TripStore
from tripstore.wiring import build

SHOP = """
CREATE TABLE customers (id int PRIMARY KEY, uuid uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(), name text);
CREATE TABLE orders (
    id bigserial PRIMARY KEY, customer_id int NOT NULL REFERENCES customers (id), customer_uuid uuid NOT NULL, total int
);
CREATE INDEX ON orders (customer_uuid, id);
"""
#: Roles are the server's, and other tests have theirs.
ROLE = """
DO $$ BEGIN
    CREATE ROLE clerk LOGIN PASSWORD 'secret';
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;
END $$;
"""
SHOP += ROLE + "GRANT SELECT, INSERT, UPDATE ON customers, orders TO clerk;"
LAYOUT = load_layout(shop_layout("shop"))


def as_clerk(url: str) -> str:
    place = urlsplit(url)
    return place._replace(netloc=f"clerk:secret@{place.hostname}:{place.port}").geturl()


def said(url: str) -> tuple[list[AdviceDocument], list[Complaint]]:
    """What `schema plan` advises, and the errors among what `doctor` says."""
    with connected(url, "test") as connection:
        errors = [each for each in advice_notes(connection, LAYOUT, ()) if each.is_error]
        return advised(connection, LAYOUT, ()), errors


def test_a_role_without_the_right_is_told_the_grant_and_the_grant_helps(servers: LocalServers) -> None:
    url = company_database(servers, "machine", SHOP)
    clerk = as_clerk(url)
    assert said(url) == ([], []), "the control: the owner may draw"

    (planned,), (examined,) = said(clerk)
    assert planned.statements == ['GRANT USAGE, SELECT ON SEQUENCE "public"."orders_id_seq" TO clerk']
    assert examined.reason == planned.reason == "clerk may not draw from it: a row that is appended gets no number"
    assert examined.hint == f"{planned.statements[0]};"

    with connected(url, "test") as connection:
        rows(connection, planned.statements[0])
    assert said(clerk) == ([], [])


@pytest.mark.parametrize(
    ("granted", "may_draw"),
    [("USAGE", True), ("UPDATE, SELECT", True), ("UPDATE", False), ("SELECT", False), ("USAGE, SELECT", True)],
)
def test_what_counts_as_enough_is_what_the_calls_ask_for(servers: LocalServers, granted: str, may_draw: bool) -> None:
    """The control is Postgres: the two calls are made, by that role."""
    url = company_database(servers, "machine", SHOP)
    with connected(url, "test") as connection:
        rows(connection, f"GRANT {granted} ON SEQUENCE public.orders_id_seq TO clerk")

    with connected(as_clerk(url), "test") as connection:
        assert (read_barred(lambda sql, values: rows(connection, sql, values), LAYOUT) == []) is may_draw
        try:
            ((number,),) = rows(connection, "SELECT nextval('public.orders_id_seq')")
            ((last,),) = rows(connection, "SELECT pg_sequence_last_value('public.orders_id_seq'::regclass)")
            has_drawn = last == number
        except psycopg2.errors.InsufficientPrivilege:
            has_drawn = False
    assert has_drawn is may_draw


def test_a_gate_is_shut_in_both_directions_and_prints_the_grant(servers: LocalServers, stores: Stores) -> None:
    """Switched without the right, each append on live would be refused when the range is used up."""
    with discussion(servers, stores) as talk:
        talk.phase(Phase.SHADOW)
        talk.legacy.sql(ROLE + TELLER)
        config = talk.facade.config
        assert config.legacy is not None
        own = replace(config.legacy, postgres=parse_postgres_url("legacy.postgres", as_clerk(talk.legacy.url)))
        duo = talk.duo
        looker = Looker(own, duo.legacy, talk.facade.store, duo.ports.control, talk.facade.flags, config.cutover)

        def shut() -> list[tuple[str, str]]:
            facts = replace(facts_of(talk), capture=looker.capture())
            verdicts = [plan(way, facts, config.cutover).refusals for way in Direction]
            forward, back = [[(each.said, each.hint) for each in found if each.name == "capture"] for found in verdicts]
            assert forward == back
            return forward

        ((said, hint),) = shut()
        assert said.count("clerk may not draw from it") == 2
        talk.legacy.sql(hint.partition(": ")[2])
        assert shut() == []


def test_with_the_grants_that_are_printed_a_service_does_all_of_it(
    servers: LocalServers, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A least role appends, puts far ahead of the sequence, and goes on. To jump it must own it: that is said, too."""
    monkeypatch.setattr(number_ranges, "COUNT_MIN", 1)  # each append draws
    with discussion(servers, stores, altered=ROLE + KEEPER) as talk:
        talk.legacy.sql(TELLER)
        talk.phase(Phase.LIVE)
        row_key, other = post(talk), post(talk)
        legacy = {**talk.document["legacy"], "postgres": as_clerk(talk.legacy.url)}
        with closing(TripStore(build(load_config({**talk.document, "legacy": legacy})))) as service:
            with pytest.raises(InvalidServer, match="comments_id_seq"):  # the control
                service.append_cell(row_key, "COMMENT", {"text": "a"})
            with connected(as_clerk(talk.legacy.url), "test") as connection:
                printed = [each.statements[0] for each in advised(connection, talk_layout(), ())]
            talk.legacy.sql("; ".join(printed))
            far = number(service.append_cell(row_key, "COMMENT", {"text": "a"}).ref_key) + 5 * DRAWN_MAX
            ref_key = talk_layout().columns["COMMENT"].compose(far, 0)
            service.put_cell(row_key, "COMMENT", ref_key, {"text": "far ahead"})
            service.append_cell(other, "COMMENT", {"text": "is Postgres silent? it is not"})

            assert service.facade.duo is not None
            numbers = service.facade.duo.legacy.numbers
            sequence = numbers.find("COMMENT", numbers.deadline())
            assert sequence is not None
            with pytest.raises(InvalidServer, match="must be owner of sequence") as refused:
                numbers.pass_number(sequence, far, numbers.deadline())
            assert refused.value.hint == "GRANT keeper TO clerk;"
            talk.legacy.sql(refused.value.hint)
            assert numbers.pass_number(sequence, far, numbers.deadline())
        talk.carry()
        talk.phase(Phase.SHADOW)
        assert comment_by_sql(talk, row_key) > far


KEEPER = """
DO $$ BEGIN
    CREATE ROLE keeper;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    REVOKE keeper FROM clerk;
END $$;
ALTER TABLE comments OWNER TO keeper;
"""
TELLER = """
GRANT USAGE ON SCHEMA tripstore TO clerk;
GRANT ALL ON ALL TABLES IN SCHEMA tripstore, public TO clerk;
GRANT ALL ON ALL SEQUENCES IN SCHEMA tripstore TO clerk;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tripstore TO clerk
"""
