"""Each gate refuses alone: from facts with which every gate is content, one is taken away."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from math import inf
from typing import Any

import pytest

from tripstore.handover import switch
from tripstore.handover.authority import Authority, Backend, HandOverFacts
from tripstore.migration.cutover.facts import (
    BreachFacts,
    CaptureFacts,
    DiffScope,
    Facts,
    IndexFacts,
    JobFacts,
    KeyFacts,
    LeftJob,
    MirrorFacts,
    OperationFacts,
    PurgedFacts,
    ReverseFacts,
    ServerFacts,
    Unknown,
    UseFacts,
    WriterFacts,
)
from tripstore.migration.cutover.plan import Direction, plan
from tripstore.migration.cutover.verdicts import GateVerdict, refusals
from tripstore.phase import Phase
from tripstore.thresholds import CutoverSettings

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SETTINGS = CutoverSettings()
SILENT = Unknown("it does not answer")
REVERSE = ReverseFacts(True, 64, unserved=0, unknown=0, lag_cells=3, lag_seconds=0.1, parked=0, equal=5000)
INDEX = IndexFacts("driver_partner_index", 1, NOW - timedelta(hours=1))
OPERATION = OperationFacts("get_cell_latest", 5000, 0, 12, 40.0)
EXPERIMENT = replace(OPERATION, operation="billing.unpaid")
JOB = JobFacts(NOW - timedelta(hours=2), True, 1_000_000)

FINE = Facts(
    at=NOW,
    authority=Authority(4, Backend.LEGACY),
    phase=Phase.SHADOW,
    capture=CaptureFacts(NOW - timedelta(days=1)),
    backfill=JOB,
    diff=JOB,
    mirror=MirrorFacts(queued=2, parked=0, oldest_seconds=0.01),
    reverse=REVERSE,
    buffered=0,
    indexes=(INDEX,),
    operations=(OPERATION,),
    servers=(ServerFacts("postgres"), ServerFacts("a:3306")),
    writers=(WriterFacts(7, 0.02),),
    keys=(KeyFacts("trip_notes", 0, 5000, False),),
)
FINE_BACK = replace(FINE, authority=Authority(6, Backend.STORE), phase=Phase.LIVE)


def judged(facts: Facts, direction: Direction = Direction.FORWARD) -> list[GateVerdict]:
    return refusals(list(plan(direction, facts, SETTINGS).verdicts))


def test_with_everything_in_order_no_gate_refuses() -> None:
    assert judged(FINE) == []
    assert judged(FINE_BACK, Direction.BACK) == []


FORWARD: dict[str, list[dict[str, object]]] = {
    "authority": [
        {"authority": Authority(5, Backend.LEGACY, Backend.STORE, "x")},
        {"authority": Authority(6, Backend.STORE)},
        {"authority": SILENT},
    ],
    "phase": [{"phase": Phase.DUALWRITE}, {"phase": Phase.OFF}, {"phase": SILENT}],
    "servers": [
        {"servers": (ServerFacts("postgres"), ServerFacts("a:3306", "connection refused"))},
        {"servers": (ServerFacts("a:3306", shards_missing=3),)},
    ],
    "capture": [
        {"capture": CaptureFacts(None)},
        {"capture": CaptureFacts(NOW - timedelta(days=1), None, (), BreachFacts(1, NOW, "notes_0 was dropped"))},
        {"capture": CaptureFacts(None, "public.trips was truncated")},
        {"capture": CaptureFacts(NOW - timedelta(days=1), None, ("trips: trigger x is missing",))},
        {"capture": CaptureFacts(NOW - timedelta(days=1), barred=(("sequence s: we may not draw", "GRANT x"),))},
        {"capture": SILENT},
    ],
    "row keys": [
        {"keys": (KeyFacts("notes", 0, 9, True), KeyFacts("payments", 1, 5000, False))},
        {"keys": SILENT},
    ],
    "lost changes": [
        {"accepted": HandOverFacts(4, NOW - timedelta(hours=9))},
        {"accepted": HandOverFacts(4, NOW), "losses": replace(JOB, epoch=3)},
        {"accepted": HandOverFacts(4, NOW), "losses": replace(JOB, epoch=4, open=1)},
        {"accepted": HandOverFacts(4, NOW), "losses": replace(JOB, epoch=4, not_compared=1)},
        {"accepted": HandOverFacts(4, NOW), "losses": replace(JOB, epoch=4, is_complete=False)},
        {"accepted": HandOverFacts(4, NOW), "losses": replace(JOB, epoch=4, is_partial=True)},
        {"accepted": HandOverFacts(4, NOW), "losses": SILENT},
        {"accepted": SILENT},
    ],
    "backfill": [
        {"backfill": None},
        {"backfill": replace(JOB, is_complete=False)},
        {"backfill": replace(JOB, open=1)},
        {"backfill": replace(JOB, begun_at=NOW - timedelta(days=2))},
        {"backfill": replace(JOB, capture_since=NOW - timedelta(days=3))},
        {"backfill": replace(JOB, is_partial=True)},
        {"backfill": SILENT},
    ],
    "diff": [
        {"diff": None},
        {"diff": replace(JOB, is_complete=False)},
        {"diff": replace(JOB, open=1)},
        {"diff": replace(JOB, not_compared=1)},
        {"diff": replace(JOB, begun_at=NOW - timedelta(days=2))},
        {"diff": replace(JOB, begun_at=NOW - timedelta(hours=3))},
        {"backfill": replace(JOB, ended_at=NOW - timedelta(hours=1))},
        {"diff": replace(JOB, is_partial=True)},
        {"diff": SILENT},
        {"handed_over": HandOverFacts(4, NOW - timedelta(hours=1))},
        {"handed_over": HandOverFacts(4, NOW - timedelta(hours=3)), "diff": replace(JOB, epoch=3)},
        {"handed_over": SILENT},
    ],
    "mirror lag": [
        {"mirror": MirrorFacts(501, 0, 0.5)},
        {"mirror": MirrorFacts(1, 0, 1.5)},
    ],
    "parked changes": [{"mirror": MirrorFacts(1, 1, 0.0)}],
    "purged rows": [{"purged": PurgedFacts(1, ("a row",))}, {"purged": SILENT}],
    "buffered cells": [{"buffered": 1}, {"buffered": SILENT}],
    "index driver_partner_index": [
        {"indexes": (replace(INDEX, version=None),)},
        {"indexes": (replace(INDEX, verified_at=None),)},
        {"indexes": (replace(INDEX, verified_at=NOW - timedelta(days=8)),)},
        {"indexes": (replace(INDEX, differences=1),)},
        {"indexes": (replace(INDEX, not_compared=1),)},
        {"indexes": (replace(INDEX, lag_cells=501),)},
    ],
    "indexes": [{"indexes": SILENT}],
    "rehearsal": [
        {"reverse": None},
        {"reverse": replace(REVERSE, is_running=False)},
        {"reverse": replace(REVERSE, unserved=1)},
        {"reverse": replace(REVERSE, unknown=1)},
        {"reverse": replace(REVERSE, lag_cells=501)},
        {"reverse": replace(REVERSE, lag_seconds=1.5)},
        {"reverse": replace(REVERSE, equal=99)},
        {"reverse": replace(REVERSE, equal=99, different=5000, not_compared=5000)},
    ],
    "parked cells": [{"reverse": replace(REVERSE, parked=1)}],
    "comparisons": [{"operations": ()}, {"operations": SILENT}],
    "comparisons of get_cell_latest": [
        {"operations": (replace(OPERATION, compared=0),)},
        {"operations": (replace(OPERATION, compared=2994),)},
        {"operations": (replace(OPERATION, mismatches=2),)},
        {"operations": (replace(OPERATION, compared=0, ignored=5000),)},
        {"operations": (replace(OPERATION, compared=3000, not_compared=10_000_003),)},
        {"operations": (replace(OPERATION, not_compared=51),)},
        {"operations": (replace(OPERATION, compared=0, not_compared=1000, by_reason={"incomparable": 1000}),)},
        {"operations": (replace(OPERATION, compared=0, not_compared=2, by_reason={"busy": 2}),)},
        {"operations": (replace(OPERATION, operation="get_row"), replace(OPERATION, mismatches=5))},
    ],
    "experiment billing.unpaid": [
        {"experiments": (replace(EXPERIMENT, compared=0, calls=None),)},
        {"experiments": (replace(EXPERIMENT, mismatches=2),)},
        {"experiments": (replace(EXPERIMENT, not_compared=60, by_reason={"session": 60}),)},
        {"experiments": (replace(EXPERIMENT, compared=0, not_compared=2, by_reason={"incomparable": 2}),)},
        {"experiments": (replace(EXPERIMENT, operation="other"), replace(EXPERIMENT, mismatches=2))},
    ],
    "rewritten queries": [{"experiments": SILENT}],
    "remaining uses of billing": [
        {"uses": (UseFacts("riders", 5, (), True), UseFacts("billing", 5, ("bills.py:7",), True))},
        {"uses": (UseFacts("billing", 0, (), False),)},
    ],
    "remaining uses": [{"uses": SILENT}],
    "layouts": [{"stale": ("2 sessions from 10.0.0.7 go by layout cf6c (one is pid 8)",)}, {"stale": SILENT}],
    "writers": [
        {"writers": (WriterFacts(7, 0.1), WriterFacts(8, 1.5, "billing"))},
        {"writers": (WriterFacts(None, inf, prepared="payroll"),)},
        {"writers": SILENT},
    ],
}
CASES = [(name, changed) for name, all_changed in FORWARD.items() for changed in all_changed]


@pytest.mark.parametrize(("name", "changed"), CASES, ids=[f"{name}-{n}" for n, (name, _) in enumerate(CASES)])
def test_one_gate_refuses_a_switch_and_says_what_to_do(name: str, changed: dict[str, object]) -> None:
    (refused,) = judged(replace(FINE, **changed))  # type: ignore[arg-type]  # a fact each

    assert refused.name == name
    assert refused.said
    assert refused.wanted
    assert refused.hint


def test_a_diff_since_the_last_hand_over_will_do() -> None:
    """By the row's epochs where the job noted one: they need no two servers' clocks."""
    moved = HandOverFacts(4, NOW - timedelta(hours=3))

    assert judged(replace(FINE, handed_over=moved)) == []
    late = replace(moved, at=NOW - timedelta(hours=1))
    assert judged(replace(FINE, handed_over=late, diff=replace(JOB, epoch=4))) == []


def test_every_gate_of_a_switch_has_its_case() -> None:
    names = {verdict.name for verdict in plan(Direction.FORWARD, FINE, SETTINGS).verdicts}

    others = {"indexes", "comparisons", "lost changes", "experiment billing.unpaid", "remaining uses of billing"}
    assert names | others == set(FORWARD)


def test_without_experiments_and_audits_a_switch_is_told_so_and_not_refused() -> None:
    said = {verdict.name: verdict.said for verdict in plan(Direction.FORWARD, FINE, SETTINGS).verdicts}

    assert said["rewritten queries"] == "no experiment is registered, so nothing is known of rewritten queries"
    assert said["remaining uses"] == "no audit is registered, so nothing is known of uses that remain"


def test_what_is_proven_and_has_reasons_passes() -> None:
    found = plan(
        Direction.FORWARD,
        replace(FINE, experiments=(EXPERIMENT,), uses=(UseFacts("billing", 5, (), True, date(2026, 3, 1)),)),
        SETTINGS,
    )
    passed = {verdict.name: verdict.is_passed for verdict in found.verdicts}
    said = {verdict.name: verdict.said for verdict in found.verdicts}

    assert said["remaining uses of billing"].endswith("by the audit of 2026-03-01"), "of code since, it knows nothing"

    assert passed["experiment billing.unpaid"]
    assert passed["remaining uses of billing"]


BACK = [
    ("authority", {"authority": Authority(4, Backend.LEGACY)}),
    ("phase", {"phase": Phase.COMPLETE}),
    ("servers", {"servers": (ServerFacts("postgres", "connection refused"),)}),
    ("capture", {"capture": CaptureFacts(None)}),
    ("capture", {"capture": CaptureFacts(NOW, barred=(("sequence s: we may not draw", "GRANT x"),))}),
    ("reverse mirror", {"reverse": None}),
    ("reverse mirror", {"reverse": replace(REVERSE, unserved=64)}),
    ("reverse mirror", {"reverse": replace(REVERSE, lag_cells=501)}),
    ("parked cells", {"reverse": replace(REVERSE, parked=1)}),
    ("direct writers", {"direct_changes": 1}),
    ("direct writers", {"direct_changes": SILENT}),
    ("layouts", {"stale": ("2 sessions from 10.0.0.7 go by layout cf6c (one is pid 8)",)}),
    ("layouts", {"stale": SILENT}),
    ("buffered cells", {"buffered": 2}),
]


@pytest.mark.parametrize(("name", "changed"), BACK)
def test_one_gate_refuses_the_way_back(name: str, changed: dict[str, object]) -> None:
    (refused,) = judged(replace(FINE_BACK, **changed), Direction.BACK)  # type: ignore[arg-type]  # a fact each

    assert refused.name == name
    assert refused.hint


def test_every_gate_of_the_way_back_has_its_case() -> None:
    assert {verdict.name for verdict in plan(Direction.BACK, FINE_BACK, SETTINGS).verdicts} == {
        name for name, _ in BACK
    }


@pytest.mark.parametrize(
    ("facts", "direction", "commands"),
    [
        (replace(FINE, phase=Phase.OFF), Direction.FORWARD, ["phase set dualwrite", "phase set shadow"]),
        (replace(FINE_BACK, phase=Phase.RAMPDOWN), Direction.FORWARD, ["cutover reverse"]),
        (FINE, Direction.BACK, ["cutover switch"]),
    ],
)
def test_the_advice_of_the_phase_skips_none_and_moves_authority_by_a_hand_over(
    facts: Facts, direction: Direction, commands: list[str]
) -> None:
    """`phase set` refuses both."""
    (refused,) = (each for each in judged(facts, direction) if each.name == "phase")

    assert re.findall("`tripstore ([^`]+)`", refused.hint) == commands


def test_an_unknown_fact_fails_every_gate_that_needs_it() -> None:
    """I12: the lag of a mirror that does not answer is none that is small."""
    assert {each.name for each in judged(replace(FINE, mirror=SILENT))} == {"mirror lag", "parked changes"}
    assert {each.name for each in judged(replace(FINE, reverse=SILENT))} == {"rehearsal", "parked cells"}


def test_parked_changes_whose_rows_were_mended_have_a_way_out() -> None:
    """No retry carries a version that a later one replaced, and that no cell can be made of."""
    (refusal,) = judged(replace(FINE, mirror=MirrorFacts(19, 19, 0.0)))

    assert refusal.name == "parked changes"
    assert "`tripstore mirror skip` gives up" in refusal.hint


def test_the_refusal_says_how_many_more_comparisons_and_how_long_they_take() -> None:
    facts = replace(FINE, operations=(replace(OPERATION, compared=995, per_second=2.0),))

    (refused,) = judged(facts)

    assert "2,000 more" in refused.hint
    assert "0:16:40 at 2 a second" in refused.hint


def test_where_nothing_is_compared_no_time_is_estimated() -> None:
    (refused,) = judged(replace(FINE, operations=(replace(OPERATION, compared=995, per_second=0.0),)))

    assert "the time is unknown" in refused.hint


def test_reads_that_were_not_compared_are_none_that_are_equal() -> None:
    """I12."""
    (refused,) = judged(replace(FINE, operations=(replace(OPERATION, compared=10, not_compared=1_000_000),)))

    assert "1,000,000 not compared" in refused.said


def test_what_a_rule_ignores_is_no_comparison() -> None:
    """I12: it is told beside the numbers, and takes nothing from them either."""
    (refused,) = judged(replace(FINE, operations=(replace(OPERATION, compared=0, ignored=5000),)))

    assert refused.said.startswith("0 mismatches in 0 comparisons, rate below 100 %; 5,000 ignored")
    assert "shadow.ignores" in refused.hint
    assert judged(replace(FINE, operations=(replace(OPERATION, ignored=1_000_000),))) == []


def test_i12_one_read_that_cannot_be_compared_excuses_nothing_that_a_rule_ignores() -> None:
    """Each sampled read differed and was explained by a rule, but for one: nothing was found equal."""
    rare = replace(OPERATION, compared=0, not_compared=1, by_reason={"incomparable": 1})
    assert judged(replace(FINE, operations=(rare,))) == []  # the control: alone it is excused

    (refused,) = judged(replace(FINE, operations=(replace(rare, ignored=5000),)))

    assert refused.said.startswith("0 mismatches in 0 comparisons")


def test_above_a_share_that_was_not_compared_the_gate_says_why_they_were_not() -> None:
    """I12: 3,000 equal ones say nothing of ten million others."""
    many = replace(OPERATION, compared=3000, not_compared=10_000_003, by_reason={"busy": 3, "queue_full": 10_000_000})
    (refused,) = judged(replace(FINE, operations=(many,)))

    assert "10,000,003 not compared (10,000,000 queue_full, 3 busy)" in refused.said
    assert "at most 1 % not compared" in refused.wanted
    assert refused.hint.startswith("99.97 % of the samples were not compared: `tripstore shadow set --share 0.01`")
    assert "989,997,297 more comparisons" in refused.hint


@pytest.mark.parametrize(("share", "is_refused"), [(0.01, True), (0.5, True), (0.9999, False), (1.0, False)])
def test_the_share_that_may_lack_a_verdict_is_configured(share: float, is_refused: bool) -> None:
    facts = replace(FINE, operations=(replace(OPERATION, compared=5000, not_compared=1_000_000),))

    refused = plan(Direction.FORWARD, facts, CutoverSettings(not_compared_share_max=share)).refusals

    assert bool(refused) is is_refused


def test_so_many_comparisons_as_the_refusal_says_would_do() -> None:
    uncompared = replace(OPERATION, compared=3000, not_compared=77)
    (refused,) = judged(replace(FINE, operations=(uncompared,)))
    more = int(refused.hint.split(". ")[1].split(" more")[0].replace(",", ""))

    assert judged(replace(FINE, operations=(replace(uncompared, compared=3000 + more),))) == []
    assert judged(replace(FINE, operations=(replace(uncompared, compared=3000 + more - 1),))) != []


def test_a_few_reads_that_can_never_be_compared_are_not_waited_for() -> None:
    """Of rows from before capture Postgres has no older versions: no history of them can be compared."""
    history = OperationFacts("get_history", 0, 0, 2, by_reason={"incomparable": 2})

    assert judged(replace(FINE, operations=(OPERATION, history))) == []
    (passed,) = (
        each
        for each in plan(Direction.FORWARD, replace(FINE, operations=(OPERATION, history)), SETTINGS).verdicts
        if each.name == "comparisons of get_history"
    )
    assert "none can be compared" in passed.said
    assert "2 incomparable" in passed.said


def test_a_few_reads_that_were_equal_are_not_waited_for_beside_an_operation_that_is_proven() -> None:
    """Two calls by hand would be compared a thousand times in years; one of them that differed is another thing."""
    rare = OperationFacts("get_history", 2, 0, calls=3)

    assert judged(replace(FINE, operations=(OPERATION, rare))) == []
    (passed,) = (
        each
        for each in plan(Direction.FORWARD, replace(FINE, operations=(OPERATION, rare)), SETTINGS).verdicts
        if each.name == "comparisons of get_history"
    )
    assert passed.said.startswith("0 mismatches in 2 comparisons")
    assert passed.said.endswith("; 3 calls in 168 hours, and the gate waits for no more")


@pytest.mark.parametrize(
    "refused",
    [
        OperationFacts("get_history", 2, 1, calls=3),
        OperationFacts("get_history", 2, 0, 1, calls=3),  # a third of them lacks a verdict
        OperationFacts("get_history", 0, 0, ignored=2, calls=3),
        OperationFacts("get_history", 2, 0, calls=1),  # calls are written down later
        OperationFacts("get_history", 2, 0, calls=1000),
        OperationFacts("get_history", 2, 0),
    ],
)
def test_control_few_comparisons_that_say_less_are_waited_for(refused: OperationFacts) -> None:
    assert [each.name for each in judged(replace(FINE, operations=(OPERATION, refused)))] == [
        "comparisons of get_history"
    ]


def test_control_operations_that_are_all_rare_prove_nothing() -> None:
    rare = (OperationFacts("get_history", 2, 0, calls=3), OperationFacts("get_row", 900, 0, calls=999))

    assert len(judged(replace(FINE, operations=rare))) == 2


def test_many_reads_that_can_never_be_compared_are_accepted_by_name() -> None:
    history = OperationFacts("get_history", 4000, 0, 60_000, by_reason={"incomparable": 60_000})
    facts = replace(FINE, operations=(OPERATION, history, replace(history, operation="get_row")))
    accepted = CutoverSettings(incomparable=("get_history",))

    assert {each.name for each in judged(facts)} == {"comparisons of get_history", "comparisons of get_row"}
    (refused,) = plan(Direction.FORWARD, facts, accepted).refusals
    assert refused.name == "comparisons of get_row"
    assert "cutover.incomparable" in refused.hint
    busy = replace(history, by_reason={"busy": 60_000})
    assert plan(Direction.FORWARD, replace(FINE, operations=(busy,)), accepted).refusals, "another reason is none"


CLOSER = LeftJob("diff-1", 50_034, 0, DiffScope(1.0, 500, 1), is_ended=True)


def test_a_diff_that_another_one_left_open_names_it_and_how_to_look_as_closely() -> None:
    """The newest diff found all equal: its own list shows nothing of what the closer one found."""
    (refused,) = judged(replace(FINE, diff=replace(JOB, job="diff-2", open=50_034, left=(CLOSER,))))

    assert refused.said == "50,034 open, 0 not compared, left by diff-1"
    assert "`tripstore diff show diff-1`" in refused.hint
    assert "`tripstore repair --diff diff-1`" in refused.hint
    assert "`tripstore diff start --older all --decoded 500` compares anew" in refused.hint


@pytest.mark.parametrize(
    ("changed", "command"),
    [
        ({"is_partial": True}, "backfill start"),
        ({"is_complete": False}, "backfill resume backfill-1"),
        ({"is_complete": False, "ended_at": NOW - timedelta(hours=2)}, "backfill start"),
        ({"open": 1, "left": (LeftJob("backfill-1", 1, 0, DiffScope(), True),)}, "backfill show backfill-1"),
        ({"open": 1, "left": (LeftJob("backfill-1", 1, 0, DiffScope(), False),)}, "backfill resume backfill-1"),
        ({"begun_at": NOW - timedelta(days=2)}, "backfill start"),
    ],
)
def test_a_refused_backfill_advises_what_comes_next_first(changed: dict[str, Any], command: str) -> None:
    (refused,) = judged(replace(FINE, backfill=replace(JOB, job="backfill-1", **changed)))

    assert re.findall("`tripstore ([^`]+)`", refused.hint)[0] == command


def test_an_index_check_that_is_behind_says_so_before_all_else() -> None:
    (refused,) = judged(replace(FINE, indexes=(replace(INDEX, lag_cells=1003, not_compared=7),)))

    assert "it is behind by 1,003 cells" in refused.said
    assert refused.hint.startswith("`tripstore worker run` serves it")
    assert "`tripstore index verify driver_partner_index --version 1`" in refused.hint


def test_cells_that_were_not_compared_are_no_rehearsal() -> None:
    """I12."""
    (refused,) = judged(replace(FINE, reverse=replace(REVERSE, equal=3, different=2, not_compared=1_000_000)))

    assert refused.said == "3 cells equal, 2 different, 1,000,000 not compared"


def test_the_way_back_says_how_many_changes_would_rise_from_the_dead_and_what_to_do() -> None:
    (refused,) = judged(replace(FINE_BACK, direct_changes=1234), Direction.BACK)

    assert refused.said == "1,234 changes"
    assert "through the facade" in refused.hint
    assert "--force" in refused.hint


def test_enough_comparisons_are_wanted_whatever_the_bound_says() -> None:
    settings = CutoverSettings(mismatch_rate_max=0.5)
    facts = replace(FINE, operations=(replace(OPERATION, compared=999, not_compared=0),))

    (refused,) = plan(Direction.FORWARD, facts, settings).refusals

    assert refused.hint.startswith("1 more")


def test_no_index_is_no_trouble() -> None:
    assert judged(replace(FINE, indexes=())) == []


def test_a_plan_shows_the_steps_that_are_done() -> None:
    assert plan(Direction.FORWARD, FINE, SETTINGS).steps == switch.FORWARD
    assert plan(Direction.BACK, FINE_BACK, SETTINGS).steps == switch.BACK
