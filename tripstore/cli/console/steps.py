"""The steps of a change as HTML: the form of an action, its plan, and the command that is at work or has ended."""

from __future__ import annotations

import msgspec

from tripstore.cli.console.changes import ConsoleChanges, PlannedAction, ShownAction
from tripstore.cli.console.pages import rendered
from tripstore.cli.console.runs import CommandRun
from tripstore.cli.console.verdicts import verdict_of
from tripstore.cli.cutover.documents import CompletionDocument, CutoverDocument, CutoverPlanDocument

#: Of what a command says while it works.
LINES_MAX = 12

Handover = CutoverDocument | CutoverPlanDocument | CompletionDocument
_HANDOVERS: tuple[type[Handover], ...] = (CutoverDocument, CutoverPlanDocument, CompletionDocument)


def action_html(shown: ShownAction) -> bytes:
    """The first step: what it is, and what to choose."""
    return rendered("action.jinja", action=shown.action, options=shown.options)


def plan_html(planned: PlannedAction) -> bytes:
    """The second: what would be done, and the confirmation."""
    action, run = planned.action, planned.run
    document = handover_of(run) if action.is_handover else None
    return rendered("plan.jinja", planned=planned, action=action, run=run, **_shown(run, document))


def run_html(changes: ConsoleChanges, run: CommandRun) -> bytes:
    """The third: how far it is, then what came of it."""
    action = changes.action(run.action)
    is_done = run.code is not None
    document = handover_of(run) if action.is_handover and is_done else None
    return rendered(
        "run.jinja",
        action=action,
        run=run,
        verdict=verdict_of(run.code),
        **_shown(run, document),
    )


def handover_of(run: CommandRun) -> Handover | None:
    """The document of a hand-over; None: the command said why there is none."""
    for kind in _HANDOVERS:
        try:
            return msgspec.json.decode(run.printed, type=kind)
        except msgspec.MsgspecError:
            continue
    return None


def _shown(run: CommandRun, document: Handover | None) -> dict[str, object]:
    return {"document": document, "said": _said(run), "printed": _printed(run, document)}


def _said(run: CommandRun) -> list[str]:
    """Sentences: progress, warnings, and what went wrong with the way out."""
    return [line for line in run.said.splitlines() if line.strip()][-LINES_MAX:]


def _printed(run: CommandRun, document: Handover | None) -> str:
    """Tables, as they were printed. A document is no text."""
    return "" if document is not None or run.printed.startswith("{") else run.printed.strip("\n")
