"""The page about completion: its commands install what answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import DOCS, block

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
