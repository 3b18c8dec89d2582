"""The bill of materials, in CycloneDX 1.6, from the constraints: `make sbom`. Names and versions; no addresses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def bill(constraints: str) -> dict[str, Any]:
    """The same for the same constraints: no time, no serial number."""
    lines = [line.split("#")[0].strip() for line in constraints.splitlines()]
    pins = [line.split("==") for line in lines if line]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "library", "name": "tripstore", "bom-ref": "tripstore"}},
        "components": [_component(name, version) for name, version in pins],
    }


def _component(name: str, version: str) -> dict[str, str]:
    # As PyPI's names are compared.
    plain = name.lower().replace("_", "-").replace(".", "-")
    purl = f"pkg:pypi/{plain}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


if __name__ == "__main__":
    json.dump(bill((ROOT / "constraints.txt").read_text(encoding="utf-8")), sys.stdout, indent=1)
    sys.stdout.write("\n")
