"""`tripstore cutover lost`: what the mirror has and a promoted Postgres lacks; mended, if asked to, on either side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple
from uuid import UUID

import click
import msgspec
from rich.console import RenderableType
from rich.text import Text

from schemaless_core.control.jobs.jobs import Job, StoredFinding
from tripstore.cli.both import both, why_option
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.questions import ask, yes_option
from tripstore.cli.tables import show, table
from tripstore.migration.losses.losses import KIND, LookStart, Losses, Nothing, TakenBack

DEFAULT_LIMIT = 100


class LedgerPage(NamedTuple):
    """Which part of a ledger is shown."""

    limit: int
    #: The last finding of the page before.
    after: int


class LostCell(msgspec.Struct, frozen=True):
    """A version that the mirror has and Postgres does not; open: its row differs between the stores."""

    kind: str
    row_key: UUID | None
    column_name: str | None
    ref_key: int | None
    shard: int
    added_id: int
    #: When the mirror got it, by its server's clock.
    created_at: str | None
    is_open: bool


class LostDocument(msgspec.Struct, frozen=True):
    """The JSON document: a page of the ledger of a look. `job` is null where nothing was to be looked for."""

    job: str | None
    is_complete: bool
    authority: str
    epoch: int
    since: str | None
    cells: int
    not_compared: int
    #: Of the whole ledger, as `open` is.
    listed: int
    open: int
    lost: list[LostCell]
    #: For --after, with --show; null: this page is the last one.
    next_after: int | None
    #: By `--take-back`: how many were put, and why others were not.
    put: int
    refused: list[str]


@click.command("lost", cls=Command)
@click.option("--show", "shown", is_flag=False, flag_value="last", metavar="JOB", help="Print the ledger of a look.")
@click.option("--take-back", is_flag=True, help="Put what was lost into Postgres again, where it has nothing later.")
@click.option("--mend", is_flag=True, help="Make the mirror equal to the authority; the ledger keeps what was lost.")
@click.option("--since", metavar="TIME", help="Of each shard the cells since then. Such a look opens no gate.")
@click.option("--all", "is_all", is_flag=True, help="Look at every cell of the mirror.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=DEFAULT_LIMIT, show_default=True)
@click.option("--after", type=click.IntRange(0), default=0, metavar="ID", help="With --show: the page after this one.")
@why_option
@yes_option
@json_option
@pass_settings
def lost_command(
    settings: Settings,
    shown: str | None,
    take_back: bool,
    mend: bool,
    since: str | None,
    is_all: bool,
    limit: int,
    after: int,
    why: str,
    yes: bool,
    as_json: bool,
) -> Exit:
    """List what the mirror has and a promoted Postgres lacks, cell by cell; mend it in either direction if asked to.

    A Postgres that was promoted may lack changes that it had acknowledged, and that were carried before. After it is
    accepted the gates of a hand-over refuse until this has looked and nothing is open. `lacking`: Postgres has no such
    version. `reused`: it gave the ref key to another body since. Exit code 1 while something is open, 3 when some
    could not be compared. --take-back goes before --mend when both are given.

    \b
    Example:
      tripstore cutover lost
      tripstore cutover lost --take-back --why "riders were charged for these"
      tripstore cutover lost --show --limit 1000 --json
    """
    if shown is not None and (take_back or mend or since or is_all):
        raise click.UsageError("--show prints what a look has found, and looks for nothing.")
    if after and shown is None:
        raise click.UsageError("--after goes on with a ledger that --show prints.")
    order = LookStart(None if since is None else _moment(since), is_all)
    with both(settings) as stores:
        losses, taken = Losses(stores.facade), TakenBack(0, {})
        if shown is not None:
            job = losses.jobs.find(KIND, shown)
        else:
            try:
                job = losses.begin(order)
            except Nothing as nothing:
                return _nothing(nothing, as_json=as_json)
            losses.serve(job)
            if (take_back or mend) and any(losses.listed(job.id, open_only=True)):
                ask("Put lost changes into Postgres?" if take_back else "Mend the mirror?", is_answered=yes)
                if take_back:
                    taken = losses.take_back(job, why)
                if mend:
                    losses.mend_mirror(job, why)
        document = _document(losses, losses.jobs.find(KIND, job.id), taken, LedgerPage(limit, after))
    if as_json:
        print_document(document)
    else:
        show(*_screen(document))
    if document.open or not document.is_complete:
        return Exit.FAILED
    return Exit.NOT_VERIFIED if document.not_compared else Exit.FINE


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(f"--since {text} is no time: write 2026-11-25T12:00:00+00:00.") from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _nothing(nothing: Nothing, *, as_json: bool) -> Exit:
    if as_json:
        print_document(LostDocument(None, True, "", 0, None, 0, 0, 0, 0, [], None, 0, []))
    else:
        click.echo(nothing.message)
    return Exit.FINE


def _document(losses: Losses, job: Job, taken: TakenBack, page: LedgerPage) -> LostDocument:
    counts = losses.jobs.progress(job.id).counts
    found = list(islice(losses.listed(job.id, after=page.after), page.limit + 1))
    return LostDocument(
        job.id,
        job.ended_at is not None,
        str(job.spec["authority"]),
        int(str(job.spec["epoch"])),
        None if job.spec["since"] is None else str(job.spec["since"]),
        counts.get("rows", 0),
        counts.get("not_compared", 0),
        sum(1 for _ in losses.listed(job.id)),
        losses.open(job),
        [_lost(each) for each in found[: page.limit]],
        _next_after(found, page),
        taken.put,
        [f"{key}: {reason}" for key, reason in taken.refused.items()],
    )


def _next_after(found: Sequence[StoredFinding], page: LedgerPage) -> int | None:
    return found[page.limit - 1].id if len(found) > page.limit else None


def _lost(found: StoredFinding) -> LostCell:
    shard, added_id, created = (found.body.get(name) for name in ("shard", "added_id", "created_at"))
    created_at = None if created is None else str(created)
    key = found.row_key, found.column_name, found.ref_key
    return LostCell(found.kind, *key, int(str(shard)), int(str(added_id)), created_at, found.is_open)


def _screen(seen: LostDocument) -> Iterator[RenderableType]:
    if seen.lost:
        yield table(("", "kind", "cell", "carried at"), [_line(each) for each in seen.lost])
        if seen.next_after is not None:
            following = f"tripstore cutover lost --show {seen.job} --after {seen.next_after}"
            yield Text(f"These are {len(seen.lost):,} of {seen.listed:,}; `{following}` shows more.")
    since = "from the beginning" if seen.since is None else f"since {seen.since[:19]}"
    where = (
        "of Schemaless that Postgres had not confirmed" if seen.authority == "schemaless" else f"of the mirror, {since}"
    )
    yield Text(
        f"{seen.cells:,} cells {where}, looked at: Postgres lacks {seen.listed:,}, of which {seen.open:,} are open."
    )
    if seen.not_compared:
        yield Text(f"{seen.not_compared:,} could not be compared: their rows cannot be read.", style="bold red")
    for reason in seen.refused:
        yield Text(f"Not put into Postgres: {reason}")
    if seen.put:
        yield Text(f"{seen.put:,} were put into Postgres again.")
    if seen.open:
        yield Text("--take-back puts them into Postgres again, --mend makes the mirror equal to the authority.")


def _line(found: LostCell) -> tuple[str, ...]:
    cell = f"{found.row_key} {found.column_name} {found.ref_key}"
    return "open" if found.is_open else "closed", found.kind, cell, (found.created_at or "")[:19]
