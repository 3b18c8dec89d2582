"""Files of statements: which form one has, and what stands in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum

from schemaless_core.errors import InvalidRequest
from tripstore.audit.preflight.asked import Asked, statements
from tripstore.audit.preflight.logs import csv_statements, is_csvlog, json_statements, stderr_statements
from tripstore.audit.preflight.statistics import csv_statistics, is_statistics

_STDERR = re.compile(r"(?m)^.*\b(?:LOG|ERROR|FATAL|WARNING):\s\s\S")


class Form(StrEnum):
    """The forms of a file of statements."""

    SQL = "sql"  #: Statements with semicolons between them.
    LOG = "log"  #: A log of Postgres, `log_destination = stderr`.
    CSVLOG = "csvlog"
    JSONLOG = "jsonlog"
    STATISTICS = "pg_stat_statements"  #: A CSV of the view, with its head.


_READERS: dict[Form, Callable[[str, str], Iterator[Asked]]] = {
    Form.SQL: statements,
    Form.LOG: stderr_statements,
    Form.CSVLOG: csv_statements,
    Form.JSONLOG: json_statements,
    Form.STATISTICS: csv_statistics,
}


def read_statements(text: str, name: str, form: Form | None = None) -> list[Asked]:
    """Everything that a file says was asked, or raise `InvalidRequest` when it says nothing."""
    chosen = form or guessed(text)
    found = list(_READERS[chosen](text, name))
    if not found:
        raise InvalidRequest(
            f"There is no statement in {name}, read as {chosen}.",
            hint="Say its form with --format. A log needs log_statement or log_min_duration_statement, and English.",
        )
    return found


def guessed(text: str) -> Form:
    """The form that a text seems to have; a script is what is nothing else."""
    if is_statistics(text):
        return Form.STATISTICS
    if is_csvlog(text):
        return Form.CSVLOG
    if text.lstrip().startswith('{"timestamp"'):
        return Form.JSONLOG
    return Form.LOG if _STDERR.match(text) else Form.SQL
