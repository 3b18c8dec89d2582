"""The bill of materials says what the constraints say, and names no place to download from."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_bill_of_materials_is_that_of_the_constraints() -> None:
    made = subprocess.run([sys.executable, str(ROOT / ".ci/sbom.py")], capture_output=True, text=True, check=True)
    assert (ROOT / "sbom.cdx.json").read_text() == made.stdout, "run `make sbom`"


def test_control_another_version_is_seen(tmp_path: Path) -> None:
    for name in (".ci/sbom.py", "constraints.txt", "pyproject.toml"):
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_text((ROOT / name).read_text())
    pins = tmp_path / "constraints.txt"
    pins.write_text(re.sub(r"^(click==)\S+", r"\g<1>0.0", pins.read_text(), flags=re.MULTILINE))
    command = [sys.executable, str(tmp_path / ".ci/sbom.py")]
    made = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)

    assert '"0.0"' in made.stdout
    assert (ROOT / "sbom.cdx.json").read_text() != made.stdout


def test_it_has_every_pin_and_no_address() -> None:
    text = (ROOT / "sbom.cdx.json").read_text()
    pins = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)

    assert [(each["name"], each["version"]) for each in json.loads(text)["components"]] == pins
    assert len(pins) > 30
    assert "://" not in text


def test_a_lock_has_names_versions_and_hashes_and_no_address() -> None:
    """npm writes where each package came from, and who may be paid for it: take both out again."""
    locked = json.loads((ROOT / "tests/javascript/package-lock.json").read_text())["packages"]
    packages = [each for path, each in locked.items() if path]

    assert all(each["version"] and each["integrity"] for each in packages)
    assert [each for each in packages if each.keys() & {"resolved", "funding"} or "://" in json.dumps(each)] == []
