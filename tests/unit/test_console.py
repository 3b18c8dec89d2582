"""The console without servers: what is kept and sent of a look, which requests are refused, texts that are hostile."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import psycopg2
import pytest

from schemaless_core.control.audit import AuditEntry
from schemaless_core.errors import InvalidConfig
from tests.pages import read_page
from tests.reports import sample_report
from tests.unit.test_report_page import HOSTILE, hostile
from tripstore.cli.console.access import HEADER, ConsoleAccess
from tripstore.cli.console.answers import HEADERS
from tripstore.cli.console.front import event_of
from tripstore.cli.console.hub import NEWS_MAX, SectionNews, put_news
from tripstore.cli.console.mismatches import AsideView, ListedMismatch, MismatchesView, marked_bodies
from tripstore.cli.console.pace import SHARE_MAX, STRETCH_MAX, WINDOW_SECONDS, ConsolePace
from tripstore.cli.console.pages import ROWS, mismatch_html, page_of, section_html
from tripstore.cli.console.reader import SectionReader, Shown
from tripstore.cli.console.sections import SECTIONS, ConsoleSection, GroupsView, IndexesView, JobsView, ServersSection
from tripstore.cli.console.series import Charts
from tripstore.cli.cutover.status import CutoverStatusDocument, RowDocument
from tripstore.cli.index.status import IndexView
from tripstore.cli.jobs.documents import JobDocument, ProgressDocument, WorkerDocument
from tripstore.cli.status.overview import ClusterView, ControlView, ServersView, ServerView
from tripstore.cli.triggers.groups import GroupView
from tripstore.engines.validation.shadow.ledger import KnownMismatch
from tripstore.http.errors import RequestRefused
from tripstore.http.request import HttpRequest
from tripstore.migration.report.mismatches import shadow_mismatches
from tripstore.migration.report.sides import NoSides

AT = datetime(2026, 11, 29, 10, 0, tzinfo=UTC)
ROW = UUID(int=7)
#: The bound for the whole page, spent on one section.
FIRST_PAINT_SECONDS = 1.0
JOB = JobDocument("diff-1", "running", False, False, AT, None, "ann", "db1", "", {})


class Seen(msgspec.Struct, frozen=True):
    """What a look found."""

    number: int


def reader_of(look: Callable[[Any], msgspec.Struct], name: str = "jobs") -> SectionReader:
    stores: Any = None  # the look asks none
    return SectionReader(ConsoleSection(name, name, 1, look), stores, lambda _reader: None, ConsolePace(), lambda: AT)


def servers(cells: int, answered: int = 2) -> ServersSection:
    server = ServerView("mysql://db1:3306", "primary", True, None, None)
    return ServersSection(ServersView([ClusterView("a", [server], {"RW": 2})], cells, answered), 2)


def progress(number: int, **changes: Any) -> ProgressDocument:
    job = msgspec.structs.replace(JOB, job=f"diff-{number}")
    workers = [WorkerDocument("w1", 0.5, 120.0, "the mirror is late")]
    made = ProgressDocument(job, 10, 4, 1, 400, 1000, 120.0, 5.0, ["the mirror is late"], {}, 2, AT, workers, [])
    return msgspec.structs.replace(made, **changes)


def request(method: str = "GET", path: str = "/", **headers: str) -> HttpRequest:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"method": method, "raw_path": path.encode(), "query_string": b"", "headers": named}
    return HttpRequest(scope, None)  # type: ignore[arg-type]  # nothing is received


# What is kept of a look.


def test_the_same_answer_is_no_new_version_and_has_a_new_time() -> None:
    first = Shown().seen(Seen(1), AT)
    again = first.seen(Seen(1), AT + timedelta(seconds=2))
    changed = again.seen(Seen(2), AT + timedelta(seconds=4))

    assert (first.version, again.version, changed.version) == (1, 1, 2)
    assert again.at == AT + timedelta(seconds=2)


def test_a_look_that_fails_leaves_what_was_shown_with_its_time() -> None:
    answers: Iterator[Seen | Exception] = iter(
        [Seen(1), InvalidConfig("legacy", "is gone"), psycopg2.OperationalError("down\nmore"), Seen(1)]
    )

    def look(_stores: object) -> msgspec.Struct:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    reader = reader_of(look)
    seen = []
    for _ in range(4):
        reader.look()
        seen.append(reader.shown)

    assert [each.trouble and each.trouble.split()[0] for each in seen] == [None, "Configuration", "down", None]
    assert {(each.document, each.at) for each in seen} == {(Seen(1), AT)}
    assert [each.version for each in seen] == [1, 2, 3, 4]


def test_an_error_that_was_not_foreseen_is_logged_and_its_text_is_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = reader_of(lambda _stores: 1 / 0)  # type: ignore[arg-type,return-value]  # it never returns

    with caplog.at_level(logging.ERROR):
        reader.look()

    assert reader.shown.trouble == "This look failed in a way that was not foreseen (ZeroDivisionError)."
    assert [vars(each)["event"] for each in caplog.records] == ["console.look_failed"]


def test_a_chart_of_a_rate_takes_the_difference_and_no_fall() -> None:
    charts = Charts()
    taken = [
        charts.take("servers", servers(cells, answered), AT + timedelta(seconds=seconds))
        for seconds, cells, answered in [(0, 100, 2), (2, 300, 2), (4, 50, 1), (6, 310, 2), (8, 200, 2), (10, 220, 2)]
    ]

    assert [each["cells"].value if each else None for each in taken] == [None, 100, None, None, None, 10]
    assert [len(each.points) for each in charts.documents() if each.name == "cells"] == [2]


def test_a_page_that_takes_nothing_is_ended_and_holds_no_more_than_its_share() -> None:
    page: asyncio.Queue[SectionNews | None] = asyncio.Queue(NEWS_MAX)
    news = SectionNews("jobs", "a-1", AT, None, 2, {}, AT)

    for _ in range(NEWS_MAX + 1):
        put_news(page, news)

    assert page.get_nowait() is None
    assert page.empty()


def test_a_text_of_a_server_begins_no_other_event() -> None:
    sent = event_of(SectionNews("jobs", "a-1", AT, "down\n\nevent: all\ndata: {}", 2, {}, AT))

    assert sent.count(b"\n") == 3
    assert json.loads(sent.split(b"data: ", 1)[1])["trouble"].startswith("down\n\nevent")


def test_a_page_that_comes_back_looks_only_when_the_last_look_is_old() -> None:
    looks: list[int] = []

    def look(_stores: object) -> Seen:
        looks.append(1)
        return Seen(len(looks))

    stores: Any = None  # the look asks none
    now = [100.0]
    told = threading.Event()
    section = ConsoleSection("jobs", "jobs", 60, look)
    reader = SectionReader(section, stores, lambda _reader: told.set(), ConsolePace(), lambda: AT, lambda: now[0])
    reader.start()
    reader.watched(True)
    assert told.wait(10)
    reader.watched(False)
    reader.watched(True)
    told.clear()
    now[0] += 61
    reader.watched(False)
    reader.watched(True)
    assert told.wait(10)
    reader.end()

    assert len(looks) == 2


def test_looks_are_rarer_where_they_cost_more_and_as_often_as_usual_where_they_do_not() -> None:
    now, computed = [0.0], [0.0]
    pace = ConsolePace(lambda: computed[0], lambda: now[0])

    def after_window(share_as_usual: float) -> float:
        computed[0] += WINDOW_SECONDS * share_as_usual / pace.stretch
        now[0] += WINDOW_SECONDS
        return pace.stretch

    assert after_window(SHARE_MAX / 2) == 1
    assert [round(after_window(SHARE_MAX * 10), 3) for _ in range(3)] == [10, 10, 10], "it finds its pace and keeps it"
    assert after_window(SHARE_MAX / 2) == 1, "the page was closed"
    assert after_window(SHARE_MAX * 1000) == STRETCH_MAX


# Requests.


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8090", "127.0.0.1.evil.example", "", "10.0.0.7"])
def test_a_page_that_names_loopback_otherwise_reads_nothing(host: str) -> None:
    access = ConsoleAccess(is_loopback=True, is_tls=False)

    with pytest.raises(RequestRefused, match="another name"):
        access.refuse_stranger(request(host=host))
    for ours in ("localhost:8090", "127.0.0.1", "127.0.0.2:8090", "[::1]:8090", "[::1]"):
        access.refuse_stranger(request(host=ours))


def test_elsewhere_a_browser_reads_after_it_gave_the_token() -> None:
    access = ConsoleAccess(is_loopback=False, is_tls=True)
    cookie = access.begin_session(access.token).cookie.decode()
    pair, *rules = cookie.split("; ")

    assert not access.may_read(request(host="db1"))
    assert not access.may_read(request(host="db1", cookie=f"{access.cookie}=guess"))
    assert access.may_read(request(host="db1", cookie=f'x=a b; foo={{"a":1}}; flag; ä=ö; {pair}'))
    assert rules == ["Path=/", "HttpOnly", "SameSite=Strict", "Secure"]
    assert access.token not in cookie
    with pytest.raises(RequestRefused, match="not the token"):
        access.begin_session(access.token + "x")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://db1:8090"},
        {HEADER: "1"},
        {HEADER: "1", "origin": "https://evil.example"},
        {HEADER: "1", "origin": "http://db1:8090"},
        {HEADER: "1", "origin": "null"},
    ],
)
def test_what_another_page_could_send_is_refused(headers: dict[str, str]) -> None:
    access = ConsoleAccess(is_loopback=False, is_tls=True)

    with pytest.raises(RequestRefused, match="Another page"):
        access.refuse_forged(request("POST", "/session", host="db1:8090", **headers))
    access.refuse_forged(request("POST", "/session", host="db1:8090", origin="https://db1:8090", **{HEADER: "1"}))


def test_the_policy_allows_files_of_ours_and_nothing_else() -> None:
    policy = dict(rule.strip().split(" ", 1) for rule in dict(HEADERS)[b"content-security-policy"].decode().split(";"))

    assert policy.pop("default-src") == policy.pop("base-uri") == policy.pop("form-action") == "'none'"
    assert policy.pop("frame-ancestors") == "'none'"
    assert policy == dict.fromkeys(("script-src", "style-src", "connect-src"), "'self'") | {"img-src": "data:"}


# What is shown.


def body_of(name: str, document: msgspec.Struct, page: int = 1) -> str:
    section = next(each for each in SECTIONS if each.name == name)
    reader = SectionReader(section, None, lambda _reader: None, ConsolePace())  # type: ignore[arg-type]  # it does not look
    reader.shown = Shown().seen(document, AT)
    return section_html(reader, page).decode()


def test_a_job_is_shown_with_what_is_left_and_what_it_waits_for() -> None:
    said = read_page(body_of("jobs", JobsView([progress(1)], [JOB]))).text

    for text in (
        "diff-1",
        "400 of about 1,000 rows",
        "120 rows/s",
        "about 5 s left",
        "the mirror is late",
        "2 findings are open",
    ):
        assert text in said.replace("\N{NO-BREAK SPACE}", " "), text


def test_two_hundred_jobs_come_in_pages() -> None:
    jobs = [msgspec.structs.replace(JOB, job=f"diff-{number}", state="done") for number in range(200)]
    first, last, beyond = (body_of("jobs", JobsView([], jobs), page) for page in (1, 8, 99))

    assert first.count("<tr") == last.count("<tr") == ROWS + 1
    assert "diff-0<" in first
    assert "diff-199<" in last
    assert last == beyond
    assert page_of([], 1).pages == 1


def test_a_server_that_is_down_is_said_in_a_word_beside_its_colour() -> None:
    down = ServerView("mysql://db1:3306", "primary", False, "connection refused", None)
    said = read_page(body_of("servers", ServersSection(ServersView([ClusterView("a", [down], None)], 5, 1), 4096))).text
    said = said.replace("\N{NO-BREAK SPACE}", " ")

    assert "down" in said
    assert "connection refused" in said
    assert "5 cells in the 1 of 4,096 shards that answered." in said


def test_the_evidence_says_what_each_gate_wants_and_how_many_more() -> None:
    made = sample_report()
    said = read_page(body_of("evidence", made)).text.replace("\u200b", "")

    assert made.verdict.answer in said
    assert all(gate.name in said for gate in made.gates)
    missing = [each.missing for each in made.operations if each.compared and each.missing]
    assert missing
    assert all(f"{number:,} more" in said for number in missing)


def mismatches(count: int) -> MismatchesView:
    known = [
        KnownMismatch(AT - timedelta(seconds=number), "get_cell", "field", f"BASE@{number} of {ROW}", "fare", 1, "show")
        for number in range(count)
    ]
    made = [(each, next(shadow_mismatches([each], NoSides()))) for each in known]
    return MismatchesView([ListedMismatch(str(each.at.timestamp()), found, each) for each, found in made])


def test_ten_thousand_mismatches_come_in_pages_that_are_made_at_once() -> None:
    seen = mismatches(10_000)
    body_of("mismatches", seen)
    begun = time.thread_time()
    last = body_of("mismatches", seen, 400)
    seconds = time.thread_time() - begun

    assert "BASE@9999<" in last.replace("<wbr>", "")
    assert last.count("data-mismatch") == ROWS
    assert "Page 400 of 400" in last
    assert seconds < FIRST_PAINT_SECONDS
    assert seen.find(seen.mismatches[7].id) is seen.mismatches[7]
    assert seen.find("none") is None


def test_what_was_set_aside_has_its_command_and_its_reason() -> None:
    made = sample_report()
    said = read_page(body_of("aside", AsideView(made.quarantine, made.conflicts))).text

    assert made.conflicts
    assert made.quarantine
    for command, reason in [(each.command, each.reason) for each in made.conflicts] + [
        (each.command, each.reason) for each in made.quarantine
    ]:
        assert command in said
        assert reason in said


@pytest.mark.parametrize(
    ("one", "other", "marked", "marked_there"),
    [
        ('{"a": 1, "b": [1, 2]}', '{"a": 2, "b": [1, 2]}', ['"a": 1,'], ['"a": 2,']),
        ('{"b": [1, 2]}', '{"b": [1, 2], "c": null}', ["]"], ["],", '"c": null']),
        ("[1, 2, 3]", "[2, 1, 3]", ["1,", "2,"], ["2,", "1,"]),
        ("[1, 1]", "[1, 1]", [], []),
        ("null", "[1]", ["null"], ["[", "1", "]"]),
    ],
)
def test_lines_of_two_bodies_are_marked_where_they_differ(
    one: str, other: str, marked: list[str], marked_there: list[str]
) -> None:
    found = marked_bodies(msgspec.Raw(one.encode()), msgspec.Raw(other.encode()))

    assert [[line.text.strip() for line in lines if line.is_different] for lines in found] == [marked, marked_there]


@pytest.mark.parametrize(("one", "other"), [([0, 1] * 495, [1, 0, 0] * 330), ([[0]] * 330, [[0, 0]] * 240)])
def test_bodies_of_lines_that_are_alike_are_marked_at_once(one: list[Any], other: list[Any]) -> None:
    begun = time.thread_time()
    lines, others = marked_bodies(*(msgspec.Raw(msgspec.json.encode(each)) for each in (one, other)))

    assert any(line.is_different for line in lines + others)
    assert time.thread_time() - begun < FIRST_PAINT_SECONDS


def test_hostile_texts_of_databases_are_texts() -> None:
    entry = AuditEntry("2026-11-29T10:00:00", HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    server = ServerView(HOSTILE, "replica", False, HOSTILE, None)
    told = progress(1, throttles=[HOSTILE], advice=[HOSTILE])
    made = hostile(sample_report())
    known = KnownMismatch(AT, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1, HOSTILE)
    row = RowDocument(1, "postgres", HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    group = GroupView(HOSTILE, "halted", HOSTILE, "now", 1, 1, 1.0, 1, None, 1, 1, 0, [HOSTILE], False, [HOSTILE], None)
    shown = {
        "control": ControlView(HOSTILE, True, HOSTILE, 1, [entry]),
        "servers": ServersSection(ServersView([ClusterView(HOSTILE, [server], None)], 1, 1), 2),
        "jobs": JobsView([told], [msgspec.structs.replace(JOB, job=HOSTILE, who=HOSTILE)]),
        "evidence": hostile(sample_report()),
        "mismatches": MismatchesView([ListedMismatch("1", each, known) for each in made.mismatches]),
        "aside": AsideView(made.quarantine, made.conflicts),
        "groups": GroupsView([group], 1),
        "indexes": IndexesView([IndexView(HOSTILE, None, False, [HOSTILE], [])]),
        "standing": CutoverStatusDocument(
            "shadow", row, 1, HOSTILE, 1, 1, 1, [], 1, 1, False, [HOSTILE], [row], [entry]
        ),
    }
    for name, document in shown.items():
        text = body_of(name, document)
        assert "<script" not in text, name
        assert "<img" not in text, name
        assert "alert(1)" in text.replace("<wbr>", ""), f"{name} shows it as it is"
    opened = mismatch_html(hostile(sample_report(with_bodies=True)).mismatches[0]).decode()
    assert "<script" not in opened
    assert "alert(1)" in opened.replace("<wbr>", "")
