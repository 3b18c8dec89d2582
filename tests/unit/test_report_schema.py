"""The JSON schema of the report is published with its version, and is what reports are like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.reports import sample_report
from tests.schemas import faults
from tripstore.engines.validation.report import document
from tripstore.engines.validation.report.document import SCHEMA_VERSION, Report
from tripstore.engines.validation.report.schema import schema_text

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PUBLISHED = REFERENCE / f"report-{SCHEMA_VERSION}.schema.json"
PAGE = REFERENCE / "report-schema.md"
STRUCTS: list[type[msgspec.Struct]] = [
    each
    for each in vars(document).values()
    if isinstance(each, type) and issubclass(each, msgspec.Struct) and each.__module__ == document.__name__
]


@pytest.fixture
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PUBLISHED.read_text())
    return found


def made(report: Report) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(msgspec.json.encode(report))
    return found


def test_the_published_schema_is_that_of_the_code() -> None:
    assert PUBLISHED.read_text() == schema_text(), f"run: python -m validation.report.schema > {PUBLISHED.name}"


@pytest.mark.parametrize("report", [sample_report(), sample_report(is_allowed=True, with_bodies=True)])
def test_a_report_is_what_its_schema_says(report: Report, schema: dict[str, Any]) -> None:
    assert faults(made(report), schema) == []


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("schema_version",), 2),
        (("made_at",), "yesterday"),
        (("verdict", "is_allowed"), 1),
        (("operations", 0, "calls"), "many"),
        (("operations", 0, "by_class"), {"field": "x"}),
        (("mismatches", 0, "row_key"), "17"),
        (("latency", 0, "p50_seconds"), False),
        (("standing",), 5),
    ],
)
def test_a_document_that_is_otherwise_has_a_fault(path: tuple[Any, ...], wrong: object, schema: dict[str, Any]) -> None:
    """The control: the check sees each kind of fault."""
    report = made(sample_report())
    place: Any = report
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = wrong

    assert len(faults(report, schema)) == 1

    del place[path[-1]]
    assert len(faults(report, schema)) == 1


def test_a_report_that_was_written_can_be_read_again() -> None:
    report = sample_report(with_bodies=True)

    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


@pytest.mark.parametrize("struct", STRUCTS, ids=[each.__name__ for each in STRUCTS])
def test_every_field_is_described(struct: type[msgspec.Struct]) -> None:
    sections = dict(section.split("\n", 1) for section in PAGE.read_text().split("\n## ")[1:])
    section = sections[struct.__name__]

    described = [line.split("|")[1].strip().strip("`") for line in section.splitlines() if line.startswith("| `")]
    assert described == list(struct.__struct_fields__)


def test_no_other_struct_is_described() -> None:
    headings = [section.split("\n", 1)[0] for section in PAGE.read_text().split("\n## ")[1:]]

    others = [each.__name__ for each in STRUCTS if each is not Report]
    assert headings == ["Report", *others]
