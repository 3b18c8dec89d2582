"""How a relay paces itself, and what the mirror's status says is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tripstore.backends.postgres.handover.queue import QueueLook
from tripstore.config import MirrorConfig
from tripstore.facade.flags import Flags
from tripstore.facade.known import Known
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.relay import CHANGES_PER_CLAIM
from tripstore.migration.mirror.pace import (
    FIRST_LIMIT,
    LIMIT_MIN,
    POLL_SECONDS,
    POLL_SECONDS_MAX,
    POLL_SECONDS_READ,
    QUICK_SECONDS,
    REST_SECONDS_MAX,
    SLOW_SECONDS,
    WAITING_SECONDS,
    WORTH_A_CLAIM,
    Carried,
    RelayPace,
)
from tripstore.migration.mirror.relays import Relay
from tripstore.migration.mirror.status import LATE_SECONDS, ForwardStatus, MirrorStatus, ReverseStatus
from tripstore.phase import Phase

QUICK, SLOW = QUICK_SECONDS / 2, SLOW_SECONDS * 2
NOTHING = Carried(0, 0, 0)
STUCK = Carried(7, 0, 0)


def full(pace: RelayPace) -> Carried:
    return Carried(pace.limit, pace.limit, 0)


def test_a_full_claim_is_followed_at_once_by_a_larger_one() -> None:
    pace = RelayPace()

    rests = [pace.after(full(pace), QUICK) for _ in range(10)]

    assert set(rests) == {0.0}
    assert pace.limit == CHANGES_PER_CLAIM


def test_an_empty_queue_is_polled_and_what_a_claim_took_is_part_of_the_pause() -> None:
    pace = RelayPace()

    assert pace.after(NOTHING, 0.0) == POLL_SECONDS_MAX
    assert pace.after(Carried(1, 1, 0), POLL_SECONDS_MAX / 4) == POLL_SECONDS_MAX * 3 / 4
    assert pace.after(Carried(1, 1, 0), POLL_SECONDS_MAX) == 0.0
    assert pace.limit == FIRST_LIMIT


@pytest.mark.parametrize(
    ("per_second", "poll_seconds"), [(1000, POLL_SECONDS), (WORTH_A_CLAIM / 0.03, 0.03), (50, POLL_SECONDS_MAX)]
)
def test_a_claim_waits_until_it_is_worth_its_commit(per_second: float, poll_seconds: float) -> None:
    """The more comes the more often it is carried, within bounds."""
    pace, rest = RelayPace(), POLL_SECONDS

    came = carried = 0.0
    for _ in range(200):
        came += per_second * rest
        claimed = int(came - carried)
        carried += claimed
        rest = pace.after(Carried(claimed, claimed, 0), 0.0)

    assert rest == pytest.approx(poll_seconds, rel=0.15)


def test_while_callers_get_answers_of_the_mirror_it_is_never_left_behind_for_long() -> None:
    pace = RelayPace()

    assert pace.after(NOTHING, 0.0, is_read=True) == POLL_SECONDS_READ
    assert pace.after(NOTHING, 0.0) == POLL_SECONDS_MAX
    assert MirrorConfig().max_lag_seconds / 2 < POLL_SECONDS_READ < MirrorConfig().max_lag_seconds


class Idle:
    """A carrier with nothing to carry."""

    def carry(self, _limit: int) -> Carried:
        return NOTHING


@pytest.mark.parametrize("is_read", [True, False])
def test_a_relay_hears_of_cohorts_at_each_turn(is_read: bool) -> None:
    idle: Any = Idle()
    heard = iter([not is_read, is_read])
    relay = Relay(idle, lambda: QueueLook(0, 0, 0.0), lambda: True, lambda: next(heard), clock=lambda: 7.0)

    rests = [relay.turn(), relay.turn()]

    assert rests[1] == (POLL_SECONDS_READ if is_read else POLL_SECONDS_MAX)
    assert rests[0] != rests[1]


@pytest.mark.parametrize("phase", [Phase.SHADOW, Phase.LIVE, Phase.DUALWRITE])
@pytest.mark.parametrize("percent", [0.0, 5.0])
def test_a_cohort_is_known_where_the_mirror_answers_some(phase: Phase, percent: float) -> None:
    known = Known()
    assert not known.has_cohort

    known.learn_authority(Authority(2 if phase is Phase.LIVE else 1, phase.authority))
    known.learn_flags(Flags().with_phase(phase).with_cohorts(phase.authority, {"get_row": percent}))

    assert known.has_cohort is (phase is not Phase.DUALWRITE and percent > 0)


def test_a_slow_mirror_is_asked_for_less_but_never_for_nothing() -> None:
    pace = RelayPace()

    rests = [pace.after(full(pace), SLOW) for _ in range(10)]

    assert set(rests) == {0.0}
    assert pace.limit == LIMIT_MIN


def test_behind_changes_that_no_relay_takes_others_are_sought() -> None:
    pace = RelayPace()

    for _ in range(10):
        pace.after(Carried(pace.limit, 0, 0), QUICK)

    assert pace.limit == CHANGES_PER_CLAIM


def test_where_nothing_is_known_less_is_asked_for() -> None:
    pace = RelayPace()

    rests = [pace.after_failure() for _ in range(12)]

    assert (rests[0], rests[-1], pace.limit) == (POLL_SECONDS, REST_SECONDS_MAX, LIMIT_MIN)


def test_rests_grow_while_nothing_is_taken_and_end_with_the_first_cell_that_is() -> None:
    pace = RelayPace()

    rests = [pace.after(STUCK, QUICK) for _ in range(12)]

    assert rests[0] == POLL_SECONDS
    assert rests == sorted(rests)
    assert rests[-1] == REST_SECONDS_MAX
    assert pace.after(Carried(7, 1, 0), QUICK) == WAITING_SECONDS
    assert pace.after(Carried(7, 6, 0), POLL_SECONDS_MAX) == 0.0
    assert pace.after(STUCK, QUICK) == POLL_SECONDS


@pytest.mark.parametrize(
    ("carried", "is_stuck"),
    [(NOTHING, False), (STUCK, True), (Carried(7, 0, 7), False), (Carried(7, 0, 1), False), (Carried(7, 7, 0), False)],
)
def test_what_was_set_aside_is_no_standstill(carried: Carried, is_stuck: bool) -> None:
    assert carried.is_stuck is is_stuck


FINE = ReverseStatus(0, 0.0, 0, "", 0, 0)
LEGACY, STORE = Authority(4, Backend.LEGACY), Authority(6, Backend.STORE)


def status(phase: Phase, **parts: Any) -> MirrorStatus:
    row = LEGACY if phase.authority is Backend.LEGACY else STORE
    return MirrorStatus(phase, row, **({"forward": ForwardStatus(0, 0.0, 0), "reverse": FINE, "problems": ()} | parts))


@pytest.mark.parametrize(
    ("phase", "direction"),
    [
        (Phase.OFF, None),
        (Phase.DUALWRITE, "forward"),
        (Phase.SHADOW, "forward"),
        (Phase.LIVE, "reverse"),
        (Phase.RAMPDOWN, "reverse"),
        (Phase.COMPLETE, None),
    ],
)
def test_the_direction_is_that_of_the_phase(phase: Phase, direction: str | None) -> None:
    assert status(phase).direction == direction


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"forward": ForwardStatus(3, LATE_SECONDS + 1, 0)}, "tripstore worker run"),
        ({"forward": ForwardStatus(0, 0.0, 2)}, "2 changes are parked; `tripstore mirror parked`"),
        ({"reverse": None}, "tripstore schema apply"),
        ({"reverse": FINE._replace(halted="too many")}, "HALTED: too many"),
        ({"reverse": FINE._replace(unserved=4)}, "no worker serves 4 shards"),
        ({"reverse": FINE._replace(unknown=4)}, "the servers of 4 shards do not answer"),
        ({"reverse": FINE._replace(parked=1)}, "tripstore mirror parked --reverse"),
        ({"problems": ("the control database is down",), "reverse": None}, "the control database is down"),
    ],
)
def test_whatever_is_wrong_is_said_with_its_way_out(parts: dict[str, Any], said: str) -> None:
    seen = status(Phase.SHADOW, **parts)

    [advice] = seen.advice()

    assert said in advice
    assert not seen.is_fine


@pytest.mark.parametrize("phase", Phase)
def test_a_mirror_that_keeps_up_is_fine(phase: Phase) -> None:
    assert status(phase, forward=ForwardStatus(12, 0.02, 0)).is_fine


@pytest.mark.parametrize("phase", [Phase.OFF, Phase.COMPLETE])
def test_where_nothing_is_mirrored_nothing_is_missed(phase: Phase) -> None:
    assert status(phase, forward=ForwardStatus(9, 1e6, 1), reverse=None).is_fine


@pytest.mark.parametrize("phase", [Phase.LIVE, Phase.RAMPDOWN])
def test_backwards_the_queue_of_postgres_says_nothing(phase: Phase) -> None:
    assert status(phase, forward=ForwardStatus(9, 1e6, 0)).is_fine
