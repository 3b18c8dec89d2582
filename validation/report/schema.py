"""The JSON schema of the report: `python -m validation.report.schema` prints it for docs/reference."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from tripstore.engines.validation.report.document import SCHEMA_VERSION, Report


def report_schema() -> dict[str, Any]:
    """The schema of `Report`, with the version that a document must say it has."""
    schema = msgspec.json.schema(Report)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = f"tripstore report, version {SCHEMA_VERSION}"
    report = schema["$defs"]["Report"]
    report["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    report["required"] = list(report["properties"])
    return schema


def schema_text() -> str:
    return msgspec.json.format(msgspec.json.encode(report_schema(), order="sorted"), indent=2).decode() + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
