"""What the pages show of Python and of single commands runs, and its types are right."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from contextlib import chdir
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from schemaless_core import Datastore, Json
from schemaless_core.definitions.index import IndexDefinition
from tests.acceptance.conftest import Shell
from tests.chaos.actors import wait_until
from tests.corpus import CASES
from tests.corpus.company import layout_of
from tests.documents import DOCS, ROOT, announced, block, blocks
from tests.models import written


def run_python(code: str, shell: Shell) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=shell.folder,
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_example_of_the_readme_runs(shell: Shell) -> None:
    printed = run_python(block(ROOT / "README.md", "python"), shell)

    created, body, log, found, status = printed.splitlines()
    assert created == "CREATED EXISTS"
    assert body == "{'city': 'SF', 'fare': 23.5}"
    assert log.startswith("[1, 2")
    assert found == "[{'city': 'SF', 'fare': 23.5}]"
    assert status == "{'billed': 23.5}"


def complaints(folder: Path, *codes: str) -> dict[str, str]:
    """What a type checker says of such files of a company's own, which stand anywhere: by their names."""
    for number, code in enumerate(codes):
        (folder / f"sample_{number}.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *sorted(folder.glob("*.py"))],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "MYPYPATH"}},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode < 2, done.stderr
    said: dict[str, str] = {}
    for line in done.stdout.splitlines():
        file = line.partition(":")[0]
        said[file] = f"{said.get(file, '')}{line}\n"
    return said


def test_types_of_the_samples_are_seen_and_right_from_outside_the_checkout(tmp_path: Path) -> None:
    pages = (ROOT / "README.md", DOCS / "tutorial.md", DOCS / "howto" / "typed-rows.md")
    codes = [code for page in pages for kind, code in blocks(page) if kind == "python"]
    controls = (
        "from schemaless_core import Datastore\nDatastore.open('tripstore.yaml').shard_of(1)",
        "from uuid import UUID\nfrom trips_models import TripBase\nTripBase(row_key=UUID(), ref_key=1, city_uuid='SF')",
    )
    # Of every type that the value corpus has, and of the index that the page is about.
    (tmp_path / "corpus_models.py").write_text(written(layout_of([case for case in CASES if case.rows])))
    definition = yaml.safe_load(block(DOCS / "howto" / "indexes.md", "yaml"))
    index = IndexDefinition.from_document(definition, "the page", "trips")
    (tmp_path / "trips_models.py").write_text(written(None, [index]))

    assert len(codes) == 6
    said = complaints(tmp_path, *controls, *codes)
    assert 'has incompatible type "int"; expected "UUID"' in said.pop("sample_0.py")
    assert 'has incompatible type "str"; expected "UUID | None"' in said.pop("sample_1.py")
    assert said == {}


def test_the_shell_example_of_the_readme_runs(shell: Shell) -> None:
    output = "".join(tripstore(shell, line) for line in block(ROOT / "README.md", "bash").splitlines())

    assert "Everything is fine." in output
    assert "No group yet" in output
    assert "No index yet" in output
    # Once by `get`, once by `log`: the example names the shard that the row is in.
    assert output.count('{"city":"SF","fare":23.5}') == 2


def tripstore(shell: Shell, line: str) -> str:
    """Run a line in this process, which is quicker; its comment may announce an exit code."""
    _program, *arguments = shlex.split(line, comments=True)
    ran = shell.call(*arguments)
    assert ran.code == announced(line), f"{line}: {ran.stderr}"
    return ran.stdout + ran.stderr


def test_the_examples_of_testing_your_code_pass(tmp_path: Path) -> None:
    for number, (language, text) in enumerate(blocks(DOCS / "howto" / "testing-your-code.md")):
        if language == "python":
            (tmp_path / f"test_example_{number}.py").write_text(text)
        elif language == "py":
            compile(text, "testing-your-code.md", "exec")  # needs servers; tests/integration starts the same ones

    # The folders of its tests are below this test's own: a reader's pytest keeps those of the last three runs.
    folders = ["--rootdir", str(tmp_path), "--basetemp", str(tmp_path / "temporary")]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *folders]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=tmp_path,
        env=Shell(tmp_path).environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert "7 passed" in done.stdout


def test_the_how_to_of_buffers_puts_and_looks_as_it_shows(store: Shell) -> None:
    page = DOCS / "howto" / "buffers.md"
    config = yaml.safe_load((store.folder / "tripstore.yaml").read_text()) | yaml.safe_load(block(page, "yaml"))
    (store.folder / "tripstore.yaml").write_text(yaml.safe_dump(config))
    with chdir(store.folder), Datastore.open("tripstore.yaml") as opened:
        names: dict[str, Any] = {"store": opened, "row_key": uuid4(), "body": {"by": "a sample"}}
        for kind, text in blocks(page):
            if kind == "python":
                exec(text, names)

        assert names["result"].readable
        assert names["careful"].get_cell(names["row_key"], "STATUS", 3).body == names["body"]
    for line in block(page, "sh").splitlines():
        assert store.call(*shlex.split(line, comments=True)[1:]).code == 0, line


def test_the_how_to_of_indexes_defines_and_asks_one_as_it_shows(shell: Shell) -> None:
    page = DOCS / "howto" / "indexes.md"
    definition, setting = [text for kind, text in blocks(page) if kind == "yaml"]
    (shell.folder / "indexes").mkdir()
    (shell.folder / "indexes" / "driver_partner_index.yaml").write_text(definition)
    assert shell.call("init", "--shards", "4").code == 0
    config = shell.folder / "tripstore.yaml"
    config.write_text(config.read_text() + setting)
    assert shell.call("schema", "apply").code == 0
    driver_uuid, city_uuid, trip = uuid4(), uuid4(), uuid4()
    body: Json = {
        "driver_partner_uuid": str(driver_uuid),
        "city_uuid": str(city_uuid),
        "trip_created_at": "2026-03-02T00:00Z",
    }
    with Datastore.open(config) as store:
        store.put_cell(trip, "BASE", 1, body)
        wait_until("found", lambda: bool(store.query_index("driver_partner_index", driver_uuid).entries))
        known: dict[str, Any] = {"store": store, "driver_uuid": driver_uuid, "city_uuid": city_uuid}
        known |= {"datetime": datetime, "UTC": UTC}
        exec(block(page, "py"), known)

        assert [entry.row_key for entry in known["page"].entries] == [trip]
