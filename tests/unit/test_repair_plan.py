"""What repair would do about a difference: a case for each rule, and none that touches a cell without need (I2)."""

from __future__ import annotations

from uuid import UUID

import pytest

from schemaless_core.cell import CellKey, ColumnKey
from validation.repair import Action, Held, Powers, Step, Unknown, Version, plan_latest, plan_older

COLUMN = ColumnKey(UUID(int=1), "BASE")
A, B, TORN = b'{"a":1}', b'{"b":2}', b"\x00{no"
LIFTABLE = Powers(lift_to=9, can_mend=True)
FIXED = Powers(lift_to=None, can_mend=True)
LEGACY = Powers(lift_to=None, can_mend=False)
FORGETFUL = Powers(lift_to=None, can_mend=True, forgets=True)
NOBODY_KNOWS = Unknown("the log was dropped")


def plan(
    ours: Version, theirs: Held | None, powers: Powers = LIFTABLE, at: Version = None
) -> tuple[Action, int, bytes | None]:
    step: Step = plan_latest(COLUMN, ours, theirs, at, powers)
    assert step.why
    assert step.key[:2] == COLUMN
    return step.action, step.key.ref_key, step.body


@pytest.mark.parametrize("powers", [LIFTABLE, FIXED, LEGACY, FORGETFUL])
def test_equal_cells_are_left_alone(powers: Powers) -> None:
    assert plan(Held(3, A), Held(3, A), powers)[0] is Action.NOTHING
    assert plan(None, None, powers)[0] is Action.NOTHING


@pytest.mark.parametrize("powers", [LIFTABLE, FIXED, LEGACY, FORGETFUL])
def test_what_the_mirror_lacks_is_put(powers: Powers) -> None:
    assert plan(Held(3, A), None, powers) == (Action.PUT, 3, A)
    assert plan(Held(3, A), Held(2, B), powers) == (Action.PUT, 3, A)
    assert plan(Held(3, A), Held(2, TORN), powers) == (Action.PUT, 3, A)


def test_what_the_authority_has_after_all_is_looked_at_again() -> None:
    assert plan(None, Held(3, A), FIXED, Held(3, A)) == (Action.PUT, 3, A)
    assert plan(Held(2, B), Held(3, A), LIFTABLE, Held(3, A)) == (Action.PUT, 3, A)


def test_what_has_a_version_is_lifted_and_no_cell_is_touched() -> None:
    assert plan(Held(3, A), Held(3, B)) == (Action.LIFT, 9, None)
    assert plan(Held(3, A), Held(8, B)) == (Action.LIFT, 9, None)
    assert plan(Held(3, A), Held(8, A)) == (Action.LIFT, 9, None)


def test_what_cannot_be_lifted_is_mended_or_purged() -> None:
    assert plan(Held(3, A), Held(3, B), FIXED) == (Action.MEND, 3, A)
    assert plan(Held(3, A), Held(8, B), FIXED) == (Action.PURGE, 8, None)
    assert plan(None, Held(8, B), FIXED) == (Action.PURGE, 8, None)


@pytest.mark.parametrize("powers", [LIFTABLE, FIXED])
def test_bytes_that_are_no_json_never_stay_as_history(powers: Powers) -> None:
    """A lift would leave them below it, and whoever reads the history would fail."""
    assert plan(Held(3, A), Held(3, TORN), powers) == (Action.MEND, 3, A)
    assert plan(Held(3, A), Held(8, TORN), powers) == (Action.PURGE, 8, None)
    assert plan(Held(3, A), Held(3, b'{ "a": 1 }'), powers) == (Action.MEND, 3, A)


def test_the_mirror_may_be_right_where_the_authority_forgets() -> None:
    assert plan(None, Held(8, B), FORGETFUL)[0] is Action.LEAVE
    assert plan(Held(3, A), Held(8, B), FORGETFUL)[0] is Action.LEAVE
    assert plan(Held(3, A), Held(3, B), FORGETFUL) == (Action.MEND, 3, A)


def test_i12_what_nobody_knows_is_left_to_a_person() -> None:
    assert plan(NOBODY_KNOWS, Held(3, B))[0] is Action.LEAVE
    assert plan(NOBODY_KNOWS, None)[0] is Action.LEAVE
    assert plan(None, Held(3, B), FIXED, NOBODY_KNOWS)[0] is Action.LEAVE
    assert plan(None, Held(3, TORN), FIXED, NOBODY_KNOWS) == (Action.PURGE, 3, None)


@pytest.mark.parametrize("powers", [FIXED, FORGETFUL])
def test_i12_a_purge_claims_no_more_than_is_known(powers: Powers) -> None:
    """Whether the authority has the cell nobody knows; that its bytes serve nobody is certain."""
    step = plan_older(CellKey(*COLUMN, 3), NOBODY_KNOWS, Held(3, TORN), powers)

    assert step.action is Action.PURGE
    assert NOBODY_KNOWS.why in step.why
    assert "has no such cell" not in step.why


def test_no_row_of_the_company_is_changed_in_place_or_deleted() -> None:
    assert plan(Held(3, A), Held(3, B), LEGACY)[0] is Action.LEAVE
    assert plan(None, Held(3, B), LEGACY)[0] is Action.LEAVE
    assert plan(Held(3, A), Held(3, B), LEGACY._replace(lift_to=4)) == (Action.LIFT, 4, None)


def test_the_authoritys_own_bytes_are_changed_only_when_somebody_says_so() -> None:
    mending = LEGACY._replace(may_mend_authority=True)
    assert plan(Held(3, TORN), Held(3, B), LEGACY)[0] is Action.LEAVE
    assert plan(Held(3, TORN), Held(2, B), mending)[0] is Action.LEAVE
    assert plan(Held(3, TORN), Held(3, TORN), mending)[0] is Action.LEAVE
    step = plan_latest(COLUMN, Held(3, TORN), Held(3, B), None, mending)
    assert (step.action, step.body, step.is_of_authority) == (Action.MEND, B, True)


@pytest.mark.parametrize(
    ("ours", "theirs", "powers", "action"),
    [
        (Held(3, A), Held(3, A), LIFTABLE, Action.NOTHING),
        (Held(3, A), None, LIFTABLE, Action.PUT),
        (Held(3, A), Held(3, B), LIFTABLE, Action.MEND),
        (None, Held(3, B), LIFTABLE, Action.PURGE),
        (None, Held(3, B), FORGETFUL, Action.LEAVE),
        (None, None, LIFTABLE, Action.NOTHING),
        (NOBODY_KNOWS, Held(3, B), LIFTABLE, Action.LEAVE),
        (NOBODY_KNOWS, Held(3, TORN), LIFTABLE, Action.PURGE),
        (NOBODY_KNOWS, None, LIFTABLE, Action.NOTHING),
        (Held(3, A), Held(3, B), LEGACY, Action.LEAVE),
    ],
)
def test_no_lift_reaches_an_older_version(ours: Version, theirs: Held | None, powers: Powers, action: Action) -> None:
    assert plan_older(CellKey(*COLUMN, 3), ours, theirs, powers).action is action
