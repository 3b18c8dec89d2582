"""A put with two copies, its replayers and the loss of any one server, in every order (I1, I5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemaless_core.buffers import steps
from tests.explorer.explorer import Found, explore
from tests.explorer.second_copies import SecondModel, SecondRules
from tests.explorer.test_explorer import story
from tests.explorer.world import Violation

#: More than there are.
WORLDS_MAX = 500_000


def explored(rules: SecondRules) -> Found:
    return explore(SecondModel(rules), Violation, WORLDS_MAX)


def test_i1_i5_whatever_server_is_lost_what_two_have_is_found() -> None:
    found = explored(SecondRules())

    assert not found.violation, story(found)
    assert found.is_complete
    print(f"explorer: a second copy: {found.worlds:,} worlds")


def test_the_replayer_takes_the_step_that_asks_replicas() -> None:
    model = SecondModel(SecondRules())
    explore(model, Violation, WORLDS_MAX)

    assert steps.REPLICAS in {node.step for program in model.programs for node in program.nodes}


@pytest.mark.parametrize("rule", SecondRules.__dataclass_fields__)
def test_control_a_rule_of_second_copies_that_is_taken_away_is_missed(rule: str) -> None:
    found = explored(replace(SecondRules(), **{rule: False}))

    assert found.violation.startswith("I1: "), story(found)
