"""`tripstore audit statements`: what becomes of a company's statements in each phase, before anything is installed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
import yaml

from schemaless_core.config import resolve_references
from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.errors import InvalidRequest
from tripstore.audit.preflight.asked import Asked
from tripstore.audit.preflight.catalogue import read_catalogue
from tripstore.audit.preflight.company import Company
from tripstore.audit.preflight.files import Form, read_statements
from tripstore.audit.preflight.preflight import Preflight
from tripstore.audit.preflight.statistics import SOURCE, counted_statements
from tripstore.audit.preflight.verdicts import StatementVerdict
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.connections import connected
from tripstore.cli.audit.documents import PreflightDocument, preflight_document
from tripstore.cli.audit.screens import print_preflight
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.init.propose import datastore_of, proposed_layout
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.progress import waiting
from tripstore.config import TripstoreConfig, load_config, parse_postgres_url
from tripstore.phase import Phase

_HEAVY = (StatementVerdict.UNSERVED, StatementVerdict.BREAKS, StatementVerdict.REFUSED)
_LAYOUTS = "Name a layout, --layout layout.yaml, tables with --from URL --table trips, or -c tripstore.yaml."


@click.command("statements", cls=Command)
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--from", "postgres", metavar="URL", help="The company's Postgres.  [default: that of the configuration]")
@click.option(
    "--layout",
    "layout_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The layout, or a proposal of `init --from`.  [default: that of the configuration]",
)
@click.option(
    "--table", "tables", multiple=True, metavar="[SCHEMA.]TABLE", help="In place of a layout, with --from; repeatable."
)
@click.option(
    "--format", "form", type=click.Choice([form.value for form in Form]), help="What FILE is.  [default: guessed]"
)
@click.option(
    "--phase",
    "phases",
    multiple=True,
    type=click.Choice([phase.value for phase in Phase]),
    help="Let the exit code speak of this phase; repeatable.  [default: all]",
)
@click.option("--offline", is_flag=True, help="Ask no database: views, triggers, functions and cascades are not known.")
@click.option("--summary", is_flag=True, help="Print counts, not every statement.")
@json_option
@pass_settings
def statements(
    settings: Settings,
    file: Path | None,
    postgres: str | None,
    layout_file: Path | None,
    tables: tuple[str, ...],
    form: str | None,
    phases: tuple[str, ...],
    offline: bool,
    summary: bool,
    as_json: bool,
) -> Exit:
    """Say of each statement in FILE whether it is refused, slowed or unserved in each phase. Nothing is run.

    FILE is SQL with semicolons, a log of Postgres (stderr, csvlog, jsonlog, with log_statement), or a CSV of
    pg_stat_statements; - is stdin. Without FILE, the database's pg_stat_statements is asked. Exit code 1 when a
    statement is refused, unserved, or breaks capture; else 3 when something is unclear, or no database was asked.

    \b
    Example:
      tripstore audit statements week.sql --from 'postgresql://app:${PG_PASSWORD}@db9/rides' --table trips
      tripstore audit statements postgresql.csv -c tripstore.yaml --phase off --phase dualwrite --phase shadow
      tripstore audit statements --summary
    """
    config = load_config(settings.config) if settings.config.exists() else None
    url = None if offline else _url(settings, config, postgres)
    if file is None and url is None:
        raise InvalidRequest("There is no file of statements, and no database to ask.", hint="Give FILE or --from URL.")
    layout = _layout(settings, config, postgres, layout_file, tables)
    indexes = config.core.indexes if config is not None else ()
    with waiting("reading statements"):
        document = _document(file, form, url, layout, config, indexes, [Phase(phase) for phase in phases])
    if as_json:
        print_document(document)
    else:
        print_preflight(document, is_short=summary)
    return _exit(document)


def _url(settings: Settings, config: TripstoreConfig | None, postgres: str | None) -> str | None:
    if postgres is not None:
        return parse_postgres_url("--from", resolve_references(postgres, settings.config.parent)).text
    return config.legacy.postgres.text if config is not None and config.legacy is not None else None


def _layout(
    settings: Settings,
    config: TripstoreConfig | None,
    postgres: str | None,
    layout_file: Path | None,
    tables: Sequence[str],
) -> Layout:
    if layout_file is not None and tables:
        raise click.UsageError("--layout and --table exclude each other.")
    if layout_file is not None:
        return load_layout(layout_file)
    if tables:
        if postgres is None:
            raise InvalidRequest("Tables alone say nothing of keys and columns.", hint="Say --from URL beside --table.")
        datastore = datastore_of(settings.config) or "trips"
        return load_layout(yaml.safe_load(proposed_layout(postgres, tables, datastore, settings.config.parent).text))
    if config is None or config.legacy is None:
        raise InvalidRequest("No layout is named.", hint=_LAYOUTS)
    return config.legacy.layout


def _document(
    file: Path | None,
    form: str | None,
    url: str | None,
    layout: Layout,
    config: TripstoreConfig | None,
    indexes: Sequence[IndexDefinition],
    phases: Sequence[Phase],
) -> PreflightDocument:
    limits = config.legacy.limits if config is not None and config.legacy is not None else None
    found, forgotten, asked = None, 0, _read(file, form)
    if url is not None:
        with connected(url, "audit") as connection:
            found = read_catalogue(connection, layout)
            if file is None:
                counted = counted_statements(connection)
                asked, forgotten = list(counted.asked), counted.forgotten
    may_truncate, warns = (limits.may_truncate, limits.warns) if limits is not None else (False, False)
    preflight = Preflight(Company(layout, found, may_truncate, warns), indexes)
    source = SOURCE if file is None else str(file)
    return preflight_document(
        source, preflight.findings(asked), phases, is_asked=found is not None, forgotten=forgotten
    )


def _read(file: Path | None, form: str | None) -> list[Asked]:
    if file is None:
        return []
    is_stdin = str(file) == "-"
    data = sys.stdin.buffer.read() if is_stdin else file.read_bytes()
    name = "stdin" if is_stdin else file.name
    # A log has what clients sent, in whatever encoding: what is no UTF-8 stays apart, and does not end the audit.
    return read_statements(data.decode("utf-8", "backslashreplace"), name, Form(form) if form else None)


def _exit(document: PreflightDocument) -> Exit:
    verdicts: Counter[str] = Counter()
    for counts in document.phases:
        if counts.phase in document.asked_phases:
            verdicts.update(counts.verdicts)
    if any(verdicts[verdict] for verdict in _HEAVY):
        return Exit.FAILED
    is_known = document.is_asked and not document.forgotten and not verdicts[StatementVerdict.UNCLEAR]
    return Exit.FINE if is_known else Exit.NOT_VERIFIED
