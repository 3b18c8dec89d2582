"""The commands for jobs of each kind, as advice and hints name them.

Most kinds are nouns with verbs. Others are one command each, whose options are its verbs.
"""

from __future__ import annotations

import shlex
from typing import Literal

Verb = Literal["start", "status", "show", "resume", "cancel"]

_OPTIONS: dict[Verb, str] = {
    "start": "",
    "status": "--show",
    "show": "--show",
    "resume": "--resume",
    "cancel": "--cancel",
}
#: The kinds that are one command.
_COMMANDS = {
    "backup": "backup create",
    "fsck": "fsck",
    "move": "shards move",
    "purge": "purge",
    "compress": "cell compress",
    "repair": "repair",
    "replicate": "replicate start",
    "restore": "backup restore",
}


def job_command(kind: str, verb: Verb, job: str = "") -> str:
    """What to type to do this with a job; "": with one that is not there yet, or the last."""
    word = _OPTIONS[verb] if kind in _COMMANDS else verb
    of = shlex.quote(job) if job else ""
    return " ".join(each for each in ("tripstore", _COMMANDS.get(kind, kind), word, of) if each)


def kind_of(job: str) -> str:
    """The kind of the job with this id."""
    return job.rpartition("-")[0]
