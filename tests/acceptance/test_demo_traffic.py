"""`tripstore demo --traffic`: the services of a kept playground give the gates the comparisons that they ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.acceptance.conftest import Shell
from tripstore.demo import company, traffic
from tripstore.demo.commands import Commands
from tripstore.demo.migration import DRIVER_INDEX
from tripstore.demo.playground import POSTGRES_FOLDER, Playground, WantedPlay, playground
from tripstore.demo.report import StoryStep
from tripstore.demo.rewriting import MENDED
from tripstore.local.dev import DevFolder

COMPARISONS_MIN, RATE_MAX = 20, 0.2


@contextmanager
def kept(shell: Shell) -> Iterator[Playground]:
    """A playground of few trips, as a demo leaves one; its Postgres does not outlive the block."""
    try:
        with playground(WantedPlay("sqlite", is_kept=True), shell.folder) as place:
            company.found_the_company(StoryStep(1, "", ""), place)
            text = place.config.read_text().replace("comparisons_min: 300", f"comparisons_min: {COMPARISONS_MIN}")
            # Of so few that are equal, no lower bound can be told; and on a busy machine a comparison takes its time.
            text = text.replace("rate_max: 0.01", f"rate_max: {RATE_MAX}")
            place.config.write_text(text.replace("deadline_seconds: 2.0", "deadline_seconds: 20.0"))
            yield place
    finally:
        DevFolder(shell.folder / POSTGRES_FOLDER).down()


def comparisons(shell: Shell) -> dict[str, bool]:
    """Whether each gate passes that asks for comparisons."""
    gates = shell.call("cutover", "plan", "--json").document["gates"]
    return {
        gate["name"]: gate["is_passed"] for gate in gates if gate["name"].startswith(("comparisons", "experiment "))
    }


def test_traffic_waits_for_a_worker_and_gives_every_gate_of_comparisons_enough(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control is the plan before."""
    monkeypatch.setattr(company, "TRIPS", 600)
    with kept(shell) as place:
        commands = Commands(place.config)
        for line in ("schema apply", "phase set dualwrite", "mirror drain", "backfill start", "phase set shadow"):
            commands.run(f"tripstore {line}")
        before = comparisons(shell)
        with monkeypatch.context() as patience:
            patience.setattr(traffic, "WORKER_SECONDS", 0.5)
            refused = shell.call("demo", "--traffic", "1", "--folder", ".")
        worker = commands.start("tripstore worker run")
        try:
            used = shell.call("demo", "--traffic", "4", "--folder", ".", "--json")
            after = comparisons(shell)
        finally:
            worker.terminate()
            worker.wait()

    assert refused.code == 1
    assert "no worker has carried all changes" in refused.complaint
    assert "`tripstore worker run`" in refused.complaint
    assert not all(before.values())
    assert used.code == 0, (used.document, used.complaint)
    assert (used.document["mismatches"], used.document["transactions"] > 0) == (0, True)
    assert used.document["compared"] >= 5 * COMPARISONS_MIN
    assert all(after.values()), after
    operations = ("get_row", "get_cell_latest", "get_cells_latest", f"query_index:{DRIVER_INDEX}")
    assert {f"comparisons of {each}" for each in operations} | {f"experiment {MENDED}"} <= set(after)


def test_no_other_configuration_than_that_of_a_playground_is_used(shell: Shell) -> None:
    shell.call("init")

    refused = shell.call("demo", "--traffic", "1")
    with_more = shell.call("demo", "--traffic", "1", "--keep")

    assert (refused.code, with_more.code) == (1, 2)
    assert "is not the configuration of a playground that is up." in refused.complaint
    assert "`tripstore demo --keep` leaves one" in refused.complaint
