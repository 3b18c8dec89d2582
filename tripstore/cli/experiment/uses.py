"""`tripstore experiment uses` and `acknowledge`: what audits of code still find, and why it may remain."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import BinaryIO

import click
import msgspec

from schemaless_core.errors import InvalidRequest
from tripstore.cli.both import why_option
from tripstore.cli.documents import print_document
from tripstore.cli.experiment.documents import use_view
from tripstore.cli.experiment.screens import uses_screen
from tripstore.cli.options import Settings, json_option, pass_settings
from tripstore.cli.tables import show
from tripstore.facade.experiments.flags import check_name
from tripstore.migration.rewrites.uses import CodeUses, RemainingUse, UseBooks


class AuditedUse(msgspec.Struct, frozen=True):
    """Of the document of `audit code`, what is registered."""

    file: str
    line: int
    table: str
    kind: str


class AuditedCode(msgspec.Struct, frozen=True):
    """The same of the whole document; what it has besides is passed over."""

    is_complete: bool
    findings: list[AuditedUse]
    #: Documents of before do not say.
    files: int | None = None


@click.command()
@click.argument("code")
@click.argument("audit", type=click.File("rb"))
@json_option
@pass_settings
def uses(settings: Settings, code: str, audit: BinaryIO, as_json: bool) -> None:
    """Register the uses that an audit of a code base finds, in place of those it found before; - reads from a pipe.

    From then on a gate of the switch wants each of them to have a reason: rewrite it, or acknowledge it.

    \b
    Example:
      tripstore audit code services/billing --json | tripstore experiment uses billing -
    """
    try:
        found = msgspec.json.decode(audit.read(), type=AuditedCode)
    except (msgspec.MsgspecError, UnicodeError) as error:
        hint = "Give the document that `tripstore audit code PATH --json` prints."
        raise InvalidRequest(f"{audit.name} is no audit of code: {error}.", hint=hint) from error
    if found.files == 0:
        hint = "Give `tripstore audit code` the folder of the code: of no code there are no uses."
        raise InvalidRequest(f"{audit.name} is the audit of a folder without a file to read.", hint=hint)
    remaining = [RemainingUse(each.file, each.line, each.table, each.kind) for each in found.findings]
    now = datetime.now(UTC)
    with settings.connect() as store:
        book = UseBooks(store.facade.store.control).of(check_name(code))
        left = book.change(
            lambda known: known.with_uses(remaining, now, is_complete=found.is_complete), "experiment.uses"
        )
    _tell(code, left, as_json=as_json)


@click.command()
@click.argument("code")
@click.argument("pattern")
@click.option("--remove", is_flag=True, help="Take the reason back.")
@why_option
@json_option
@pass_settings
def acknowledge(settings: Settings, code: str, pattern: str, remove: bool, why: str, as_json: bool) -> None:
    """Say why uses of a code base may remain: those in files, or at FILE:LINE, that match a pattern of the shell.

    \b
    Example:
      tripstore experiment acknowledge billing 'reports/*' --why "reads the archive, for the auditors"
    """
    if not remove and not why.strip():
        raise click.UsageError("Give --why: a use without a reason is what the gate refuses.")
    with settings.connect() as store:
        book = UseBooks(store.facade.store.control).of(check_name(code))
        if not book.find().version:
            hint = f"`tripstore audit code PATH --json | tripstore experiment uses {code} -` registers them."
            raise InvalidRequest(f"No uses of {code} are registered.", hint=hint)
        left = book.change(
            lambda known: known.without_reason(pattern) if remove else known.with_reason(pattern, why),
            "experiment.acknowledge",
            why,
        )
    _tell(code, left, as_json=as_json)


def _tell(code: str, left: CodeUses, *, as_json: bool) -> None:
    view = use_view(code, left)
    if as_json:
        print_document(view)
    else:
        show(*uses_screen([view]))
