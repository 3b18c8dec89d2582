"""What may be done to a mapped table in which phase: the table of the docs, each cell of it tried (I8, I12).

A deed that leaves the stores different while `doctor` and the gate are content would come out as `WRONG`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.facades import Migration, migration
from tests.scale import SCALE
from tests.stores import Stores
from tests.table_changes import DEEDS, PARTITIONED, ROWS, complete, do, named, table
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "describe-your-tables.md"
DEED = dict(named())
#: Phases that have a column of the table together, the one that CI tries first.
BEFORE = (Phase.DUALWRITE, Phase.OFF, Phase.SHADOW)
AFTER = (Phase.LIVE, Phase.RAMPDOWN)
POSTGRES = ("postgres", "postgres18")


def _said() -> dict[tuple[str, str], str]:
    """The cells of the table in the docs, by the deed's name and the column's phase."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = {row[0]: row[1:] for row in ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)}
    return {
        (name, phase): cells[deed.words][n]
        for name, deed in named()
        for n, phase in enumerate(("dualwrite", "live", "complete"))
        if deed.words in cells
    }


@pytest.fixture
def moving(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, postgres=request.param, tables=PARTITIONED) as made:
        made.phase(Phase.DUALWRITE)
        made.legacy.sql(ROWS)
        made.carry()
        yield made


def _of(phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
    return phases if SCALE >= 1 else phases[:1]


@pytest.mark.parametrize("moving", POSTGRES, indirect=True)
@pytest.mark.parametrize("phase", _of(BEFORE))
@pytest.mark.parametrize("name", DEED)
def test_i8_before_the_switch_a_deed_does_what_the_table_says(moving: Migration, name: str, phase: Phase) -> None:
    moving.phase(phase)

    assert do(moving, DEED[name], phase) == _said()[name, "dualwrite"]


@pytest.mark.parametrize("moving", POSTGRES, indirect=True)
@pytest.mark.parametrize("phase", _of(AFTER))
@pytest.mark.parametrize("name", DEED)
def test_i9_after_the_switch_a_deed_does_what_the_table_says(moving: Migration, name: str, phase: Phase) -> None:
    moving.phase(Phase.LIVE)
    moving.phase(phase)

    assert do(moving, DEED[name], phase) == _said()[name, "live"]


@pytest.mark.parametrize("moving", POSTGRES, indirect=True)
def test_when_all_is_complete_the_tables_are_an_archive(moving: Migration, tmp_path: Path) -> None:
    """Nothing of ours looks at them any more: each deed is tried and taken back."""
    moving.phase(Phase.LIVE)
    complete(moving, tmp_path / "evidence.json")

    found = {(name, "complete"): do(moving, deed, Phase.COMPLETE) for name, deed in DEED.items()}

    assert found == {key: said for key, said in _said().items() if key[1] == "complete"}


@pytest.mark.parametrize("moving", POSTGRES, indirect=True)
def test_control_a_change_that_capture_does_not_see_comes_out_as_wrong(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.table_changes._doctor", lambda moving: [])
    monkeypatch.setattr("tests.table_changes._gate_passes", lambda moving: True)

    assert do(moving, DEED["partition change"], Phase.DUALWRITE) == "WRONG, and nothing says so"


def test_the_table_of_the_docs_has_every_deed_and_no_other() -> None:
    said = _said()

    assert {name for name, _ in said} == {name for deeds in DEEDS.values() for name in deeds}
    assert table(said) in PAGE.read_text()
