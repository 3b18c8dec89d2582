"""What to do about a backfill or a diff that a gate does not accept: commands that lead out, in their order. Pure."""

from __future__ import annotations

from schemaless_core.control.jobs.commands import job_command
from tripstore.migration.cutover.facts import DiffScope, JobFacts, LeftJob
from tripstore.migration.diff.order import DECODED

BACKFILL, DIFF = "backfill", "diff"
#: Jobs that a hint names, the newest.
NAMED_MAX = 3


def begin(kind: str) -> str:
    """There is none, or none that counts."""
    return f"`{job_command(kind, 'start')}` begins one over everything."


def go_on(kind: str, found: JobFacts) -> str:
    """It is not done: the operator gave it up, or it waits to be gone on with."""
    if found.ended_at is not None:
        return begin(kind)
    return f"`{job_command(kind, 'resume', found.job)}` goes on where it was."


def take_up(kind: str, found: JobFacts) -> str:
    """Something was left. No job answers for what another one left before that has ended, and looked less closely."""
    hints = [_of_left(kind, each) for each in found.left[:NAMED_MAX]]
    closest = found.scope
    for each in found.left:
        closest = closest.joined(each.scope)
    closely = "" if closest == found.scope else ", as closely as the one that left it"
    does = "copies everything anew" if kind == BACKFILL else f"compares anew{closely}"
    return " ".join([*hints, f"`{_start(kind, closest)}` {does}."])


def _of_left(kind: str, left: LeftJob) -> str:
    if not left.is_ended:
        resume, cancel = job_command(kind, "resume", left.job), job_command(kind, "cancel", left.job)
        return f"{left.job} has not ended: `{resume}` goes on, or `{cancel}` gives it up."
    show = f"`{job_command(kind, 'show', left.job)}` lists what {left.job or 'it'} left"
    if kind == BACKFILL:
        conflicts = "of a conflict by `tripstore diff start` and `tripstore repair`"
        return f"{show}. Mend that, {conflicts}; `tripstore backfill retry {left.job or 'last'}` copies it then."
    return f"{show}, `tripstore repair --diff {left.job or 'last'}` mends it." if left.open else f"{show}."


def _start(kind: str, scope: DiffScope) -> str:
    """The command for a job that looks so closely at least."""
    words = [job_command(kind, "start")]
    if scope.older:
        words.append("--older all" if scope.older >= 1 else f"--older {scope.older:g}")
    if scope.decoded > DECODED:
        words.append(f"--decoded {scope.decoded}")
    return " ".join(words)
