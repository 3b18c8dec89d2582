"""One company for many tests of what a hand-over does to Postgres: between two tests it is given back as it was."""

from __future__ import annotations

from tests.legacy_backends import Company
from tripstore.backends.postgres.capture.functions.gate import GateReading, GateState

#: Rows of the company's stay: no test asks for those of another one.
_FRESH = """
SELECT setval('tripstore.gate', 1);
DELETE FROM tripstore.queue; DELETE FROM tripstore.log; DELETE FROM tripstore.cell;
DELETE FROM tripstore.authority_history; DELETE FROM tripstore.authority;
INSERT INTO tripstore.authority (epoch, backend, switch_id, who) VALUES (0, 'postgres', '', 'test');
INSERT INTO tripstore.authority_history SELECT * FROM tripstore.authority
"""


def refreshed(company: Company) -> Company:
    """Postgres is the authority, at epoch 0; nothing was ever changed."""
    company.legacy.sql(_FRESH)
    assert gate(company) == GateReading(0, GateState.OPEN)
    return company


def gate(company: Company) -> GateReading:
    """What the gate says."""
    value = company.legacy.sql("SELECT pg_sequence_last_value('tripstore.gate'::regclass)")[0][0]
    return GateReading(value // 4, GateState(value % 4))
