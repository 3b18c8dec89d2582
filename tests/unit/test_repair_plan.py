"""What repair would do about a difference: a case for each rule, and none that touches a cell without need (I2)."""

from __future__ import annotations

from uuid import UUID

import pytest

from schemaless_core.cell.cell import CellKey, ColumnKey
from tripstore.engines.validation.repair import (
    Action,
    HeldVersion,
    Powers,
    RepairStep,
    UnknownVersion,
    Version,
    plan_latest,
    plan_older,
)

COLUMN = ColumnKey(UUID(int=1), "BASE")
A, B, TORN = b'{"a":1}', b'{"b":2}', b"\x00{no"
LIFTABLE = Powers(lift_to=9, can_mend=True)
FIXED = Powers(lift_to=None, can_mend=True)
LEGACY = Powers(lift_to=None, can_mend=False)
FORGETFUL = Powers(lift_to=None, can_mend=True, forgets=True)
UNKNOWN = UnknownVersion("the log was dropped")


def plan(
    ours: Version, theirs: HeldVersion | None, powers: Powers = LIFTABLE, at: Version = None
) -> tuple[Action, int, bytes | None]:
    step: RepairStep = plan_latest(COLUMN, ours, theirs, at, powers)
    assert step.why
    assert step.key[:2] == COLUMN
    return step.action, step.key.ref_key, step.body


@pytest.mark.parametrize("powers", [LIFTABLE, FIXED, LEGACY, FORGETFUL])
def test_equal_cells_are_left_alone(powers: Powers) -> None:
    assert plan(HeldVersion(3, A), HeldVersion(3, A), powers)[0] is Action.NOTHING
    assert plan(None, None, powers)[0] is Action.NOTHING


@pytest.mark.parametrize("powers", [LIFTABLE, FIXED, LEGACY, FORGETFUL])
def test_what_the_mirror_lacks_is_put(powers: Powers) -> None:
    assert plan(HeldVersion(3, A), None, powers) == (Action.PUT, 3, A)
    assert plan(HeldVersion(3, A), HeldVersion(2, B), powers) == (Action.PUT, 3, A)
    assert plan(HeldVersion(3, A), HeldVersion(2, TORN), powers) == (Action.PUT, 3, A)


def test_what_the_authority_has_after_all_is_looked_at_again() -> None:
    assert plan(None, HeldVersion(3, A), FIXED, HeldVersion(3, A)) == (Action.PUT, 3, A)
    assert plan(HeldVersion(2, B), HeldVersion(3, A), LIFTABLE, HeldVersion(3, A)) == (Action.PUT, 3, A)


def test_what_has_a_version_is_lifted_and_no_cell_is_touched() -> None:
    assert plan(HeldVersion(3, A), HeldVersion(3, B)) == (Action.LIFT, 9, None)
    assert plan(HeldVersion(3, A), HeldVersion(8, B)) == (Action.LIFT, 9, None)
    assert plan(HeldVersion(3, A), HeldVersion(8, A)) == (Action.LIFT, 9, None)


def test_what_cannot_be_lifted_is_mended_or_purged() -> None:
    assert plan(HeldVersion(3, A), HeldVersion(3, B), FIXED) == (Action.MEND, 3, A)
    assert plan(HeldVersion(3, A), HeldVersion(8, B), FIXED) == (Action.PURGE, 8, None)
    assert plan(None, HeldVersion(8, B), FIXED) == (Action.PURGE, 8, None)


@pytest.mark.parametrize("powers", [LIFTABLE, FIXED])
def test_bytes_that_are_no_json_never_stay_as_history(powers: Powers) -> None:
    """A lift would leave them below it, and each reader of the history would fail."""
    assert plan(HeldVersion(3, A), HeldVersion(3, TORN), powers) == (Action.MEND, 3, A)
    assert plan(HeldVersion(3, A), HeldVersion(8, TORN), powers) == (Action.PURGE, 8, None)
    assert plan(HeldVersion(3, A), HeldVersion(3, b'{ "a": 1 }'), powers) == (Action.MEND, 3, A)


