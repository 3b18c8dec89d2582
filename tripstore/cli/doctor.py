"""`tripstore doctor`: is everything as a datastore needs it, and if not, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby

import click
import msgspec
from rich.text import Text

from schemaless_core.datastore import Datastore
from schemaless_core.servers.doctor import Doctor, ServerFinding, ServerRole, is_ready
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.views import job_findings
from tripstore.cli.legacy.doctor import Examined, LegacyExamined, examine, print_examined
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.tables import show, table
from tripstore.migration.backfill.left_walks import find_walks
from tripstore.migration.cutover.look import DIFF, find_job_facts
from tripstore.migration.losses.unseen import find_known


class ServerFindingDocument(msgspec.Struct, frozen=True):
    """One finding in the JSON document; `cluster` is null for the control database and the coordinator."""

    cluster: str | None
    server: str
    role: str
    name: str
    value: str
    is_fine: bool
    is_refusal: bool
    advice: str


class DoctorDocument(msgspec.Struct, frozen=True):
    """The JSON document of `doctor`."""

    is_fine: bool
    is_refused: bool
    is_ready: bool
    findings: list[ServerFindingDocument]
    legacy: LegacyExamined | None


@click.command(cls=Command)
@click.option("--quick", is_flag=True, help="Of the child rows compare a sample with their parents, not all.")
@click.option("--ready", is_flag=True, help="Exit with 1 only for what keeps a process from starting, see above.")
@json_option
@pass_settings
def doctor(settings: Settings, quick: bool, ready: bool, as_json: bool) -> Exit:
    """Examine every server, the control database and the legacy store; change nothing but a note of what is broken.

    Where ZooKeeper says which worker serves which shard, that is looked at, too.

    Looks at reachability, login, version, durability, sql_mode, caches, packet size, replication, clocks, jobs that
    have not ended, what waits in buffers, and whether all shards are there. What is marked REFUSED keeps `schema apply`
    from creating shards. Of a legacy store: whether the layout fits the live tables, whether every child row carries
    its parent's row key, and whether capture misses nothing; a gap is written down there, so that no backfill relies on
    it. Indexes that queries lack there are notes. Exit code 1 when anything is not fine; notes are only to be known.

    Before a deployment ask with --ready: exit code 1 when no primary answers, shards are missing, a primary is REFUSED
    for its settings, login or format, or the layout does not fit. A server that is down, a late replica, a job or a gap
    keep no process from starting, which may be the worker that mends them.

    \b
    Example:
      tripstore doctor
      tripstore doctor --quick
      tripstore doctor --quick --ready --json
      tripstore doctor --json | jq '.findings[] | select(.is_fine | not)'
    """
    config = settings.load()
    with Datastore(config.core) as datastore:
        of_indexes, of_buffer = datastore.indexes.tables.facts, datastore.replayer().facts
        doctor = Doctor(
            datastore.config,
            datastore.clusters,
            datastore.control,
            lambda cluster: [*of_indexes(cluster), *of_buffer(cluster)],
        )
        findings = doctor.findings()
        findings = [*job_findings(datastore), *findings, *_of_coordinator(datastore)]
        legacy = None
        if config.legacy is not None:
            control = datastore.control
            find_diff, known = partial(find_job_facts, control, DIFF), partial(find_known, control)
            walks = partial(find_walks, control)
            legacy = examine(config.legacy, config.core.indexes, find_diff, known, walks, is_quick=quick)
    troubles = [finding for finding in findings if not finding.fact.is_fine]
    is_fine = not troubles and (legacy is None or legacy.troubles == 0)
    may_start = is_ready(findings) and (legacy is None or legacy.is_described)
    if as_json:
        is_refused = any(trouble.fact.is_refusal for trouble in troubles)
        documents = [_document(finding) for finding in findings]
        examined = None if legacy is None else legacy.document()
        print_document(DoctorDocument(is_fine, is_refused, may_start, documents, examined))
    else:
        _print(findings, legacy)
        if ready:
            click.echo("Processes may start." if may_start else "Processes would not find what they need.")
    return Exit.FINE if is_fine or (ready and may_start) else Exit.FAILED


def _of_coordinator(datastore: Datastore) -> Iterator[ServerFinding]:
    coordination = datastore.coordination
    for fact in coordination.facts():
        yield ServerFinding(None, coordination.place, ServerRole.COORDINATOR, fact)


def _print(findings: list[ServerFinding], legacy: Examined | None) -> None:
    for title, group in groupby(findings, key=_server):
        show(Text(title, style="bold"), table(("", "", ""), _rows(group)), Text())
    if legacy is not None:
        print_examined(legacy)
    looked_at = len(findings) + (0 if legacy is None else len(legacy.complaints))
    troubles = sum(not finding.fact.is_fine for finding in findings) + (0 if legacy is None else legacy.troubles)
    if not troubles:
        click.echo("Everything is fine.")
        return
    click.echo(f"{troubles} of {looked_at} findings are not fine.")


def _server(finding: ServerFinding) -> str:
    if finding.cluster is None:
        return finding.server
    return f"cluster {finding.cluster}, {finding.role}, {finding.server}"


def _rows(findings: Iterable[ServerFinding]) -> Iterator[tuple[Text, str, str]]:
    for finding in findings:
        fact = finding.fact
        yield _mark(finding), fact.name, fact.value
        if not fact.is_fine:
            yield Text(), "", f"→ {fact.advice}"


def _mark(finding: ServerFinding) -> Text:
    if finding.fact.is_fine:
        return Text("fine", style="green")
    return Text("REFUSED", style="bold red") if finding.fact.is_refusal else Text("not fine", style="yellow")


def _document(finding: ServerFinding) -> ServerFindingDocument:
    fact = finding.fact
    advice = "" if fact.is_fine else fact.advice
    return ServerFindingDocument(
        finding.cluster,
        finding.server,
        finding.role.value,
        fact.name,
        fact.value,
        fact.is_fine,
        fact.is_refusal and not fact.is_fine,
        advice,
    )
