"""Changes of the console without servers: the words of commands, what they said as a page, how many may work."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import click
import msgspec
import pytest

from tests.unit.test_console import JOB, body_of, progress, request
from tests.unit.test_report_page import HOSTILE
from tripstore.cli.backup.documents import BackupView
from tripstore.cli.both import GateDocument
from tripstore.cli.console.access import ConsoleAccess
from tripstore.cli.console.actions import ACTIONS, CHOSEN, ActionOption, ConsoleAction, Documents, actions_of
from tripstore.cli.console.changes import ChangeAsked, ConsoleChanges, PlannedAction, ShownAction
from tripstore.cli.console.runs import AT_WORK_MAX, CommandRuns
from tripstore.cli.console.sections import SECTIONS, GroupsView, IndexesView, JobsView
from tripstore.cli.console.steps import action_html, plan_html, run_html
from tripstore.cli.console.upkeep import BackupsSection, FolderView, FsckSection
from tripstore.cli.console.verdicts import VERDICTS, verdict_of
from tripstore.cli.cutover.documents import CutoverPlanDocument
from tripstore.cli.exits import Exit
from tripstore.cli.fsck.documents import FaultDocument, FsckDocument
from tripstore.cli.index.status import IndexView
from tripstore.cli.jobs.documents import JobDocument
from tripstore.cli.root import root
from tripstore.cli.triggers.groups import GroupView
from tripstore.http.errors import RequestRefused

AT = datetime(2026, 11, 29, 10, 0, tzinfo=UTC)
GROUP = GroupView("--all", "running", "", "now", 1, 1, 1.0, 1, None, 1, 1, 0, [], True, [], None)


def job_of(name: str) -> JobDocument:
    return JobDocument(name, "done", False, False, AT, AT, "ann", "db1", "", {})


SEEN: Documents = {
    "groups": GroupsView([GROUP], 1),
    "indexes": IndexesView([IndexView("by_city", 1, True, [], [])]),
    "backups": BackupsSection([FolderView("/backups/trips", [])]),
    "jobs": JobsView([], [job_of(each) for each in ("diff-2", "repair-1", "diff-1", "backfill-1")]),
}
#: A command that ends when it is killed, and not before.
HANGS = "import time; time.sleep(600)"


class SomeRun:
    """What a command said, without a process."""

    id, action, title, line, begun_at, ended_at = "r1", "switch", "Switch", "tripstore cutover switch", AT, AT

    def __init__(self, printed: str = "", said: str = "", code: int | None = 0) -> None:
        self.printed, self.said, self.code = printed, said, code


class SomeStores:
    """Both stores, of which none is asked."""

    is_both, datastore_name = True, "trips"


def changes(runs: Any = None) -> ConsoleChanges:
    stores: Any = SomeStores()
    return ConsoleChanges(stores, runs)


def run_of(action: ConsoleAction, **said: Any) -> Any:
    run = SomeRun(**said)
    run.action = action.name
    return run


def planned(action: ConsoleAction, run: Any) -> str:
    return plan_html(PlannedAction(action, HOSTILE, HOSTILE, run)).decode()


# Words.


def parsed(words: list[str]) -> click.Context:
    """As the command line reads them; it complains of what it does not know."""
    context, command = click.Context(root), cast(click.Command, root)
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(context, words)
        assert found is not None, name
        context, command = click.Context(found, context, info_name=name), found
    return command.make_context(str(context.info_name), list(words), parent=context.parent)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_every_action_says_what_its_commands_understand(action: ConsoleAction) -> None:
    chosen = action.choice.options(SEEN)[0].words if action.choice else ()
    for words in (action.plan, action.command):
        said = [each.format(typed="trips") for each in words if each != CHOSEN]
        context = parsed([*said, *chosen])
        if words is action.command and action.takes_why:
            assert "why" in context.params, "a reason goes into the audit log"
    assert (CHOSEN in action.command) == (CHOSEN in action.plan) == (action.choice is not None)
    assert action.section in {each.name for each in SECTIONS}


def test_control_an_option_that_a_command_lost_is_caught() -> None:
    with pytest.raises(click.UsageError):
        parsed(["cutover", "switch", "--now"])


def test_a_name_that_looks_like_an_option_is_a_name() -> None:
    choice = actions_of(is_both=False)["triggers-retry"].choice
    assert choice is not None
    context = parsed(["triggers", "retry", "--all", *choice.options(SEEN)[0].words])

    assert (context.params["group"], context.params["is_all"]) == ("--all", True)


@pytest.mark.parametrize(("name", "words"), [("repair", "--diff=diff-2"), ("repair-resume", "repair-1")])
def test_a_plan_and_its_command_are_about_the_same_job_whichever_is_the_newest(name: str, words: str) -> None:
    action = actions_of(is_both=True)[name]
    assert action.choice is not None

    assert action.choice.options(SEEN)[0].words == (words,)
    assert not {"last", "--show=last", "--resume=last"} & {*action.plan, *action.command}


def test_what_is_not_listed_is_not_chosen() -> None:
    made = changes()
    action = made.action("triggers-retry")
    for chosen in ("", "other", "--config=/etc/passwd"):
        with pytest.raises(RequestRefused, match="not there any more"):
            made.plan(action, ChangeAsked(chosen=chosen), SEEN)
    with pytest.raises(RequestRefused, match="not confirmed"):
        made.begin(action, ChangeAsked(chosen="--all", typed="trip"), SEEN, lambda: None)


def test_one_store_has_no_switch() -> None:
    assert "switch" not in actions_of(is_both=False)
    assert "fsck" in actions_of(is_both=False)


def test_a_browser_that_gives_the_token_again_goes_on_with_its_session_in_all_its_pages() -> None:
    access = ConsoleAccess(is_loopback=True, is_tls=False)
    first = access.begin_session(access.token)
    known = request(cookie=first.cookie.decode().split("; ")[0])

    assert access.begin_session(access.token, access.session(known)) == first
    assert access.begin_session(access.token, access.session(request())).seal != first.seal, "another browser"


# What a command said.


def test_every_exit_code_has_words() -> None:
    assert set(VERDICTS) == set(Exit)
    assert verdict_of(-9) == ("bad", "✕ Killed by signal 9")
    assert verdict_of(77)[1] == "✕ Exit code 77"


def test_a_plan_that_refuses_asks_for_nothing_and_one_that_passes_does() -> None:
    switch = changes().action("switch")
    gate = GateDocument("rehearsal", False, "0 cells", "1", "`tripstore worker run`")
    refused = CutoverPlanDocument("switch", False, [gate], [], [])
    passed = msgspec.structs.replace(refused, is_allowed=True, gates=[msgspec.structs.replace(gate, is_passed=True)])

    first, second = (
        planned(switch, run_of(switch, printed=msgspec.json.encode(document).decode(), code=code))
        for document, code in ((refused, 4), (passed, 0))
    )

    assert "tripstore worker run" in first
    assert "act-do" not in first
    assert "--force" in first
    assert "act-do" in second


def test_a_command_that_failed_says_its_way_out_and_no_json() -> None:
    switch = changes().action("switch")
    said = "Error: Postgres cannot be reached.\nLook at `tripstore doctor`."
    shown = run_html(changes(), run_of(switch, printed='{"error":{}}', said=said, code=1)).decode()

    assert "Postgres cannot be reached." in shown
    assert "<code>tripstore doctor</code>" in shown
    assert "error&" not in shown
    assert '{"' not in shown


def test_hostile_texts_are_texts() -> None:
    switch, groups = changes().action("switch"), changes().action("triggers-retry")
    gate = GateDocument(HOSTILE, False, HOSTILE, HOSTILE, HOSTILE)
    document = msgspec.json.encode(CutoverPlanDocument("switch", False, [gate], [], [HOSTILE])).decode()
    fault = FaultDocument(1, HOSTILE, "I3", HOSTILE, None, HOSTILE, None, 1, AT, HOSTILE, HOSTILE)
    fsck = FsckDocument(progress(1, advice=[HOSTILE]), False, {HOSTILE: 1}, [fault], 0, False)
    backup = BackupView(HOSTILE, "damaged", HOSTILE, AT, AT, HOSTILE, [], "trips", 1, 1, 1, 1, 1)
    folders = [FolderView(HOSTILE, [backup]), FolderView(HOSTILE, [], HOSTILE), FolderView(HOSTILE, [])]
    shown = {
        "form": action_html(ShownAction(groups, (ActionOption(HOSTILE, ()),))).decode(),
        "plan": planned(switch, run_of(switch, printed=document, said=HOSTILE, code=4)),
        "text": planned(groups, run_of(groups, printed=HOSTILE, said=HOSTILE)),
        "run": run_html(changes(), run_of(groups, printed=HOSTILE, said=HOSTILE, code=-9)).decode(),
        "fsck": body_of("fsck", FsckSection(fsck, [JOB, JOB])),
        "backups": body_of("backups", BackupsSection(folders)),
    }
    for name, text in shown.items():
        assert "<script" not in text, name
        assert "<img" not in text, name
        assert "alert(1)" in text.replace("<wbr>", ""), f"{name} shows it as it is"


# Processes.


@pytest.fixture
def runs(tmp_path: Path) -> CommandRuns:
    return CommandRuns(tmp_path / "tripstore.yaml")


def test_a_command_that_ends_is_kept_with_what_it_said(runs: CommandRuns) -> None:
    ended = threading.Event()
    run = runs.begin("phase", "Set the phase", ["--version"], 80, ended.set)

    assert ended.wait(60)
    assert run.code == 0
    assert "tripstore, version" in run.printed
    assert runs.find(run.id) is run
    assert [each.code for each in runs.view().runs] == [0]
    assert runs.at_work() == []


def test_a_plan_is_not_listed(runs: CommandRuns) -> None:
    run = runs.plan("phase", "Set the phase", ["phase", "show"], 80)

    assert run.code == Exit.USAGE
    assert "Error: " in run.said
    assert runs.view().runs == []


def test_a_plan_that_hangs_is_killed_with_what_it_began(runs: CommandRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tripstore.cli.console.runs.COMMAND", HANGS)
    monkeypatch.setattr("tripstore.cli.console.runs.PLAN_SECONDS", 0.1)

    assert runs.plan("phase", "Set the phase", [], 80).code == -9


def test_so_many_commands_work_at_once_and_no_more(runs: CommandRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tripstore.cli.console.runs.COMMAND", HANGS)
    begun = [runs.begin("phase", "Set the phase", [], 80, lambda: None) for _ in range(AT_WORK_MAX)]
    with pytest.raises(RequestRefused, match=f"{AT_WORK_MAX} commands are at work"):
        runs.plan("phase", "Set the phase", [], 80)
    for run in begun:
        run.kill()
