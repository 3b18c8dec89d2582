"""What the commands of `tripstore cutover` print: as JSON documents and as screens."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec
from rich.text import Text

from tripstore.cli.both import GateDocument, gate_documents, gates_screen
from tripstore.cli.tables import show, table
from tripstore.migration.cutover.complete import Completion
from tripstore.migration.cutover.perform import HandoverOrder, Performed
from tripstore.migration.cutover.plan import CutoverPlan


class HandoverStepDocument(msgspec.Struct, frozen=True):
    """A step; how often it was done and how long that took in all, null in a plan."""

    name: str
    sentence: str
    times: int | None = None
    seconds: float | None = None


class CutoverPlanDocument(msgspec.Struct, frozen=True):
    """The JSON document of `plan`, of a dry run and of a refusal."""

    direction: str
    is_allowed: bool
    gates: list[GateDocument]
    steps: list[HandoverStepDocument]
    #: What no gate refuses: standbys that a promotion would lose something with.
    warnings: list[str]


class CutoverDocument(msgspec.Struct, frozen=True):
    """The JSON document of `switch` and `reverse`; `pause_seconds` is how long callers waited, null: not at all."""

    direction: str
    switch_id: str
    is_decided: bool
    reason: str
    authority: str
    epoch: int
    pause_seconds: float | None
    forced: list[str]
    steps: list[HandoverStepDocument]


class CompletionDocument(msgspec.Struct, frozen=True):
    """The JSON document of `complete`."""

    datastore: str
    is_allowed: bool
    is_done: bool
    gates: list[GateDocument]
    steps: list[HandoverStepDocument]
    evidence: str


def plan_document(plan: CutoverPlan) -> CutoverPlanDocument:
    steps = [HandoverStepDocument(step.name, step.sentence) for step in plan.steps]
    gates, warnings = gate_documents(plan.verdicts), list(plan.warnings)
    return CutoverPlanDocument(plan.direction.value, not plan.refusals, gates, steps, warnings)


def print_plan(document: CutoverPlanDocument) -> None:
    show(*gates_screen(document.gates), Text())
    show(table(("step", ""), [(step.name, step.sentence) for step in document.steps]), Text())
    for warning in document.warnings:
        show(Text(warning, style="yellow"), Text())
    refusing = sum(not gate.is_passed for gate in document.gates)
    if refusing:
        click.echo(f"{refusing} of {len(document.gates)} gates refuse; nothing was changed.")
    else:
        command = f"tripstore cutover {document.direction}"
        click.echo(f"All {len(document.gates)} gates pass: `{command}` does this. Nothing was changed yet.")


def cutover_document(performed: Performed, order: HandoverOrder) -> CutoverDocument:
    steps = [
        HandoverStepDocument(each.step.name, each.step.sentence, each.times, round(each.seconds, 4))
        for each in performed.steps
    ]
    pause = None if performed.pause_seconds is None else round(performed.pause_seconds, 4)
    row = performed.authority
    return CutoverDocument(
        performed.direction.value,
        performed.switch_id,
        performed.is_decided,
        performed.reason,
        row.backend.value,
        row.epoch,
        pause,
        list(order.forced),
        steps,
    )


def print_cutover(document: CutoverDocument) -> None:
    rows = [
        (step.name, step.sentence, f"{step.times}x", f"{1000 * (step.seconds or 0):.1f} ms") for step in document.steps
    ]
    show(table(("step", "", "", ""), rows), Text())
    waited = (
        "no caller waited" if document.pause_seconds is None else f"callers waited for {document.pause_seconds:.3f} s"
    )
    where = f"{document.authority} is the authority at epoch {document.epoch}"
    if document.is_decided:
        back = "reverse" if document.direction == "switch" else "switch"
        click.echo(f"Done: {where}; {waited}. The way back: `tripstore cutover {back}`.")
    else:
        click.echo(f"Not done ({document.reason}): {where}, as before; {waited}.")


def completion_document(
    datastore: str, completion: Completion, gates: Sequence[GateDocument], evidence: str, *, is_done: bool = False
) -> CompletionDocument:
    steps = [HandoverStepDocument(step.name, step.sentence) for step in completion.steps()]
    is_allowed = all(gate.is_passed for gate in gates)
    return CompletionDocument(datastore, is_allowed, is_done, list(gates), steps, evidence)


def print_completion(document: CompletionDocument) -> None:
    if document.is_done:
        click.echo(f"The migration of {document.datastore} is complete. Its evidence is in {document.evidence}.")
        click.echo("Take legacy: out of the configuration when no process needs it.")
        return
    show(*gates_screen(document.gates), Text())
    show(table(("step", ""), [(step.name, step.sentence) for step in document.steps]), Text())
    refusing = sum(not gate.is_passed for gate in document.gates)
    said = f"{refusing} of {len(document.gates)} gates refuse; " if refusing else "All gates pass; "
    click.echo(f"{said}nothing was changed.")
