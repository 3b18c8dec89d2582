"""The documents are true: what they show runs, what they name exists, what exists they name."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, NamedTuple
from uuid import uuid4

import click
import pytest

import schemaless_core.errors as core_errors
from schemaless_core import Datastore, Json
from schemaless_core.config import BufferConfig, ClusterConfig, DatastoreConfig
from tests.acceptance.conftest import Shell
from tests.chaos.actors import wait_until
from tests.markdown import anchors
from tripstore.cli.reference import commands
from tripstore.cli.root import root
from tripstore.config import BackfillConfig, LegacyLimits, MirrorConfig, ShadowConfig
from tripstore.engines.backfill.errors import BackfillError
from tripstore.engines.validation.errors import ValidationError
from tripstore.errors import TripstoreError
from tripstore.thresholds import CutoverSettings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = sorted([*(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")), *DOCS.rglob("*.md")])
PACKAGES = ("schemaless_core", "backfill", "validation", "tripstore")

_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_SOURCE = re.compile(r"`((?:schemaless_core|backfill|validation|tripstore|tests|benchmarks|docs)/[\w/.-]+)`")


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    return blocks_of(page.read_text())


def blocks_of(text: str) -> list[Block]:
    return [Block(*found) for found in _FENCE.findall(text)]


def block(page: Path, language: str) -> str:
    """The first block in a language."""
    return next(text for kind, text in blocks(page) if kind == language)


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text())


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=name)


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


@pytest.fixture(scope="module")
def types(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mypy keeps of our packages' types, for its next run."""
    return tmp_path_factory.mktemp("types")


