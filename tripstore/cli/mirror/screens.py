"""What `tripstore mirror` prints for people."""

from __future__ import annotations

from collections.abc import Iterator

import click
from rich.console import RenderableType
from rich.text import Text

from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import Cell, CellKey
from tripstore.cli.mirror.keys import key_text
from tripstore.cli.tables import show, table
from tripstore.migration.mirror.draining import Drained
from tripstore.migration.mirror.parked import Parked
from tripstore.migration.mirror.status import MirrorStatus


def screen(seen: MirrorStatus) -> Iterator[RenderableType]:
    """Yield what is carried where, and below it what is wrong."""
    row = seen.authority
    what = "nothing is mirrored" if seen.direction is None else f"changes are carried {seen.direction}"
    closing = "" if row.is_open else ", and is being handed over"
    yield Text(f"phase {seen.phase}: {what}; {row.backend.value} is the authority (epoch {row.epoch}){closing}")
    yield table(("direction", "behind", "oldest", "parked", ""), _lines(seen))
    yield from (Text(advice, style="bold red") for advice in seen.advice())


def _lines(seen: MirrorStatus) -> Iterator[tuple[str, ...]]:
    if seen.forward is None:
        yield "forward", "unknown", "", "", ""
    else:
        changes, seconds, parked = seen.forward
        yield "forward", f"{changes:,} changes", f"{seconds:.1f} s", f"{parked:,}", ""
    if seen.reverse is None:
        yield "reverse", "unknown" if seen.problems else "not created", "", "", ""
    else:
        cells, seconds, parked, *_rest = seen.reverse
        note = "rehearses: compares only" if seen.is_rehearsal else ""
        yield "reverse", f"{cells:,} cells", f"{seconds:.1f} s", f"{parked:,}", note


def print_drained(direction: str, drained: Drained) -> None:
    if drained.is_empty:
        click.echo(f"Carried {drained.carried:,} {direction}; nothing is left.")
        return
    way = " --reverse" if direction == "reverse" else ""
    what = f"{drained.left:,} are left" if drained.left else f"{drained.parked:,} are parked"
    advice = f"`tripstore mirror parked{way}` shows them" if drained.parked else "`tripstore status` shows the servers"
    click.echo(f"Carried {drained.carried:,} {direction}, {what}: {drained.reason}; {advice}.")


def print_sides(
    key: CellKey,
    postgres: tuple[Cell | None, str | None],
    schemaless: tuple[Cell | None, str | None],
    forward: Parked | None,
    reverse: Parked | None,
) -> None:
    rows = [("change", key_text(key)), ("postgres", _body(*postgres)), ("schemaless", _body(*schemaless))]
    for direction, parked in (("forward", forward), ("reverse", reverse)):
        if parked is not None:
            rows.append((f"parked {direction}", f"{parked.kind}, {parked.attempts} attempts: {parked.because}"))
    show(table(("", ""), rows))


def _body(cell: Cell | None, trouble: str | None) -> str:
    if trouble is not None:
        return f"cannot say: {trouble}"
    return "nothing" if cell is None else canonical_bytes(cell.body).decode()


def parked_row(parked: Parked) -> tuple[str, ...]:
    return key_text(parked.key), parked.kind, parked.because, str(parked.attempts)
