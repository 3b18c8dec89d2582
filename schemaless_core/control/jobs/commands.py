"""The commands for jobs of each kind, as advice and hints name them.

Most kinds are nouns with verbs. A repair and an fsck are one command each, whose options are its verbs.
"""

from __future__ import annotations

import shlex
from typing import Literal

Verb = Literal["start", "status", "show", "resume", "cancel"]

_OPTIONS: dict[str, dict[Verb, str]] = {
    "fsck": {"start": "", "status": "--show", "show": "--show", "resume": "--resume", "cancel": "--cancel"},
    "repair": {"start": "", "status": "--show", "show": "--show", "resume": "--resume", "cancel": "--cancel"},
}


def job_command(kind: str, verb: Verb, job: str = "") -> str:
    """What to type to do this with a job; "": with one that is not there yet, or the last."""
    word = _OPTIONS[kind][verb] if kind in _OPTIONS else verb
    of = shlex.quote(job) if job else ""
    return " ".join(each for each in ("tripstore", kind, word, of) if each)


def kind_of(job: str) -> str:
    """The kind of the job with this id."""
    return job.rpartition("-")[0]
