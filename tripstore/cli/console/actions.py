"""`ConsoleAction`: what the console can have done, as the command that does it, the one that shows its plan, and words.

No decision is made here. A command refuses for its own reasons, and the operator reads what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from schemaless_core.control.jobs.commands import kind_of
from tripstore.cli.console.sections import GroupsView, IndexesView, JobsView
from tripstore.cli.console.upkeep import BackupsSection
from tripstore.cli.exits import Exit
from tripstore.handover.authority import Backend
from tripstore.phase import Phase

#: A word of a command that stands for the words of what was chosen.
CHOSEN = "{chosen}"
#: That an operator chooses from.
JOBS_MAX = 20
#: What sections saw last, by their names.
Documents = Mapping[str, msgspec.Struct | None]


class ActionOption(NamedTuple):
    """One of several. The browser sends its name, and these words go to the command."""

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ActionChoice:
    """What an operator chooses first."""

    label: str
    options: Callable[[Documents], Sequence[ActionOption]]
    nothing: str = "There is nothing to choose from."
    #: The first one is what is meant most often: its plan is shown at once.
    has_default: bool = False


@dataclass(frozen=True, slots=True)
class ConsoleAction:
    """One change. In its words `{chosen}` and `{typed}` stand for what the operator chose and typed."""

    name: str
    title: str
    section: str
    sentence: str
    #: Shows what would be done, and changes nothing.
    plan: tuple[str, ...]
    command: tuple[str, ...]
    #: What the operator types, exactly.
    typed: str = "{datastore}"
    choice: ActionChoice | None = None
    takes_why: bool = False
    #: Exit codes of the plan after which there is something to do.
    goes_on: tuple[Exit, ...] = (Exit.FINE,)
    #: Where a plan refuses: what goes past it, in a shell.
    past: str = ""
    #: How it is taken back; "": it need not be.
    back: str = ""
    #: After it was killed.
    settles: str = "Look at the page, then do it again: whatever was done stays done."
    is_of_migration: bool = False
    #: It prints a document, which is shown as gates and steps.
    is_handover: bool = False

    def confirmation(self, datastore: str, chosen: str) -> str:
        """What has to be typed."""
        return self.typed.format(datastore=datastore, chosen=chosen)


def actions_of(*, is_both: bool) -> dict[str, ConsoleAction]:
    """Those that this configuration has something for."""
    return {each.name: each for each in ACTIONS if is_both or not each.is_of_migration}


def _phases(_documents: Documents) -> Sequence[ActionOption]:
    """`phase set` knows which one may be set now."""
    return [ActionOption(str(each), (str(each),)) for each in Phase if each is not Phase.COMPLETE]


def _groups(documents: Documents) -> Sequence[ActionOption]:
    seen = documents.get("groups")
    return [_named(each.name) for each in seen.groups] if isinstance(seen, GroupsView) else []


def _indexes(documents: Documents) -> Sequence[ActionOption]:
    seen = documents.get("indexes")
    return [_named(each.name) for each in seen.indexes] if isinstance(seen, IndexesView) else []


def _folders(documents: Documents) -> Sequence[ActionOption]:
    seen = documents.get("backups")
    return [_named(each.place) for each in seen.folders] if isinstance(seen, BackupsSection) else []


def _jobs(kind: str, before: str = "") -> Callable[[Documents], Sequence[ActionOption]]:
    """Those of a kind, the newest first. A plan names one: at its confirmation another one may be the newest."""

    def options(documents: Documents) -> Sequence[ActionOption]:
        seen = documents.get("jobs")
        found = [each.job for each in seen.jobs if kind_of(each.job) == kind] if isinstance(seen, JobsView) else []
        return [ActionOption(job, (f"{before}{job}",)) for job in found[:JOBS_MAX]]

    return options


def _directions(_documents: Documents) -> Sequence[ActionOption]:
    return [ActionOption("changes to Schemaless", ()), ActionOption("cells on the way back", ("--reverse",))]


def _named(name: str) -> ActionOption:
    """After `--` a name is never an option."""
    return ActionOption(name, ("--", name))


_FORWARD, _BACK, _END = (("cutover", verb, "--json") for verb in ("switch", "reverse", "complete"))
_UNDONE = (
    "Every process of tripstore undoes or finishes a hand-over whose command was killed, and so does the next `Switch…`"
    " or `Reverse…`. The section on phase and authority shows how things stand."
)
_PAST = 'Only a shell goes past a gate, and writes it down: `tripstore cutover {verb} --force --why "…"`.'
_GROUP = ActionChoice("Group", _groups, "There is no group of triggers.")
_DRY, _YES, _LEFT = "--dry-run", "--yes", "--detach"

ACTIONS = (
    ConsoleAction(
        "phase",
        "Set the phase",
        "standing",
        "Go to another phase with the same authority. Every process follows within a second.",
        ("phase", "set", CHOSEN, _DRY),
        ("phase", "set", CHOSEN),
        typed=CHOSEN,
        choice=ActionChoice("Phase", _phases),
        takes_why=True,
        back="Set the former phase the same way.",
        is_of_migration=True,
    ),
    ConsoleAction(
        "switch",
        "Switch",
        "standing",
        "Make Schemaless the authority. Callers wait meanwhile, for mirror.max_pause_seconds at most.",
        (*_FORWARD, _DRY),
        (*_FORWARD, _YES),
        typed=Backend.STORE.value,
        takes_why=True,
        past=_PAST.format(verb="switch"),
        back="`Reverse…` here, or `tripstore cutover reverse` in a shell, makes Postgres the authority again.",
        settles=_UNDONE,
        is_of_migration=True,
        is_handover=True,
    ),
    ConsoleAction(
        "reverse",
        "Reverse",
        "standing",
        "Make Postgres the authority again, with everything that was written since.",
        (*_BACK, _DRY),
        (*_BACK, _YES),
        typed=Backend.LEGACY.value,
        takes_why=True,
        past=_PAST.format(verb="reverse"),
        back="`Switch…` here, or `tripstore cutover switch` in a shell, makes Schemaless the authority again.",
        settles=_UNDONE,
        is_of_migration=True,
        is_handover=True,
    ),
    ConsoleAction(
        "complete",
        "Complete",
        "standing",
        "End the migration. There is no way back afterwards. The evidence is written where the console was started.",
        (*_END, _DRY),
        (*_END, "--datastore={typed}"),
        takes_why=True,
        settles="`Complete…` again: it goes on, and writes its evidence to another file.",
        is_of_migration=True,
        is_handover=True,
    ),
    ConsoleAction(
        "settle",
        "Settle",
        "standing",
        "Accept a Postgres that was promoted or put back, for the side that is right.",
        ("cutover", "settle", _DRY),
        ("cutover", "settle", _YES),
        takes_why=True,
        is_of_migration=True,
    ),
    ConsoleAction(
        "backfill",
        "Backfill",
        "jobs",
        "Copy what stood in the tables before the mirror began. Workers do it: `tripstore worker run`.",
        ("backfill", "start", _DRY),
        ("backfill", "start", _LEFT),
        back="`tripstore backfill cancel` ends it; what it copied stays, and does no harm.",
        is_of_migration=True,
    ),
    ConsoleAction(
        "backfill-retry",
        "Retry quarantine",
        "jobs",
        "Copy the rows that a backfill has in quarantine, once they are mended. Workers do it.",
        ("backfill", "retry", _DRY, CHOSEN),
        ("backfill", "retry", _LEFT, CHOSEN),
        choice=ActionChoice("Backfill", _jobs("backfill"), "No backfill is known yet.", has_default=True),
        is_of_migration=True,
    ),
    ConsoleAction(
        "diff",
        "Diff",
        "jobs",
        "Compare every row of both stores. Workers do it: `tripstore worker run`.",
        ("diff", "start", _DRY),
        ("diff", "start", _LEFT),
        back="`tripstore diff cancel` ends it.",
        is_of_migration=True,
    ),
    ConsoleAction(
        "repair",
        "Repair",
        "jobs",
        "Make the mirror equal to the authority where a diff found them different.",
        ("repair", _DRY, CHOSEN),
        ("repair", _YES, CHOSEN),
        choice=ActionChoice("Diff", _jobs("diff", "--diff="), "No diff is known yet.", has_default=True),
        goes_on=(Exit.FAILED,),
        settles="`Resume repair…` goes on with it.",
        is_of_migration=True,
    ),
    ConsoleAction(
        "repair-resume",
        "Resume repair",
        "jobs",
        "Go on with a repair, where it was interrupted.",
        ("repair", "--show", CHOSEN),
        ("repair", "--resume", CHOSEN),
        choice=ActionChoice("Repair", _jobs("repair"), "No repair is known yet.", has_default=True),
        goes_on=(Exit.INTERRUPTED,),
        settles="`Resume repair…` goes on with it.",
        is_of_migration=True,
    ),
    ConsoleAction(
        "mirror-retry",
        "Retry parked changes",
        "aside",
        "Have the workers carry what is parked again.",
        ("mirror", "parked", CHOSEN),
        ("mirror", "retry", "--all", CHOSEN),
        choice=ActionChoice("Which", _directions),
        is_of_migration=True,
    ),
    ConsoleAction(
        "buffer-drain",
        "Drain buffers",
        "buffers",
        "Carry what waits for servers that were down, now and without a worker.",
        ("buffer", "status"),
        ("buffer", "drain"),
        goes_on=(Exit.FINE, Exit.FAILED),
    ),
    ConsoleAction(
        "triggers-retry",
        "Retry parked cells",
        "groups",
        "Have the workers try the parked cells of a group again now.",
        ("triggers", "parked", "list", CHOSEN),
        ("triggers", "retry", "--all", CHOSEN),
        choice=_GROUP,
    ),
    ConsoleAction(
        "triggers-resume",
        "Resume a halted group",
        "groups",
        "Deliver a halted group's cells again. It halts anew when as many more cells are parked as halted it.",
        ("triggers", "status", CHOSEN),
        ("triggers", "resume", CHOSEN),
        choice=_GROUP,
        goes_on=(Exit.FAILED,),
    ),
    ConsoleAction(
        "index-verify",
        "Verify an index",
        "indexes",
        "Compare every entry of an index with the cells. The verdict is kept for the gates.",
        ("index", "status", CHOSEN),
        ("index", "verify", CHOSEN),
        choice=ActionChoice("Index", _indexes, "There is no index."),
        goes_on=(Exit.FINE, Exit.FAILED),
    ),
    ConsoleAction(
        "fsck",
        "Begin an fsck",
        "fsck",
        "Look whether what stands on the servers is right. Workers do it: `tripstore worker run`.",
        ("fsck", _DRY),
        ("fsck", _LEFT),
        back="`tripstore fsck --cancel last` ends it.",
    ),
    ConsoleAction(
        "backup-verify",
        "Verify a backup",
        "backups",
        "Read each file of the newest backup of a folder, and compare checksums and added ids.",
        ("backup", "list", CHOSEN),
        ("backup", "verify", CHOSEN),
        choice=ActionChoice("Folder", _folders, "No backup was made of this datastore yet."),
    ),
)
