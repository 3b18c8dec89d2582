"""`render`: the report as one page that needs nothing else: no server, no network, no script to be read.

Texts of the report come from databases and are taken for hostile: the environment escapes all of them, and the page
forbids every script and style but its own by their hashes.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tripstore.engines.validation.compare import BYTES
from tripstore.engines.validation.report import charts, words
from tripstore.engines.validation.report.document import (
    DIFF,
    JobReport,
    Operation,
    Report,
    ReportMismatch,
    ReportWaiting,
)
from tripstore.engines.validation.report.glance import glance

HERE = Path(__file__).parent
_JOB_KINDS = {"done": "good", "running": "", "paused": "warn", "cancelled": "bad"}
_JOB_SIGNS = {"done": "✓", "running": "▸", "paused": "‖", "cancelled": "✕"}


def render(report: Report) -> str:
    """The page."""
    style, script = _asset("page.css"), _asset("page.js")
    time = charts.Time(report.since, report.made_at)
    return (
        environment()
        .get_template("page.html.jinja")
        .render(
            report=report,
            contents=_contents(report),
            refusing=[gate for gate in report.gates if not gate.is_passed],
            glance=glance(report),
            rate_charts=[charts.rate_chart(series, report.limits, time) for series in report.rates if series.hours],
            lag_charts=[
                charts.lag_chart(direction, hours, report.limits, time)
                for direction in ("forward", "reverse")
                if (hours := [each for each in report.lag if each.direction == direction])
            ],
            latency_chart=charts.latency_chart(report.latency, report.backends),
            geometry=charts,
            share_of=share_of,
            job_share=_job_share,
            job_kind=lambda state: _JOB_KINDS.get(state, ""),
            job_sign=lambda state: _JOB_SIGNS.get(state, "·"),
            sides_now=sides_now,
            style=Markup(style),
            script=Markup(script),
            style_hash=_hash(style),
            script_hash=_hash(script),
        )
    )


@cache
def environment(*folders: Path) -> Environment:
    """Templates of these folders, and those of the report."""
    made = Environment(
        loader=FileSystemLoader([*folders, HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": words.count,
        "percent": words.percent,
        "duration": words.duration,
        "moment": words.moment,
        "short_moment": words.short_moment,
        "elapsed": words.elapsed,
        "plural": words.plural,
        "prose": words.prose,
        "breakable": words.breakable,
        "pretty": _pretty,
        "spaced": lambda name: str(name).replace("_", " "),
        "capitalize_first": lambda text: text[:1].upper() + text[1:],
    }
    return made


def _contents(report: Report) -> list[tuple[str, str, int | None]]:
    refusing = sum(not gate.is_passed for gate in report.gates)
    waiting = report.waiting or ReportWaiting(quarantine=len(report.quarantine), conflicts=len(report.conflicts))
    found: list[tuple[str, str, int | None]] = [
        ("todo", "To do", refusing),
        ("glance", "At a glance", None),
        ("operations", "Coverage", None),
        ("experiments", "Rewritten queries", len(report.experiments)),
        ("rates", "Mismatch rate", None),
        ("lag", "Lag", None),
        ("jobs", "Backfill and diff", None),
        ("latency", "Latency", None),
        ("mismatches", "Mismatches", len(report.mismatches)),
        ("quarantine", "Quarantine", waiting.quarantine),
        ("conflicts", "Conflicts", waiting.conflicts),
        ("gates", "Gates", len(report.gates)),
    ]
    if report.standing is not None and report.standing.history:
        found.append(("history", "Authority", None))
    return found


def share_of(operation: Operation) -> float:
    """How much was compared, of its calls; a service may compare before its calls are counted."""
    return min(operation.compared / operation.calls, 1.0) if operation.calls else 0.0


def _job_share(job: JobReport) -> float:
    if job.parts == 0 or job.state == "done":
        return 1.0
    rows = job.counts.get("rows", 0)
    return min(rows / job.estimate, 1.0) if job.estimate else job.parts_done / job.parts


def sides_now(found: ReportMismatch) -> str:
    """Whether they differ now as well.

    Nothing where stored bytes differed and are read alike: whether they still do a digest of a body does not say.
    """
    sides = found.sides or []
    if any(side.trouble for side in sides):
        return "Whether they are equal now is unknown."
    if len({(side.ref_key, side.digest) for side in sides}) > 1:
        return "They differ now as well."
    return "" if found.operation == DIFF and found.path == BYTES else "They are equal now."


def _pretty(body: msgspec.Raw) -> str:
    return msgspec.json.format(bytes(body), indent=2).decode()


@cache
def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