def complaints(folder: Path, types: Path, *codes: str) -> str:
    """What a type checker says of such files of a company's own, which stand anywhere."""
    for number, code in enumerate(codes):
        (folder / f"sample_{number}.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(types), *sorted(folder.glob("*.py"))],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "MYPYPATH"}},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode < 2, done.stderr
    return done.stdout if done.returncode else ""


def test_types_of_the_samples_are_seen_and_right_from_outside_the_checkout(tmp_path: Path, types: Path) -> None:
    codes = [
        code for page in (ROOT / "README.md", DOCS / "tutorial.md") for kind, code in blocks(page) if kind == "python"
    ]

    assert len(codes) == 5
    assert complaints(tmp_path, types, *codes) == ""


def test_control_a_sample_with_a_wrong_type_is_named(tmp_path: Path, types: Path) -> None:
    wrong = "from schemaless_core import Datastore\nDatastore.open('tripstore.yaml').shard_of(1)"

    assert 'has incompatible type "int"; expected "UUID"' in complaints(tmp_path, types, wrong)


def test_the_shell_example_of_the_readme_runs(shell: Shell) -> None:
    output = "".join(tripstore(shell, line) for line in block(ROOT / "README.md", "bash").splitlines())

    assert "Everything is fine." in output
    assert "No group yet" in output
    assert "No index yet" in output
    # Once by `get`, once by `log`: the example names the shard that the row is in.
    assert output.count('{"city":"SF","fare":23.5}') == 2


def test_the_first_commands_of_the_readme_are_in_the_makefile() -> None:
    first = [line.split("#")[0].strip() for line in block(ROOT / "README.md", "sh").splitlines()]
    makefile = (ROOT / "Makefile").read_text()

    assert first == ["make demo", "make test"]
    for target in re.findall(r"`make (\w+)", (ROOT / "README.md").read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


COMPLETION = DOCS / "howto" / "shell-completion.md"


@pytest.mark.parametrize("language", ["bash", "zsh", "fish"])
def test_the_command_of_the_page_installs_completion(language: str, tmp_path: Path) -> None:
    """Bash runs all three lines, so that zsh and fish need not be installed; fish's `; and` is its `&&`."""
    line = block(COMPLETION, language).replace("; and ", " && ")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": path}
    subprocess.run(["bash", "-c", line], env=environment, check=True, timeout=60)

    (written,) = [each for each in tmp_path.rglob("*") if each.is_file()]
    text = written.read_text()
    if text.startswith("eval"):
        text = subprocess.run(
            ["bash", "-c", text.replace("eval", "echo")], env=environment, check=True, capture_output=True, text=True
        ).stdout
    assert "_TRIPSTORE_COMPLETE" in text
    assert f"{language}_complete" in text
    asked = {"COMP_WORDS": "tripstore cutover sw", "COMP_CWORD": "sw" if language == "fish" else "2"}
    answered = subprocess.run(
        ["tripstore"],
        env={**environment, **asked, "_TRIPSTORE_COMPLETE": f"{language}_complete"},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    assert "switch" in answered


class Terminal:
    """One shell, as a reader has it from the first block of a page to the last. Nothing is set that no block sets."""

    def __init__(self, folder: Path, temporary: str) -> None:
        kept = {"PATH", "HOME", "PYTHONPATH", "PYTHONPYCACHEPREFIX"}
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=folder,
            # The pages make temporary folders and leave them to their readers.
            env={name: value for name, value in os.environ.items() if name in kept} | {"TMPDIR": temporary},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, code: str, expected: int = 0) -> str:
        """What the code printed; of what fails, as the page says it does, the complaint, too."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{{\n{code}\n}}\nDONE=$?; echo; echo {_DONE} $DONE | tee /dev/stderr\n")
        self._shell.stdin.flush()
        printed, complaint = self._until_done(self._shell.stdout), self._until_done(self._shell.stderr)
        status = int(printed.pop().split()[1])
        assert status == expected, f"{code}: {complaint} {printed}"
        return "\n".join(printed[:-1] + (complaint[:-1] if expected else []))

    def close(self) -> None:
        """End it, and what it left running."""
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGTERM)
        self._shell.communicate(timeout=60)

    @staticmethod
    def _until_done(stream: IO[str] | None) -> list[str]:
        assert stream is not None
        lines: list[str] = []
        while not lines or not lines[-1].startswith(_DONE):
            line = stream.readline()
            assert line, f"the shell ended: {lines}"
            lines.append(line.rstrip("\n"))
        return lines


_DONE = "the-block-has-ended"


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    # No folder of pytest's: the path of a server's socket has to be short.
    with TemporaryDirectory(prefix="reader-", ignore_cleanup_errors=True) as temporary:
        Path(temporary).chmod(0o711)  # as root, Postgres runs as another user
        opened = Terminal(ROOT, temporary)
        yield opened
        opened.close()


@pytest.mark.long
def test_the_tutorial_runs_from_its_first_to_its_last_line_and_prints_what_it_shows(terminal: Terminal) -> None:
    assert follow((DOCS / "tutorial.md").read_text(), terminal) > 15


def test_control_a_block_that_prints_a_line_more_than_is_shown_is_caught(terminal: Terminal) -> None:
    page = "```bash\necho one; echo two\n```\n\n```text\none\n```\n"

    with pytest.raises(AssertionError, match="'one' is not all of"):
        follow(page, terminal)


def test_control_a_line_that_fails_without_a_word_about_it_is_caught(terminal: Terminal) -> None:
    with pytest.raises(AssertionError, match="false"):
        follow("```bash\nfalse\n```\n", terminal)


def follow(text: str, terminal: Terminal) -> int:
    """Run every block, and hold each text against all that the block before it printed; return how many there are."""
    output, shown = "", 0
    for language, code in blocks_of(text):
        if language == "bash":
            printed = [terminal.run(line, announced(line)) for line in code.splitlines()]
            output = "\n".join(each for each in printed if each)
        elif language == "python":
            output = terminal.run(f"python -W error - <<'PAGE'\n{code}PAGE")
        elif language == "text":
            assert shows_all(output, code), f"{code.strip()!r} is not all of {output!r}"
            shown += 1
    return shown


def announced(line: str) -> int:
    """The exit code that a line's comment says."""
    said = re.search(r"# exit code (\d)", line)
    return int(said[1]) if said else 0


def shows_all(output: str, shown: str) -> bool:
    """Whether this is all that was printed: … stands for anything, on a line of its own for any lines."""
    pattern = "".join(
        r"(?:.*\n)*" if line.strip() == "…" else r"[^\n]*".join(map(re.escape, line.rstrip().split("…"))) + r"\s*\n"
        for line in shown.strip("\n").splitlines()
    )
    return re.fullmatch(pattern, "\n".join(line.rstrip() for line in output.splitlines()) + "\n") is not None


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
    assert "6 passed" in done.stdout


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


def shown_commands(page: Path) -> list[str]:
    """The lines of a page's shell blocks that call our command."""
    shells = [text.replace("\\\n", " ") for kind, text in blocks(page) if kind in ("sh", "bash")]
    return [line for text in shells for line in text.splitlines() if line.strip().startswith("tripstore ")]


@every_page
def test_commands_that_a_page_shows_have_these_options(page: Path) -> None:
    for line in shown_commands(page):
        _program, *arguments = shlex.split(line, comments=True)
        command: click.Command = root
        while isinstance(command, click.Group) and arguments and arguments[0] != "--help":
            word = arguments.pop(0)
            found = command.get_command(click.Context(command), word)
            assert found is not None, f"{name(page)} shows {line}"
            command = found
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        asked = {argument.partition("=")[0] for argument in arguments if re.match(r"--?[a-z]", argument)}
        assert asked <= known | {"--help", "--version"}, f"{name(page)} shows {line}"


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.is_file(), f"{name(page)} links to {link}"
        assert not anchor or anchor in anchors(prose(target)), f"{name(page)} links to {link}"


@every_page
def test_tests_and_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    for file, test in _TEST.findall(text):
        source = ROOT / file
        assert source.is_file(), f"{name(page)} names {file}"
        assert f"def {test}(" in source.read_text(), f"{name(page)} names {file}::{test}"
    for path in _SOURCE.findall(text):
        assert (ROOT / path).exists(), f"{name(page)} names {path}"


@every_page
def test_every_page_can_be_found_from_the_index_or_is_linked_to(page: Path) -> None:
    linked = {
        (source.parent / link.partition("#")[0]).resolve()
        for source in (ROOT / "README.md", DOCS / "index.md")
        for link in _LINK.findall(prose(source))
        if "://" not in link
    }

    assert page in linked or page == ROOT / "README.md"


def rows(page: Path) -> Iterator[list[str]]:
    """The rows of all tables of a page."""
    for line in prose(page).splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip()[1:-1].split("|")]


def config_keys(struct: type[Any] = DatastoreConfig, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every key with its default; sections by their own keys."""
    if not prefix:
        yield from ((f"clusters.<name>.{entry.name}", ...) for entry in fields(ClusterConfig) if entry.name != "name")
    for entry in fields(struct):
        default = entry.default_factory() if callable(entry.default_factory) else entry.default
        if entry.name == "buffer":  # there is none by default
            default = BufferConfig()
        if is_dataclass(default):
            yield entry.name, ...
            yield from config_keys(type(default), f"{prefix}{entry.name}.")
        else:
            yield f"{prefix}{entry.name}", default


def facade_keys() -> Iterator[tuple[str, object]]:
    """The keys that the core does not know."""
    yield from (("legacy", ...), ("legacy.postgres", ...), ("legacy.layout", ...))
    yield from config_keys(LegacyLimits, "legacy.")
    sections = {"mirror": MirrorConfig, "shadow": ShadowConfig, "backfill": BackfillConfig, "cutover": CutoverSettings}
    for section, struct in sections.items():
        yield section, ...
        yield from config_keys(struct, f"{section}.")
    yield "shadow.ignores", ...


CONFIG_KEYS = [*config_keys(), *facade_keys()]


@pytest.mark.parametrize(("key", "default"), CONFIG_KEYS)
def test_every_key_of_the_configuration_is_in_its_reference_with_its_default(key: str, default: object) -> None:
    described = {row[0]: row[1:] for row in rows(REFERENCE / "configuration.md")}

    assert f"`{key}`" in described
    if isinstance(default, bool | int | float) or (isinstance(default, str) and default):
        assert described[f"`{key}`"][0] == f"`{default}`".lower()


def test_the_reference_describes_no_key_that_does_not_exist() -> None:
    known = {f"`{key}`" for key, _default in CONFIG_KEYS}
    described = {row[0] for row in rows(REFERENCE / "configuration.md") if re.fullmatch(r"`[a-z_.<>]+`", row[0])}

    assert described == known


def test_every_metric_is_in_its_reference_with_its_labels() -> None:
    described = {row[0]: row[2] for row in rows(REFERENCE / "metrics.md") if len(row) == 4}
    source = "".join(path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("metrics.py"))
    found = re.findall(r'"((?:schemaless|tripstore)_\w+)",\s*"[^"]+"(?:,\s*\[([^\]]*)\])?', source)

    assert found
    for metric, labels in found:
        assert re.findall(r"\w+", described[f"`{metric}`"]) == re.findall(r"\w+", labels), metric


def test_every_log_event_is_in_its_reference_and_no_other() -> None:
    sources = [path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    # Named where it is logged, or handed to the one function of a file that logs.
    named = re.compile(r'(?:"event": |_log_\w+\()"([a-z_]+\.[a-z_]+)"')
    events = {event for source in sources for event in named.findall(source)}

    assert events
    assert {row[0].strip("`") for row in rows(REFERENCE / "log-events.md") if row[0].startswith("`")} == events


def test_every_error_is_in_its_reference() -> None:
    page = (REFERENCE / "errors.md").read_text()
    kinds = [kind for kind in vars(core_errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    described = {row[0] for row in rows(REFERENCE / "errors.md")}

    for kind in kinds:
        assert f"`{kind.__name__}`" in described
        assert re.search(rf"^[│├└─ ]*{kind.__name__}\b", page, re.MULTILINE), f"{kind.__name__} is not in the tree"
    for base in (TripstoreError, BackfillError, ValidationError):
        assert f"`{base.__name__}`" in page


def test_every_command_is_in_its_reference() -> None:
    page = (REFERENCE / "cli.md").read_text()

    for _command, context in commands(root, click.Context(root, None, "tripstore")):
        assert f"## `{context.command_path}`\n" in page


def test_every_invariant_is_in_its_page_with_a_proof_or_not_yet() -> None:
    page = (REFERENCE / "invariants.md").read_text()
    sections = {section.split(":")[0]: section for section in page.split("\n## ")[1:]}

    for number in range(1, 13):
        row = next(line for line in page.splitlines() if re.match(rf"\| \[?I{number}\b", line))
        assert "not yet" in row or _TEST.search(sections[f"I{number}"]), row
    assert set(sections) <= {f"I{number}" for number in range(1, 13)}


_NAMED = re.compile(r"^def test_(?:control_)?((?:i\d+_)+)", re.MULTILINE)


def invariants_named_by(source: str) -> set[str]:
    """The invariants that the names of tests begin with."""
    return {number.upper() for numbers in _NAMED.findall(source) for number in numbers.split("_") if number}


def test_every_invariant_that_a_test_is_named_after_holds_by_its_page() -> None:
    """So `pytest -k i12_`, which the page gives, runs all that is proved, and no test claims what the page does not."""
    page = (REFERENCE / "invariants.md").read_text()
    held = {
        number
        for number, said in re.findall(r"^\| \[(I\d+)\]\(\S+\) \| (.+) \|$", page, re.MULTILINE)
        if said[:3] == "yes"
    }
    sources = [file.read_text() for file in (ROOT / "tests").rglob("test_*.py")]

    assert set().union(*map(invariants_named_by, sources)) <= held
    assert invariants_named_by("def test_i8_i13_a_new_one() -> None: ...") == {"I8", "I13"}  # which would be seen


def test_the_readme_fits_on_two_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_license_and_the_ways_to_contribute_and_to_report_a_hole_are_there_and_linked() -> None:
    readme = (ROOT / "README.md").read_text()

    assert (ROOT / "LICENSE").read_text().lstrip().startswith("Apache License")
    assert (ROOT / "SECURITY.md").read_text().strip()
    assert (ROOT / "CONTRIBUTING.md").read_text().strip()
    assert "(LICENSE)" in readme
    assert "(CONTRIBUTING.md)" in readme


#: The words that the project was designed with; each is explained in a sentence.
WORDS = """
cell, row key, column name, ref key, tombstone, shard, added id, location, node, cluster, topology, epoch, index, entry,
alias, buffer, trigger, group, parked cell, legacy store, layout, capture, authority, mirror, relay, shadow read,
mismatch, phase, backfill, chunk, checkpoint, quarantine, diff, repair, evidence
"""


def test_every_word_of_the_design_is_in_the_glossary_once() -> None:
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    explained = [word for words, said in rows if len(said) > 10 for word in words.split(", ")]

    assert len(explained) == len(set(explained))
    assert {" ".join(word.split()) for word in WORDS.split(",")} <= set(explained)
