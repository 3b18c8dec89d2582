"""`tripstore shards failover`: primaries that need a lease, and workers that have another server lead without one."""

from __future__ import annotations

from collections.abc import Mapping

import click
from rich.text import Text

from schemaless_core.promotion.failover import Outlook
from schemaless_core.promotion.ports import PromotionOrder
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.questions import ask, yes_option
from tripstore.cli.shards.documents import FailoverDocument, FailoverSetDocument, FailoverView
from tripstore.cli.tables import show, table
from tripstore.cli.worker.duty import Opened, authority_of, opened


@click.group(cls=CommandGroup)
def failover() -> None:
    """Let workers make another server the primary of a cluster when its own is silent.

    Off until it is switched on. From then on a primary takes writes only while it has a lease, which `worker run`
    extends each second and which the control database, or the primary of another cluster, has to allow. So one that
    no process reaches has ended before another one begins.

    \b
    Example:
      tripstore shards failover on
      tripstore shards failover status
    """


@failover.command()
@json_option
@pass_settings
def status(settings: Settings, as_json: bool) -> Exit:
    """Show for each cluster whether it is on, how long the lease lasts, and what would be done if its primary failed.

    Nothing is changed. Exit code 1 when a primary that needs a lease has none, or is silent.

    \b
    Example:
      tripstore shards failover status
    """
    with opened(settings) as stores:
        looks = {name: stores.datastore.failover(authority_of(stores)).outlook(name) for name in _with_replicas(stores)}
        leased = {name: stores.datastore.clusters[name].is_leased for name in looks}
    document = _document(looks, leased)
    if as_json:
        print_document(document)
    else:
        rows = [
            (
                each.cluster,
                "on" if each.is_automatic else "off",
                each.primary.rpartition("@")[2],
                _lease_said(each),
                "; ".join(each.refusals) or "the replica that has most would lead",
            )
            for each in document.clusters
        ]
        show(table(("cluster", "automatic", "primary", "lease", "if it failed now"), rows))
    return Exit.FINE if document.is_fine else Exit.FAILED


@failover.command()
@yes_option
@json_option
@pass_settings
def on(settings: Settings, as_json: bool, yes: bool) -> Exit:
    """Switch it on for all clusters that have a replica.

    Each primary is opened anew, by a promotion to itself: calls wait for that moment, or are buffered. From then on a
    `worker run` has to be there: without one the calls that are refused extend the leases themselves. Every process
    has to be of a version that knows leases.

    \b
    Example:
      tripstore shards failover on --yes
    """
    return _set(settings, True, "Do primaries need a lease from now on", as_json=as_json, yes=yes)


@failover.command()
@yes_option
@json_option
@pass_settings
def off(settings: Settings, as_json: bool, yes: bool) -> Exit:
    """Switch it off: primaries need no lease, and only `shards promote` makes another server one.

    \b
    Example:
      tripstore shards failover off --yes
    """
    return _set(settings, False, "Do primaries need no lease any more", as_json=as_json, yes=yes)


def _set(settings: Settings, are_needed: bool, question: str, *, as_json: bool, yes: bool) -> Exit:
    with opened(settings) as stores:
        clusters = _with_replicas(stores)
        wanted = {name: stores.datastore.promotions.promoter(name, authority_of(stores)) for name in clusters}
        for name, promoter in list(wanted.items()):
            record = promoter.record()
            if record.is_done and record.is_leased == are_needed:
                del wanted[name]
                continue
            promoter.check(PromotionOrder(to=promoter.old(), leases=are_needed))  # all, before any is opened anew
        ask(f"{question}, of {', '.join(clusters)}?", is_answered=yes)
        for promoter in wanted.values():
            promoter.promote(PromotionOrder(to=promoter.old(), leases=are_needed))
    done = [*wanted]
    if as_json:
        print_document(FailoverSetDocument(are_needed, done))
    else:
        show(Text(f"Automatic failover is {'on' if are_needed else 'off'}; opened anew: {', '.join(done) or 'none'}."))
    return Exit.FINE


def _with_replicas(stores: Opened) -> list[str]:
    return [name for name, cluster in stores.datastore.clusters.items() if not cluster.is_alone]


def _document(looks: Mapping[str, Outlook], leased: Mapping[str, bool]) -> FailoverDocument:
    views = []
    for name, look in looks.items():
        leads = next((each.name for each in look.plan.servers if each.is_leader), "")
        refusals = [*([] if leased[name] else ["it is off"]), *look.refusals]
        views.append(FailoverView(name, leased[name], leads, look.lease_seconds, refusals))
    is_fine = all(not each.is_automatic or (each.lease_seconds or 0) > 0 for each in views)
    return FailoverDocument(is_fine, views)


def _lease_said(view: FailoverView) -> str:
    if view.lease_seconds is None:
        return "it is silent"
    if not view.is_automatic:
        return ""
    return f"{view.lease_seconds:.1f} s more" if view.lease_seconds > 0 else "has ended"
