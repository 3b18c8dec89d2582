"""Flags and phases: who is called in which phase, and what may be changed without a switch."""

from __future__ import annotations

import pytest

from schemaless_core.errors import InvalidRequest
from tripstore.facade.experiments.flags import ExperimentFlags, FlagsOfAll
from tripstore.facade.flags import Flags, check_move
from tripstore.facade.known import Known
from tripstore.handover.authority import Authority, Backend
from tripstore.phase import Phase

LEGACY, STORE = Backend.LEGACY, Backend.STORE


@pytest.mark.parametrize(
    ("phase", "authority", "is_mirrored", "asks_other"),
    [
        ("off", LEGACY, False, False),
        ("dualwrite", LEGACY, True, False),
        ("shadow", LEGACY, True, True),
        ("live", STORE, True, True),
        ("rampdown", STORE, True, False),
        ("complete", STORE, False, False),
    ],
)
def test_the_table_of_phases(phase: str, authority: Backend, is_mirrored: bool, asks_other: bool) -> None:
    assert Phase(phase).route == (authority, is_mirrored, asks_other)


def test_the_authority_row_alone_moves_between_the_halves() -> None:
    """I9: a switch is one row; there is no second write that could be missing."""
    flags = Flags().with_phase(Phase.SHADOW)
    row = Authority(4, LEGACY)
    assert flags.phase(row) is Phase.SHADOW
    assert flags.phase(row.closing("s")) is Phase.SHADOW
    assert flags.phase(row.closing("s").decided()) is Phase.LIVE


def test_flags_survive_their_document() -> None:
    flags = Flags().with_phase(Phase.SHADOW).with_cohorts(LEGACY, {"get_row": 5, "*": 1.5})
    assert Flags.from_document(flags.to_document(), 0) == flags


def test_cohorts_of_one_authority_are_not_those_of_the_other() -> None:
    """After a switch no row is suddenly read from Postgres because all were read from Schemaless before."""
    flags = Flags().with_cohorts(LEGACY, {"*": 100})
    assert flags.cohorts(STORE) == {}


@pytest.mark.parametrize(
    "steps",
    [
        [{"*": 5.0, "get_row": 0.0}],
        [{"*": 5.0}, {"get_row": 0.0}],
        [{"get_row": 0.0}, {"*": 5.0}],
        [{"get_row": 10.0}, {"get_row": 0.0}, {"*": 0.0}, {"*": 5.0}],
    ],
)
def test_a_cohort_of_no_rows_stays_so_whatever_the_general_share_is(steps: list[dict[str, float | None]]) -> None:
    flags = Flags()
    for step in steps:
        flags = flags.with_cohorts(LEGACY, step)
    assert flags.cohorts(LEGACY) == {"*": 5, "get_row": 0}
    assert Flags.from_document(flags.to_document(), 0) == flags
    assert flags.with_cohorts(LEGACY, {"get_row": None}).cohorts(LEGACY) == {"*": 5}


def test_a_general_share_of_no_rows_is_none_and_an_impossible_cohort_refused() -> None:
    flags = Flags().with_cohorts(LEGACY, {"*": 5}).with_cohorts(LEGACY, {"*": 0})
    assert flags.cohorts(LEGACY) == {}
    with pytest.raises(InvalidRequest, match="101"):
        flags.with_cohorts(LEGACY, {"get_row": 101})


def test_only_a_switch_leads_to_a_phase_of_the_other_authority() -> None:
    check_move(LEGACY, Phase.OFF)
    with pytest.raises(InvalidRequest) as raised:
        check_move(LEGACY, Phase.LIVE)
    assert "cutover switch" in (raised.value.hint or "")


def test_an_older_row_or_version_is_not_learned() -> None:
    known = Known()
    known.learn_flags(Flags(Phase.SHADOW, version=2))
    sight = known.learn_authority(Authority(6, LEGACY))
    assert known.learn_authority(Authority(4, STORE)) == sight
    known.learn_flags(Flags(Phase.OFF, version=1))
    assert known.sight == sight
    assert sight.phase is Phase.SHADOW


def test_flags_of_experiments_survive_their_document_and_what_a_later_version_adds() -> None:
    flags = FlagsOfAll().with_changes("billing.unpaid", percent=12.5).with_changes("riders.last", is_retired=True)
    document = flags.to_document()
    assert FlagsOfAll.from_document(document, 0) == flags

    later = {name: {**found, "novel": 1} for name, found in document.items() if isinstance(found, dict)}
    assert FlagsOfAll.from_document(later, 0) == flags
    assert flags.of("unknown") == ExperimentFlags(percent=0, is_compared=True, is_retired=False)
    with pytest.raises(InvalidRequest, match="% of the callers"):
        flags.with_changes("billing.unpaid", percent=101)
