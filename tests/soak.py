"""`make soak`: the tests at the issues' full figures, part by part. Resumable: parts that passed are not run again.

Each part is one file of tests (and the benchmark), bounded to an hour; its result is kept in `.soak/` together with
the commit. `--again` forgets them, `--part NAME` runs one. One table at the end.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click

FOLDER = Path(".soak")
SECONDS_MAX = 3600

TESTS = ("-q", "-s", "-p", "no:randomly", "--no-header")
PARTS: dict[str, list[str]] = {
    "state machine": [*TESTS, "tests/property/test_state_machine.py"],
    "concurrent clients": [*TESTS, "tests/property/test_concurrent_clients.py"],
    "tailing": [*TESTS, "tests/chaos/test_tailing.py"],
    "kills": [*TESTS, "tests/chaos/test_kill.py"],
    "stopped clients": [*TESTS, "tests/chaos/test_stopped_client.py"],
    "unresponsive servers": [*TESTS, "tests/chaos/test_unresponsive_server.py"],
    "index state machine": [*TESTS, "tests/property/test_index_machine.py"],
    "index kills": [*TESTS, "tests/chaos/test_index_kill.py"],
    "trigger workers": [*TESTS, "tests/chaos/test_trigger_workers.py"],
    "leases in ZooKeeper": [
        *TESTS,
        "tests/chaos/test_zookeeper.py",
        "tests/integration/leases/test_zookeeper.py",
        "tests/integration/leases/test_zookeeper_beside.py",
    ],
    "legacy machine": [*TESTS, "tests/property/test_legacy_machine.py"],
    "capture under load": [*TESTS, "tests/chaos/test_capture_load.py"],
    "value corpus": [*TESTS, "tests/integration/test_value_corpus.py", "tests/property/test_typed_rows.py"],
    "explorer": [*TESTS, "tests/explorer", "--ignore=tests/explorer/test_failover.py"],
    "explorer of failovers": [*TESTS, "tests/explorer/test_failover.py"],
    "switches": [*TESTS, "tests/chaos/test_switches.py", "tests/chaos/test_stopped_process.py"],
    "failovers in a switch": [*TESTS, "tests/chaos/test_failovers.py", "-k", "not reverse and not at_a_step"],
    "failovers in a way back": [*TESTS, "tests/chaos/test_failovers.py", "-k", "reverse and not at_a_step"],
    "failovers at each step": [*TESTS, "tests/chaos/test_failovers.py", "-k", "at_a_step"],
    "failovers": [
        *TESTS,
        "tests/integration/test_lost_decisions.py",
        "tests/integration/test_lost_changes.py",
        "tests/integration/test_promotions_noticed.py",
        "tests/integration/test_promotions_while_carrying.py",
        "tests/integration/test_restored.py",
        "tests/integration/test_rewound.py",
        "tests/integration/test_standby_commits.py",
        "tests/integration/test_words_of_a_lost_postgres.py",
    ],
    "failovers at work": [
        *TESTS,
        "tests/integration/test_promotions_at_work.py",
        "tests/chaos/test_promotions_under_load.py",
    ],
    "promotions in switches (MariaDB)": [*TESTS, "tests/chaos/test_promotions_in_switches.py", "-k", "mariadb"],
    "promotions in switches (MySQL)": [*TESTS, "tests/chaos/test_promotions_in_switches.py", "-k", "mysql"],
    "always writable (MariaDB)": [*TESTS, "tests/chaos/test_always_writable.py", "-k", "mariadb"],
    "always writable (MySQL)": [*TESTS, "tests/chaos/test_always_writable.py", "-k", "mysql"],
    "lost tails (MariaDB)": [*TESTS, "tests/chaos/test_lost_tails.py", "-k", "mariadb"],
    "lost tails (MySQL)": [*TESTS, "tests/chaos/test_lost_tails.py", "-k", "mysql"],
    "backups": [*TESTS, "tests/chaos/test_backups_under_load.py"],
    "datacentre drill": [
        *TESTS,
        "tests/chaos/test_datacentre_drill.py",
        "tests/integration/test_standby_pace.py",
        "tests/integration/test_standby_indexes.py",
    ],
    "moves": [
        *TESTS,
        "tests/chaos/test_moves_under_load.py",
        "tests/integration/test_move_pauses.py",
        "tests/integration/test_left_copies.py",
    ],
    "facade machine": [*TESTS, "tests/property/test_facade_machine.py"],
    "shadow reads": [*TESTS, "tests/integration/test_shadow_reads.py"],
    "backfill kills": [*TESTS, "tests/chaos/test_backfill_kills.py"],
    "block walks": [*TESTS, "tests/chaos/test_block_walk_kills.py", "tests/property/test_block_walk_machine.py"],
    "tasks of Dask": [*TESTS, "tests/chaos/test_dask.py", "tests/integration/test_elsewhere.py"],
    "backfill races": [*TESTS, "tests/chaos/test_backfill_races.py"],
    "past": [
        *TESTS,
        "tests/integration/test_copying.py",
        "tests/integration/test_rests.py",
        "tests/integration/test_reach.py",
        "tests/integration/test_past_plan.py",
        "tests/contract/test_encoded.py",
    ],
    "purge": [
        *TESTS,
        "tests/contract/test_purged.py",
        "tests/integration/test_purge.py",
        "tests/integration/test_purged_children.py",
        "tests/integration/test_purged_copies.py",
        "tests/integration/test_purged_migration.py",
        "tests/integration/test_purged_replicas.py",
        "tests/integration/test_purged_salvage.py",
        "tests/integration/test_purged_second_copies.py",
        "tests/integration/test_purged_standby.py",
        "tests/integration/test_purged_values.py",
        "tests/acceptance/test_cli_purge.py",
    ],
    "repair": [
        *TESTS,
        "tests/chaos/test_repair_load.py",
        "tests/integration/test_repair_actions.py",
        "tests/integration/test_repair_traces.py",
        "tests/integration/test_repair_authority.py",
        "tests/integration/test_repair_races.py",
        "tests/integration/test_repair_job.py",
        "tests/integration/test_mends.py",
        "tests/acceptance/test_cli_repair.py",
        "tests/acceptance/test_cli_repair_processes.py",
    ],
    "diff": [
        *TESTS,
        "tests/property/test_diff.py",
        "tests/integration/test_diff.py",
        "tests/integration/test_diff_beside_ddl.py",
        "tests/integration/test_diff_corpus.py",
        "tests/integration/test_diff_older.py",
        "tests/integration/test_diff_sets.py",
        "tests/integration/test_version_pages.py",
        "tests/chaos/test_diff_kill.py",
    ],
    "interrupts and breakers": [*TESTS, "tests/chaos/test_interrupts.py", "tests/chaos/test_reads_beside_writes.py"],
    "functions and commits that hang": [
        *TESTS,
        "tests/chaos/test_waiting_commits.py",
        "tests/chaos/test_deadly_functions.py",
        "tests/chaos/test_stopped_closer.py",
        "tests/integration/test_trigger_hangs.py",
    ],
    "configurations": [
        *TESTS,
        "tests/property/test_config_fuzz.py",
        "tests/property/test_server_names.py",
        "tests/property/test_table_names.py",
    ],
    "public schemas": [*TESTS, "tests/acceptance/test_public_schemas.py"],
    "changes of tables": [
        *TESTS,
        "tests/integration/test_table_changes.py",
        "tests/integration/test_partition_breaches.py",
    ],
    "4096 shards": [*TESTS, "tests/integration/test_many_shards.py"],
    "everything else": [
        *TESTS,
        "tests/unit",
        "tests/contract",
        "tests/integration",
        "tests/acceptance",
        "--ignore=tests/integration/test_many_shards.py",
        "--ignore=tests/integration/test_shadow_reads.py",
        "--ignore=tests/integration/test_trigger_hangs.py",
        "--ignore=tests/acceptance/test_public_schemas.py",
    ],
}
#: Each within its hour.
BENCHES = {
    "bench": ["mariadb", "mysql", "postgres"],
    "bench of the facade": ["facade"],
    "bench of the backfill": ["backfill"],
    "bench of walks": ["walks"],
    "bench of Dask": ["dask"],
    "bench of throttling": ["throttle"],
    "bench of the diff": ["diff"],
    "bench of dead clusters": ["availability"],
    "bench of leases": ["leases"],
    "bench of the console": ["console"],
}


@dataclass(frozen=True)
class Result:
    """What one part printed, and at which commit."""

    part: str
    commit: str
    passed: bool
    seconds: float
    figures: list[str]


#: A part ends in time as a whole; single tests may take as long as it.
PYTEST = [sys.executable, "-m", "pytest", "-o", "timeout=3000"]


@click.command()
@click.option("--again", is_flag=True, help="Forget the parts that passed.")
@click.option("--part", "only", type=click.Choice([*PARTS, *BENCHES]), help="Run one part.")
def main(again: bool, only: str | None) -> None:
    """Run every part that has not passed at this commit yet, then print the table."""
    FOLDER.mkdir(exist_ok=True)
    results = []
    for part in [only] if only else [*PARTS, *BENCHES]:
        known = None if again else _known(part)
        results.append(known or _run(part))
    for result in results:
        _print(result)
    sys.exit(0 if all(result.passed for result in results) else 1)


def _run(part: str) -> Result:
    click.echo(f"{part} …", err=True)
    engines = [argument for engine in BENCHES.get(part, []) for argument in ("--engine", engine)]
    # What a failed test says of itself is there until the next run of the part.
    kept = f"--basetemp={tempfile.gettempdir()}/tripstore-soak-{_slug(part)}"
    command = [sys.executable, "-m", "benchmarks", *engines] if part in BENCHES else [*PYTEST, kept, *PARTS[part]]
    started = time.monotonic()
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "TRIPSTORE_SCALE": "1", "CI": "true"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        passed, output = done.returncode == 0, done.stdout
    except subprocess.TimeoutExpired as late:
        passed, output = False, f"{late.stdout!r}\nnot done within {SECONDS_MAX} s"
    (FOLDER / f"{_slug(part)}.log").write_text(output)
    result = Result(part, _commit(), passed, time.monotonic() - started, _figures(part, output))
    (FOLDER / f"{_slug(part)}.json").write_text(json.dumps(asdict(result), indent=1))
    return result


def _known(part: str) -> Result | None:
    """The result of an earlier run of this very commit."""
    path = FOLDER / f"{_slug(part)}.json"
    if not path.exists():
        return None
    result = Result(**json.loads(path.read_text()))
    return result if result.passed and result.commit == _commit() else None


def _slug(part: str) -> str:
    return part.replace(" ", "-")


def _commit() -> str:
    """HEAD, marked when the tree differs from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude", "*"], capture_output=True, text=True, check=True
    )
    return described.stdout.strip()


def _figures(part: str, output: str) -> list[str]:
    """The lines that tests and benchmark print of themselves, and the closing line."""
    if part in BENCHES:
        return [line.strip() for line in output.splitlines() if line.strip()]
    own = re.findall(
        r"(?:^|[.sF])((?:sqlite|mariadb|mysql|postgres|machine|wheel|pagila|openstreetmap|ctfd"
        r"|failovers in a \w+): .+)$",
        output,
        re.MULTILINE,
    )
    closing = re.findall(r"^.*\d+ (?:passed|failed).*$", output, re.MULTILINE)
    return [*own, *closing[-1:]]


def _print(result: Result) -> None:
    verdict = "passed" if result.passed else "FAILED"
    click.echo(f"{result.part:24s} {verdict}  {result.seconds:7.0f} s  {result.commit}")
    for figure in result.figures:
        click.echo(f"    {figure}")


if __name__ == "__main__":
    main()
