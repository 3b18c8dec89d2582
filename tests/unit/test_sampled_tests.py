"""What CI leaves to soak: of a test's variants some, always the same ones, and of controls none."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import EVERY_SCENE, EVERY_VARIANT, sampled

TESTS = Path(__file__).parents[1]
TEST = "tests/integration/test_a.py::test_it"


def variants(count: int, test: str = TEST) -> set[str]:
    return {f"{test}[{n}]" for n in range(count)}


def test_one_of_some_variants_is_left_and_more_of_many() -> None:
    assert [len(sampled(variants(count))) for count in (1, EVERY_VARIANT, EVERY_VARIANT + 1)] == [1, 1, 2]


def test_of_scenes_fewer_are_left_out() -> None:
    scenes = variants(2 * EVERY_SCENE + 1, "tests/explorer/test_a.py::test_every_order")

    assert len(sampled(scenes)) == 3


def test_which_ones_is_drawn_by_their_names_and_always_the_same() -> None:
    left = [sampled(variants(40, f"{TEST}_{n}")) for n in range(20)]

    assert left == [sampled(variants(40, f"{TEST}_{n}")) for n in range(20)]
    assert len({frozenset(name.partition("[")[2] for name in names) for names in left}) > 1


def test_each_test_runs_and_those_of_the_contract_and_units_whole() -> None:
    alone = {"tests/integration/test_a.py::test_alone", "tests/chaos/test_b.py::test_alone"}
    whole = variants(9, "tests/contract/test_c.py::test_it") | variants(9, "tests/unit/test_d.py::test_it")

    assert sampled(alone | whole) == alone | whole


def test_controls_run_whole_by_the_name_of_the_test_or_of_the_variant() -> None:
    named = variants(9, "tests/chaos/test_b.py::test_control_a_rule_that_is_taken_away")
    beside = {f"{TEST}[as it is]", f"{TEST}[control: without a look]", f"{TEST}[control: without a fence]"}

    assert sampled(named | beside) == named | beside


def test_a_file_that_is_named_for_the_control_database_is_no_control() -> None:
    assert len(sampled(variants(4, "tests/integration/test_control_restored.py::test_it"))) == 1


def test_what_is_left_to_soak_names_a_test_that_shows_the_same() -> None:
    """The control: a test of another name would not be found."""
    marked = re.compile(r'mark\.shown\("([^"]+)::(\w+)"\)')
    named = [found for file in TESTS.rglob("test_*.py") for found in marked.findall(file.read_text())]

    assert named
    assert [place for place, test in named if not defines(place, test)] == []
    assert not defines(named[0][0], f"{named[0][1]}_another")


def defines(place: str, test: str) -> bool:
    """Whether a file has a test of this name, which CI runs."""
    found = re.search(rf"((?:@.*\n)*)def {test}\(", (TESTS.parent / place).read_text())
    return found is not None and "mark.shown" not in found[1]
