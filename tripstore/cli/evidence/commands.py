"""`tripstore evidence`: what an auditor wants a year later, in one file, and whether it is as it was written."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from schemaless_core.config import load_document
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.seals import SealedLine, SealFault, SealHead, seal_faults
from tripstore.cli.both import both
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.progress import waiting
from tripstore.cli.whole_files import write_whole
from tripstore.migration.evidence.bundle import MADE, bundle_faults, digest_of, log_faults, pack, unpack
from tripstore.migration.evidence.contents import files_of, sealed_log, with_audit


class BundleDocument(msgspec.Struct, frozen=True):
    """A bundle that was made."""

    file: str
    sha256: str
    files: list[str]
    audit_lines: int
    is_allowed: bool


class VerifiedDocument(msgspec.Struct, frozen=True):
    """What was looked at, and what is wrong."""

    what: str
    #: Of the bundle's file; null: the log was looked at.
    sha256: str | None
    lines: int
    sealed: int
    pruned: int
    #: What is not as it was written.
    faults: list[SealFault]
    #: What nothing can be said of: lines without seals behind sealed ones, a bundle older than what was pruned.
    unknown: list[SealFault]
    files: list[str]
    is_fine: bool


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the bundle, a zip of plain files, over whatever stands there.",
)
@click.option("--bodies", is_flag=True, help="With bodies and the values that messages quote; else they are left out.")
@json_option
@pass_settings
@click.pass_context
def evidence(context: click.Context, settings: Settings, output: Path | None, bodies: bool, as_json: bool) -> Exit:
    """Write what justified the migration into one file: report, gates, jobs, ledgers, configuration, audit log.

    No secret is in it. Its SHA-256 is printed, and is a line of the audit log from then on. Exit code 0 whatever the
    gates say: a bundle is history.

    \b
    Example:
      tripstore evidence -o bundle.zip
      tripstore evidence verify bundle.zip
    """
    if context.invoked_subcommand is not None:
        return Exit.FINE
    if output is None:
        raise click.UsageError("Name the file with -o bundle.zip, or ask `tripstore evidence verify`.")
    return _make(settings, output, bodies=bodies, as_json=as_json)


def _make(settings: Settings, output: Path, *, bodies: bool, as_json: bool) -> Exit:
    from tripstore.engines.validation.report.html import render  # the template engine, for those that write a page
    from tripstore.migration.report.gather import WantedReport, gather

    with both(settings) as stores, waiting("gathering evidence"):
        control = stores.facade.store.control
        report = gather(stores.facade, WantedReport(with_bodies=bodies))
        document, _folder = load_document(settings.config)
        files = files_of(report, render(report), document, control, with_bodies=bodies)
        manifest, whole = with_audit(stores.facade.config.core.datastore, files, sealed_log(control))
        content = pack(manifest, whole)
        write_whole(output, content)
        digest = digest_of(content)
        AuditLog(control).add(MADE, {"file": output.name, "sha256": digest})
    sealed = manifest.head.number - manifest.head.pruned
    made = BundleDocument(str(output), digest, sorted(whole), sealed, report.verdict.is_allowed)
    if as_json:
        print_document(made)
    else:
        click.echo(f"{output}: {len(whole)} files, {made.audit_lines:,} sealed lines of the audit log.")
        click.echo(f"sha256 {digest}\nKeep that line elsewhere: who has it can tell this bundle from another one.")
    return Exit.FINE


@evidence.command()
@click.argument("bundle", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--against-log", is_flag=True, help="And whether the audit log of now goes on from the bundle's.")
@json_option
@pass_settings
def verify(settings: Settings, bundle: Path | None, against_log: bool, as_json: bool) -> Exit:
    """Say whether a line of the audit log was changed, removed or added since it was written: in a BUNDLE, or now.

    A bundle's files are held against its manifest, too; that needs no configuration, and proves that they fit. That it
    is the file that was made its SHA-256 proves, which --against-log looks for in the log of now. Exit code 1 when
    something is not as it was written, 3 when no line is sealed or of some nothing can be said.

    \b
    Example:
      tripstore evidence verify
      tripstore evidence verify bundle.zip --against-log
    """
    if bundle is None:
        verified = _verified_log(*_log(settings))
    else:
        verified = _verified_bundle(bundle, _log(settings) if against_log else None)
    if as_json:
        print_document(verified)
    else:
        _show(verified)
    if not verified.is_fine:
        return Exit.FAILED
    return Exit.NOT_VERIFIED if verified.unknown or not verified.sealed else Exit.FINE


def _log(settings: Settings) -> tuple[SealHead, list[SealedLine]]:
    with settings.open() as datastore:
        return sealed_log(datastore.control)


def _verified_log(head: SealHead, lines: list[SealedLine]) -> VerifiedDocument:
    return _verified("the audit log", None, head, lines, [*seal_faults(head, lines)], [])


def _verified_bundle(bundle: Path, log: tuple[SealHead, list[SealedLine]] | None) -> VerifiedDocument:
    read = unpack(bundle)
    faults = bundle_faults(read)
    if log is not None:
        faults += [*seal_faults(*log), *log_faults(read, *log)]
    return _verified(str(bundle), read.sha256, read.manifest.head, read.lines, faults, read.complaints)


def _verified(
    what: str,
    sha256: str | None,
    head: SealHead,
    lines: list[SealedLine],
    found: list[SealFault],
    files: list[str],
) -> VerifiedDocument:
    sealed = sum(each.number is not None for each in lines)
    faults, unknown = [each for each in found if not each.is_open], [each for each in found if each.is_open]
    is_fine = not faults and not files
    return VerifiedDocument(what, sha256, len(lines), sealed, head.pruned, faults, unknown, files, is_fine)


def _show(verified: VerifiedDocument) -> None:
    pruned = f", {verified.pruned:,} older ones were pruned" if verified.pruned else ""
    click.echo(f"{verified.what}: {verified.lines:,} lines, {verified.sealed:,} of them sealed{pruned}.")
    for complaint in verified.files:
        click.echo(f"  {complaint}")
    if verified.sha256 is not None:
        click.echo(f"sha256 {verified.sha256}")
    for fault in (*verified.faults, *verified.unknown):
        click.echo(f"  {'' if fault.entry is None else f'line {fault.entry:,} '}{fault.said}")
    if not verified.is_fine:
        click.echo(
            "It is not as it was written. Compare with an earlier bundle, or with a backup of the control database."
        )
    elif not verified.sealed:
        click.echo("No line is sealed: run `tripstore schema apply`; what is written from then on is.")
    elif verified.unknown:
        click.echo("The rest is as it was written.")
    elif verified.sha256 is not None:
        click.echo("It fits its manifest. Compare the sha256 with the one that was kept.")
    else:
        click.echo("It is as it was written.")
