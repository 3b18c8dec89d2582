"""A proposal held against the live tables: a table of child rows that does not fit is not proposed, and says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import yaml
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.checks.layout import check_layout
from tripstore.backends.postgres.layout.complaints import Complaint
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.proposals.proposal import Proposal, ProposedColumn
from tripstore.backends.postgres.proposals.text import render


def fitted(connection: Connection, proposal: Proposal) -> tuple[Proposal, list[Complaint]]:
    """The proposal without children that do not fit, and the errors that are left: those of the table of the rows."""
    errors = [each for each in check_layout(connection, load_layout(yaml.safe_load(render(proposal)))) if each.is_error]
    columns = tuple(_without(column, errors) for column in proposal.columns)
    if columns == proposal.columns:
        return proposal, errors
    return fitted(connection, replace(proposal, columns=columns))


def _without(column: ProposedColumn, errors: Sequence[Complaint]) -> ProposedColumn:
    of = [str(each).rstrip(".") for each in errors if _is_about(each, column)]
    if column.parent is None or column.ref_key is None or not of:
        return column
    return replace(column, ref_key=None, remarks=(*column.remarks, *of))


def _is_about(complaint: Complaint, column: ProposedColumn) -> bool:
    table = str(column.table)
    return complaint.where == table or complaint.where.startswith((f"{table}.", f"{table} ", f"{table},"))