def test_the_mirror_may_be_right_where_the_authority_forgets() -> None:
    assert plan(None, HeldVersion(8, B), FORGETFUL)[0] is Action.LEAVE
    assert plan(HeldVersion(3, A), HeldVersion(8, B), FORGETFUL)[0] is Action.LEAVE
    assert plan(HeldVersion(3, A), HeldVersion(3, B), FORGETFUL) == (Action.MEND, 3, A)


def test_i12_an_unknown_answer_is_left_to_the_operator() -> None:
    assert plan(UNKNOWN, HeldVersion(3, B))[0] is Action.LEAVE
    assert plan(UNKNOWN, None)[0] is Action.LEAVE
    assert plan(None, HeldVersion(3, B), FIXED, UNKNOWN)[0] is Action.LEAVE
    assert plan(None, HeldVersion(3, TORN), FIXED, UNKNOWN) == (Action.PURGE, 3, None)


@pytest.mark.parametrize("powers", [FIXED, FORGETFUL])
def test_i12_a_purge_claims_no_more_than_is_known(powers: Powers) -> None:
    """Whether the authority has the cell is unknown; that its bytes are useless is certain."""
    step = plan_older(CellKey(*COLUMN, 3), UNKNOWN, HeldVersion(3, TORN), powers)

    assert step.action is Action.PURGE
    assert UNKNOWN.why in step.why
    assert "has no such cell" not in step.why


def test_no_row_of_the_company_is_changed_in_place_or_deleted() -> None:
    assert plan(HeldVersion(3, A), HeldVersion(3, B), LEGACY)[0] is Action.LEAVE
    assert plan(None, HeldVersion(3, B), LEGACY)[0] is Action.LEAVE
    assert plan(HeldVersion(3, A), HeldVersion(3, B), LEGACY._replace(lift_to=4)) == (Action.LIFT, 4, None)


def test_the_authoritys_own_bytes_are_changed_only_when_the_operator_says_so() -> None:
    mending = LEGACY._replace(may_mend_authority=True)
    assert plan(HeldVersion(3, TORN), HeldVersion(3, B), LEGACY)[0] is Action.LEAVE
    assert plan(HeldVersion(3, TORN), HeldVersion(2, B), mending)[0] is Action.LEAVE
    assert plan(HeldVersion(3, TORN), HeldVersion(3, TORN), mending)[0] is Action.LEAVE
    step = plan_latest(COLUMN, HeldVersion(3, TORN), HeldVersion(3, B), None, mending)
    assert (step.action, step.body, step.is_of_authority) == (Action.MEND, B, True)


@pytest.mark.parametrize(
    ("ours", "theirs", "powers", "action"),
    [
        (HeldVersion(3, A), HeldVersion(3, A), LIFTABLE, Action.NOTHING),
        (HeldVersion(3, A), None, LIFTABLE, Action.PUT),
        (HeldVersion(3, A), HeldVersion(3, B), LIFTABLE, Action.MEND),
        (None, HeldVersion(3, B), LIFTABLE, Action.PURGE),
        (None, HeldVersion(3, B), FORGETFUL, Action.LEAVE),
        (None, None, LIFTABLE, Action.NOTHING),
        (UNKNOWN, HeldVersion(3, B), LIFTABLE, Action.LEAVE),
        (UNKNOWN, HeldVersion(3, TORN), LIFTABLE, Action.PURGE),
        (UNKNOWN, None, LIFTABLE, Action.NOTHING),
        (HeldVersion(3, A), HeldVersion(3, B), LEGACY, Action.LEAVE),
    ],
)
def test_no_lift_reaches_an_older_version(
    ours: Version, theirs: HeldVersion | None, powers: Powers, action: Action
) -> None:
    assert plan_older(CellKey(*COLUMN, 3), ours, theirs, powers).action is action
