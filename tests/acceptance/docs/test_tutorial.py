"""The tutorial is followed as a reader follows it, in one shell, and prints what it shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import pytest

from tests.documents import DOCS, ROOT, announced
from tests.markdown import blocks_of

_DONE = "the-block-has-ended"


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


def shows_all(output: str, shown: str) -> bool:
    """Whether this is all that was printed: … stands for anything, on a line of its own for any lines."""
    pattern = "".join(
        r"(?:.*\n)*" if line.strip() == "…" else r"[^\n]*".join(map(re.escape, line.rstrip().split("…"))) + r"\s*\n"
        for line in shown.strip("\n").splitlines()
    )
    return re.fullmatch(pattern, "\n".join(line.rstrip() for line in output.splitlines()) + "\n") is not None
