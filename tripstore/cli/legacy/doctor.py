"""The doctor's look at the legacy store: does the layout fit the tables, does capture miss nothing, what is slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter
from rich.text import Text

from schemaless_core.definitions.index import IndexDefinition
from tripstore.backends.postgres.capture.partitions.look import look_at_partitions
from tripstore.backends.postgres.capture.state import find_number
from tripstore.backends.postgres.capture.timeline import ServerIdentity
from tripstore.backends.postgres.checks.given_keys import check_given_keys
from tripstore.backends.postgres.checks.layout import compare
from tripstore.backends.postgres.checks.row_keys import check_all_row_keys, check_row_keys
from tripstore.backends.postgres.errors import LegacyUnavailable, SessionRefused
from tripstore.backends.postgres.handover.examination import examine_handover
from tripstore.backends.postgres.layout.catalogue import LiveCatalogue
from tripstore.backends.postgres.layout.complaints import Complaint, error, note
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.schema_steps import examine_capture, examine_left
from tripstore.backends.postgres.wire.connections import connected
from tripstore.backends.postgres.wire.translation import HIDDEN, SEE_ALL
from tripstore.cli.legacy.advice import advice_notes
from tripstore.cli.legacy.schema import ComplaintDocument, complaint_document, complaint_rows
from tripstore.cli.tables import show, table
from tripstore.config import LegacyConfig
from tripstore.migration.backfill.left_walks import JobWalks, walk_complaints
from tripstore.migration.cutover.breaches import MEND_BREACH, unanswered
from tripstore.migration.cutover.facts import BreachFacts, JobFacts, Unknown
from tripstore.migration.losses.unseen import examine_server


class LegacyExamined(msgspec.Struct, frozen=True):
    """The part of the doctor's JSON document that is about the legacy store."""

    postgres: str
    is_fine: bool
    complaints: list[ComplaintDocument]


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found."""

    postgres: str
    complaints: Sequence[Complaint]
    #: Whether the layout describes the tables that there are; those of a server that did not answer may be so.
    is_described: bool

    @property
    def troubles(self) -> int:
        return sum(complaint.is_error for complaint in self.complaints)

    def document(self) -> LegacyExamined:
        return LegacyExamined(self.postgres, self.troubles == 0, [complaint_document(each) for each in self.complaints])


def examine(
    config: LegacyConfig,
    indexes: Sequence[IndexDefinition],
    find_diff: Callable[[], JobFacts | None | Unknown],
    known_postgres: Callable[[], ServerIdentity | None] = lambda: None,
    find_walks: Callable[[], JobWalks | None] = lambda: None,
    *,
    is_quick: bool = False,
) -> Examined:
    """Look; a server that does not answer is a finding. `find_diff`: what the diffs until now amount to.

    `known_postgres`: which one changes are carried from. `find_walks`: what walks by blocks jobs have.
    """
    is_described = True
    try:
        with connected(config.postgres.text, "doctor", statement_timeout="0") as connection:
            live = LiveCatalogue.of_layout(connection, config.layout)
            complaints = compare(config.layout, live)
            is_described = not any(complaint.is_error for complaint in complaints)
            if is_described:
                complaints += _row_keys(connection, config.layout, live, is_quick=is_quick)
            fits = not any(complaint.is_error for complaint in complaints)
            # What breaks the layout may have broken capture: DROP COLUMN … CASCADE takes triggers along.
            if fits or find_number(connection, config.layout) is not None:
                limits = config.limits
                complaints += examine_capture(
                    connection, config.layout, may_truncate=limits.may_truncate, warns=limits.warns
                )
                complaints += examine_left(connection, config.layout)
                complaints += walk_complaints(connection, find_walks())
                complaints += _breaches(connection, find_diff)
            else:
                complaints.append(note("capture", "is not installed by this layout", "Mend the errors first."))
            if not any(complaint.is_error for complaint in complaints):
                complaints += examine_handover(connection, config.layout.datastore)
                complaints += examine_server(connection, known_postgres())
            if fits and find_number(connection, config.layout) is not None:
                complaints += check_given_keys(connection, config.layout, live)
            if fits:
                complaints += advice_notes(connection, config.layout, indexes)
    except psycopg2.Error as refused:
        hint = (
            SEE_ALL if HIDDEN in str(refused) else "Give the role of legacy.postgres the rights of the tables' owner."
        )
        complaints = [error("server", f"could not be examined: {str(refused).strip().splitlines()[0]}", hint)]
    except (LegacyUnavailable, SessionRefused) as unfit:
        hint = unfit.hint or "Start the server, or mend legacy.postgres."
        complaints = [error("server", unfit.message.rstrip("."), hint)]
    return Examined(str(config.postgres), complaints, is_described)


def _row_keys(connection: Connection, layout: Layout, live: LiveCatalogue, *, is_quick: bool) -> list[Complaint]:
    """Child rows with another key than their parent's. What was not compared is said."""
    sampled = list(check_row_keys(connection, layout, live))
    if not is_quick:
        # A sample may meet the row that the look at all of them counts.
        notes = [complaint for complaint in sampled if not complaint.is_error]
        return [*notes, *check_all_row_keys(connection, layout)]
    if not layout.children:
        return []
    hint = "`tripstore ids status --verify`."
    return [*sampled, note("row keys", "only a sample of the child rows was looked at", hint)]


def _breaches(connection: Connection, find_diff: Callable[[], JobFacts | None | Unknown]) -> Iterator[Complaint]:
    """What happened to partitions that no diff has answered for yet."""
    breach = look_at_partitions(connection)
    if breach is not None and (said := unanswered(BreachFacts(*breach), find_diff())) is not None:
        yield error("capture", said, MEND_BREACH)


def print_examined(examined: Examined) -> None:
    show(Text(f"legacy store, {examined.postgres}", style="bold"))
    if not examined.complaints:
        show(table(("", ""), [(Text("fine", style="green"), "layout and capture")]), Text())
        return
    documents = examined.document().complaints
    show(table(("", "", ""), [row for complaint in documents for row in complaint_rows(complaint)]), Text())
