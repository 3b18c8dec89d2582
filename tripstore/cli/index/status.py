"""`tripstore index status`: which versions each index has, who answers, who is behind, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click
import msgspec
from rich.console import RenderableType
from rich.text import Text

from schemaless_core.datastore import Datastore
from schemaless_core.definitions.query import unknown_index
from schemaless_core.errors import SchemaMissing, Unavailable
from schemaless_core.indexes.catalogue import IndexRecord, Verified, VersionState
from schemaless_core.indexes.versions import IndexStatus, VersionStatus
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.tables import show, table
from tripstore.cli.triggers.groups import GroupView, look_at_groups


class VersionView(msgspec.Struct, frozen=True):
    """A version of an index. Null: the source did not answer."""

    version: int
    state: str
    is_current: bool
    is_configured: bool
    lag_cells: int
    lag_seconds: float | None
    unknown_shards: int
    unserved: int | None
    shards: int | None
    workers: list[str]
    errors: int | None
    verified: Verified | None


class IndexView(msgspec.Struct, frozen=True):
    """An index: the version that answers its queries, all versions, and what to do."""

    name: str
    alias: int | None
    is_fine: bool
    advice: list[str]
    versions: list[VersionView]


class IndexesDocument(msgspec.Struct, frozen=True):
    """The JSON document of `status`."""

    is_fine: bool
    indexes: list[IndexView]


class _Advice(msgspec.Struct, frozen=True):
    """What to do, and whether something is wrong until it is done."""

    text: str
    is_urgent: bool = True


@click.command(cls=Command)
@click.argument("name", required=False)
@json_option
@pass_settings
def status(settings: Settings, name: str | None, as_json: bool) -> Exit:
    """Show indexes and their versions: which one answers, how far it is behind, who serves it, what to do.

    Who serves is seen by a heartbeat, so a look takes some seconds. Exit code 1 when an index answers no queries, a
    version is not served or not complete, or a server does not answer.

    \b
    Example:
      tripstore index status
      tripstore index status driver_partner_index --json
    """
    with settings.open() as datastore:
        views = look_at_indexes(datastore, name)
    document = IndexesDocument(all(view.is_fine for view in views), views)
    if as_json:
        print_document(document)
    else:
        show(*_screen(views))
    return Exit.FINE if document.is_fine else Exit.FAILED


def record_of(datastore: Datastore, name: str) -> IndexRecord:
    """Return an index that exists, as the control database has it."""
    index = datastore.indexes.catalogue.find(name)
    if not index.versions:
        configured = {definition.name for definition in datastore.config.indexes}
        if name in configured:
            raise SchemaMissing(
                f"Index {name} is not created yet.",
                hint=f"Run `tripstore schema apply`, or `tripstore index create {name}`.",
            )
        records = datastore.indexes.catalogue.indexes()
        raise unknown_index(name, configured | {each for each, known in records.items() if known.versions})
    return index


def look_at_indexes(datastore: Datastore, name: str | None = None) -> list[IndexView]:
    """Look at all indexes, or one."""
    found = datastore.indexes.status()
    if name is not None:
        if name not in {index.name for index in found}:
            raise unknown_index(name, [index.name for index in found])
        found = [index for index in found if index.name == name]
    groups = _groups(datastore) if any(index.versions for index in found) else {}
    return [_view(index, groups) for index in found]


def _groups(datastore: Datastore) -> dict[str, GroupView]:
    """Who serves what. Without the control database it is not known; what the servers say is shown all the same."""
    try:
        return {view.name: view for view in look_at_groups(datastore)[0]}
    except (Unavailable, SchemaMissing):
        return {}


def _view(index: IndexStatus, groups: Mapping[str, GroupView]) -> IndexView:
    versions = [_version(each, groups.get(each.record.version.group_name)) for each in index.versions]
    advice = list(_advice(index, versions))
    is_fine = not any(each.is_urgent for each in advice)
    return IndexView(index.name, index.alias, is_fine, [each.text for each in advice], versions)


def _version(status: VersionStatus, group: GroupView | None) -> VersionView:
    return VersionView(
        version=status.record.version.number,
        state=status.record.state.value,
        is_current=status.is_current,
        is_configured=status.is_configured,
        lag_cells=status.lag_cells,
        lag_seconds=None if group is None else group.lag_seconds,
        unknown_shards=status.unknown_shards,
        unserved=None if group is None else group.unserved,
        shards=None if group is None else group.shards,
        workers=[] if group is None else group.workers,
        errors=status.errors,
        verified=status.record.verified,
    )


def _advice(index: IndexStatus, versions: list[VersionView]) -> Iterator[_Advice]:
    name = index.name
    if not versions:
        yield _Advice(f"configured, not created; `tripstore schema apply` or `tripstore index create {name}`")
        return
    for version in versions:
        yield from _advice_on(name, version)
    if index.alias is None:
        steps = f"`tripstore index verify {name}`, `tripstore index promote {name}`"
        yield _Advice(f"answers no queries yet; once a version is filled: {steps}")
    if not any(version.is_configured for version in versions):
        yield _Advice(
            f"is defined otherwise in the configuration, or not at all; `tripstore index create {name}`", False
        )


def _advice_on(name: str, version: VersionView) -> Iterator[_Advice]:
    which = f"version {version.version}"
    if version.state == VersionState.CREATING.value:
        yield _Advice(f"{which} is not created completely; `tripstore index create {name}`")
        return
    if version.state == VersionState.DROPPING.value:
        yield _Advice(f"{which} is not dropped completely; `tripstore index drop {name} --version {version.version}`")
        return
    if version.unserved:
        yield _Advice(
            f"no worker serves {which} in {version.unserved} of {version.shards} shards; `tripstore worker run`"
        )
    if version.unserved is None:
        yield _Advice(f"who serves {which} is not known; `tripstore doctor`")
    if version.unknown_shards:
        yield _Advice(f"the servers of {version.unknown_shards} shards of {which} do not answer; `tripstore status`")
    if version.errors:
        more = f"`tripstore index errors {name} --version {version.version}`"
        yield _Advice(f"{version.errors:,} fields of {which} do not parse; {more}", False)
    if version.verified is not None and version.verified.differences:
        found = f"{version.verified.differences:,} differences"
        mend = f"`tripstore index repair {name} --version {version.version}`"
        yield _Advice(f"{which} had {found} at {version.verified.at}; {mend}, then verify it again")


def _screen(views: list[IndexView]) -> Iterator[RenderableType]:
    if not views:
        yield Text("No index yet: define one under indexes: of the configuration, then run `tripstore schema apply`.")
        return
    headings = ("index", "version", "state", "", "lag", "oldest", "served", "errors", "verified")
    yield table(headings, [row for view in views for row in _rows(view)])
    for view in views:
        style = "yellow" if view.is_fine else "bold red"
        yield from (Text(f"{view.name}: {advice}", style=style) for advice in view.advice)


def _rows(view: IndexView) -> Iterator[tuple[str | Text, ...]]:
    if not view.versions:
        yield (view.name, Text("none", style="bold red"), *[""] * 7)
    for version in view.versions:
        yield (
            view.name,
            str(version.version),
            version.state,
            Text("answers queries" if version.is_current else "", style="green"),
            f"{version.lag_cells:,} cells",
            "unknown" if version.lag_seconds is None else f"{version.lag_seconds:.1f} s",
            _served(version),
            "unknown" if version.errors is None else f"{version.errors:,}",
            _verified(version.verified),
        )


def _served(version: VersionView) -> Text:
    if version.unserved is None or version.shards is None:
        return Text("unknown", style="bold red")
    served = f"{version.shards - version.unserved} of {version.shards} shards by {len(version.workers)} workers"
    return Text(served, style="bold red" if version.unserved else "green")


def _verified(verified: Verified | None) -> Text:
    if verified is None:
        return Text("never")
    if verified.is_clean:
        return Text(f"{verified.at}: {verified.entries:,} entries right", style="green")
    parts = f"{verified.differences:,} differences, {verified.not_compared:,} not compared"
    return Text(f"{verified.at}: {parts}", style="bold red" if verified.differences else "yellow")
