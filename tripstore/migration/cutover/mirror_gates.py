"""The gates on the mirror: it is close, in both directions, and nothing was set aside."""

from __future__ import annotations

from collections.abc import Iterator

from tripstore.migration.cutover.facts import Facts, ReverseFacts, Unknown
from tripstore.migration.cutover.verdicts import STATUS, GateVerdict, unknown, verdict_of
from tripstore.thresholds import CutoverSettings

_SERVE = "`tripstore worker run` serves the group mirror:reverse; `tripstore triggers status mirror:reverse` shows it."
_REGISTER = "`tripstore schema apply` makes the group; `tripstore worker run` serves it."
_RESUME = (
    "`tripstore triggers status mirror:reverse` says why; mend that, then `tripstore triggers resume mirror:reverse`."
)


def mirror_lag(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """So little is queued that the switcher delivers it within the pause."""
    wanted = f"at most {settings.lag_changes_max:,} changes, none older than {settings.lag_seconds_max:g} s"
    found = facts.mirror
    if isinstance(found, Unknown):
        yield unknown("mirror lag", found, wanted)
        return
    # Those that are parked are another gate's: they stay in the queue, and are old.
    changes = found.queued - found.parked
    is_close = changes <= settings.lag_changes_max and found.oldest_seconds <= settings.lag_seconds_max
    said = f"{changes:,} changes are queued, the oldest for {found.oldest_seconds:.1f} s"
    hint = (
        "`tripstore worker run` carries them, more than one where one does not keep up;"
        " `tripstore mirror drain` carries them here and now."
    )
    yield verdict_of("mirror lag", is_close, said, wanted, hint)


def parked(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Everything could be delivered, forwards."""
    found = facts.mirror
    if isinstance(found, Unknown):
        yield unknown("parked changes", found, "0")
        return
    hint = (
        "`tripstore mirror parked` says why. Of a conflict `tripstore diff start` and `tripstore repair` mend the"
        " mirror; else mend the row. Then `tripstore mirror retry --all`. A version that stays parked after that, and"
        " that the mended row has replaced, `tripstore mirror skip` gives up."
    )
    yield verdict_of("parked changes", not found.parked, f"{found.parked:,}", "0", hint)


def purged_rows(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """No service has a row that Schemaless takes no more: what it put there, Postgres alone has acknowledged (I1)."""
    wanted = "none in Postgres"
    found = facts.purged
    if isinstance(found, Unknown):
        yield unknown("purged rows", found, wanted)
        return
    said = f"{found.rows:,} in Postgres: {', '.join(found.first)}" if found.rows else "none"
    hint = (
        "They were purged from Schemaless, which takes no cell of them any more: after a switch they are gone. Delete"
        " them in Postgres, or give what services still need row keys of its own."
    )
    yield verdict_of("purged rows", not found.rows, said, wanted, hint)


def rehearsal(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """The way back was walked before it is needed: the reverse mirror runs and has compared. What differs is parked.

    What was not compared, or passed by whatever else, is not evidence (I12).
    """
    wanted = f"served, close behind, at least {settings.rehearsed_cells_min:,} cells compared and equal"
    found = facts.reverse
    trouble = _reverse_trouble(facts, settings)
    if isinstance(found, Unknown) or found is None or trouble:
        yield verdict_of("rehearsal", False, trouble, wanted, _reverse_hint(found))
        return
    said = f"{found.equal:,} cells equal, {found.different:,} different, {found.not_compared:,} not compared"
    is_passed = found.equal >= settings.rehearsed_cells_min
    hint = "Let it run while services change rows; `tripstore mirror parked --reverse` lists what differs."
    yield verdict_of("rehearsal", is_passed, said, wanted, hint)


def reverse_lag(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """What Schemaless has is in Postgres, but for what will be there within the pause."""
    wanted = f"served, at most {settings.lag_changes_max:,} cells, none older than {settings.lag_seconds_max:g} s"
    found = facts.reverse
    trouble = _reverse_trouble(facts, settings)
    if isinstance(found, Unknown) or found is None or trouble:
        yield verdict_of("reverse mirror", False, trouble, wanted, _reverse_hint(found))
        return
    yield verdict_of("reverse mirror", True, _reverse_lag(found.lag_cells, found.lag_seconds), wanted)


def reverse_parked(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Postgres could hold every cell."""
    found = facts.reverse
    if isinstance(found, Unknown):
        yield unknown("parked cells", found, "0")
        return
    count = 0 if found is None else found.parked
    hint = (
        "`tripstore mirror parked --reverse` says why. While Postgres is the authority `tripstore diff start` and"
        " `tripstore repair` mend the mirror; else mend what Postgres refuses, or put the row's next version or its"
        " tombstone, which goes first. Then `tripstore mirror retry --all --reverse`."
    )
    yield verdict_of("parked cells", not count, f"{count:,}", "0", hint)


def direct_changes(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Behind the shut gate no direct writer changed the tables: no mirror carries that, and no caller reads it."""
    found = facts.direct_changes
    if isinstance(found, Unknown):
        yield unknown("direct writers", found, "0 changes")
        return
    hint = (
        "Rows of tripstore.log with origin NULL since the switch: Schemaless lacks them, Postgres would give them out. "
        'Put through the facade what is to last. Then `tripstore cutover reverse --force --why "direct writes"`: what'
        " stands in the tables becomes the authority's."
    )
    yield verdict_of("direct writers", not found, f"{found:,} changes", "0 changes", hint)


def _reverse_trouble(facts: Facts, settings: CutoverSettings) -> str:
    """Why the reverse mirror is not close to what Schemaless has."""
    found = facts.reverse
    if isinstance(found, Unknown):
        return f"not known: {found.reason}"
    if found is None:
        return "there is no group mirror:reverse"
    if not found.is_running:
        return "the group mirror:reverse is halted"
    if found.unserved or found.unknown:
        return f"no worker serves {found.unserved} of {found.shards} shards, {found.unknown} did not answer"
    if found.lag_cells > settings.lag_changes_max or found.lag_seconds > settings.lag_seconds_max:
        return _reverse_lag(found.lag_cells, found.lag_seconds)
    return ""


def _reverse_hint(found: ReverseFacts | None | Unknown) -> str:
    if isinstance(found, Unknown):
        return STATUS
    if found is None:
        return _REGISTER
    return _SERVE if found.is_running else _RESUME


def _reverse_lag(cells: int, seconds: float) -> str:
    return f"{cells:,} cells behind, the oldest for {seconds:.1f} s"
