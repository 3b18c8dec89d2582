"""The report as a page: whole without a network, harmless whatever databases put into it, and readable by all."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from itertools import pairwise
from typing import Any
from zlib import crc32

import msgspec
import pytest

from tests.pages import Element, read_page
from tests.reports import LIMITS, NOW, SINCE, sample_report
from tripstore.engines.validation.report import words
from tripstore.engines.validation.report.charts import LEFT, RIGHT, Time, rate_chart, scale_of
from tripstore.engines.validation.report.document import RateHour, RateSeries, Report, ReportUnknown, ReportVerdict
from tripstore.engines.validation.report.glance import glance
from tripstore.engines.validation.report.html import HERE, environment, render

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'`{{ 7*7 }}`&amp;<b>"
#: What decides how a page is made up.
KEPT = ("", "postgres", "schemaless", "forward", "reverse")
SECTIONS = [
    "todo", "glance", "operations", "experiments", "rates", "lag", "jobs", "latency", "mismatches", "quarantine",
    "conflicts", "gates",
]  # fmt: skip


@pytest.fixture(scope="module")
def page() -> Element:
    return read_page(render(sample_report()))


def hostile(value: Any) -> Any:
    """A report in which every text is an attack; others stay others."""
    if isinstance(value, str):
        return value if value in KEPT else f"{HOSTILE}{crc32(value.encode())}"
    if isinstance(value, dict):
        return {hostile(name): each for name, each in value.items()}
    if isinstance(value, list):
        return [hostile(each) for each in value]
    if isinstance(value, msgspec.Struct):
        changed = {name: hostile(getattr(value, name)) for name in value.__struct_fields__}
        return type(value)(**changed)
    return value


def unbroken(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def empty() -> Report:
    verdict = ReportVerdict(direction="switch", question="May we?", is_allowed=True, answer="Yes.", command="x")
    known: dict[str, Any] = {
        name: []
        for name in Report.__struct_fields__
        if name in ("gates", "operations", "noise", "rates", "lag_now", "lag", "jobs", "latency")
        or name in ("mismatches", "quarantine", "conflicts", "unknown", "experiments", "remaining_uses")
    }
    return Report(
        made_at=NOW,
        made_by="tripstore",
        datastore="trips",
        backends=["postgres", "schemaless"],
        since=SINCE,
        has_bodies=False,
        verdict=verdict,
        limits=LIMITS,
        standing=None,
        waiting=None,
        **known,
    )


REPORTS: dict[str, Callable[[], Report]] = {
    "refused": sample_report,
    "allowed": lambda: sample_report(is_allowed=True),
    "with bodies": lambda: sample_report(with_bodies=True),
    "hostile": lambda: hostile(sample_report(with_bodies=True)),
    "empty": empty,
}
every_report = pytest.mark.parametrize("made", [make() for make in REPORTS.values()], ids=list(REPORTS))


def test_rows_of_a_job_are_told_to_the_last_one_and_an_estimate_is_called_one(page: Element) -> None:
    (jobs,) = (each for each in page.all("section") if each.attributes.get("id") == "jobs")
    said = unbroken(jobs.text)

    assert "18,204,117 rows" in said
    assert "11,201,400 rows of about 18,200,000, an estimate" in said
    assert words.count(6433) == "6,433"


def test_the_verdict_comes_first_with_what_to_do() -> None:
    refused, allowed = read_page(render(sample_report())), read_page(render(sample_report(is_allowed=True)))

    assert refused.one("h1").text == allowed.one("h1").text == "Ready to switch to Schemaless?"
    assert [each.attributes["id"] for each in refused.all("section")] == [*SECTIONS, "history"]
    todo = next(refused.all("section")).text
    assert "Not yet. 5 of 16 gates refuse." in refused.text
    assert "Run the diff again, or finish it." in todo
    assert "tripstore mirror parked" in todo
    assert "writers" not in todo
    assert "Yes. All 16 gates pass" in allowed.text
    assert "tripstore cutover switch --dry-run" in next(allowed.all("section")).text
    assert next(refused.all("title")).text.startswith("Ready to switch to Schemaless? Not yet")


@every_report
def test_the_page_needs_nothing_but_itself(made: Report) -> None:
    read = read_page(render(made))

    for element in read.all():
        for name, value in element.attributes.items():
            assert name not in ("src", "srcset", "style", "action", "ping"), element.name
            assert not name.startswith("on"), f"{element.name} {name}"
            if name == "href":
                assert value.startswith("#") or value == "data:,", value
    assert {element.name for element in read.all()}.isdisjoint({"iframe", "object", "embed", "img", "base", "form"})
    assert "@import" not in read.one("style").text
    assert "url(" not in read.one("style").text


@every_report
def test_the_page_forbids_every_script_and_style_but_its_own(made: Report) -> None:
    read = read_page(render(made))

    (policy,) = [
        each.attributes["content"]
        for each in read.all("meta")
        if each.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for name, directive in (("script", "script-src"), ("style", "style-src")):
        text = read.one(name).text
        assert rules[directive] == f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def test_hostile_texts_are_texts() -> None:
    made = sample_report(with_bodies=True)
    harmless, read = read_page(render(made)), read_page(render(hostile(made)))

    assert elements(read) == elements(harmless), "not one element more"
    assert read.one("script").text == (HERE / "page.js").read_text()
    assert read.one("h1").text.startswith(HOSTILE)
    assert read.text.count("<script>alert(1)</script>") > 100, "they are there, as they are"


def elements(page: Element) -> Counter[str]:
    """How many there are of each; where lines may end, and what is between backticks, the text decides."""
    return Counter(each.name for each in page.all() if each.name not in ("wbr", "code"))


def test_a_control_would_see_what_is_not_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same attack on a page without the escaping environment."""
    monkeypatch.setattr(environment(), "autoescape", False)
    environment().cache = None  # compiled with the escapes in it
    try:
        text = render(hostile(sample_report()))
    finally:
        environment.cache_clear()

    assert text.count("<script>alert(1)</script>") > 100


def test_bodies_are_on_the_page_only_when_they_were_asked_for() -> None:
    without, with_ = render(sample_report()), render(sample_report(with_bodies=True))

    assert "San Francisco" not in without
    assert "completed" not in without
    assert "This report shows bodies." not in without
    assert "&#34;completed&#34;" in with_
    assert "This report shows bodies." in with_


@every_report
def test_headings_have_an_order_and_tables_a_caption(made: Report) -> None:
    read = read_page(render(made))

    levels = [int(each.name[1]) for each in read.all() if re.fullmatch("h[1-6]", each.name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))
    for table in read.all("table"):
        assert table.one("caption").text.strip()
        assert all(each.attributes["scope"] in ("col", "row") for each in table.all("th"))
    ids = [each.attributes["id"] for each in read.all() if "id" in each.attributes]
    assert len(ids) == len(set(ids))
    for each in read.all():
        if "aria-labelledby" in each.attributes:
            assert each.attributes["aria-labelledby"] in ids
        if each.name == "a":
            assert each.attributes["href"].removeprefix("#") in ids


def test_each_chart_says_in_words_what_it_shows(page: Element) -> None:
    charts = [each for each in page.all("svg") if "aria-hidden" not in each.attributes and each.attributes.get("role")]

    assert len(charts) == 6 + 2 + 9
    assert all(len(each.attributes["aria-label"]) > 30 for each in charts)
    assert any("36 mismatches in 12 hours" in unbroken(each.attributes["aria-label"]) for each in charts)


def test_each_mismatch_has_its_place_and_a_command(page: Element) -> None:
    records = [each for each in page.all("tbody") if each.attributes.get("id", "").startswith("mismatch-")]

    assert len(records) == 14
    for record in records:
        assert "tripstore " in " ".join(code.text for code in record.all("code"))
        assert "Field path" in record.text


def test_what_is_unknown_is_told_before_any_number() -> None:
    made = msgspec.structs.replace(sample_report(), unknown=[unknown("jobs")])

    (todo, *_others) = read_page(render(made)).all("section")

    assert "Sources that did not answer" in todo.text
    assert "Jobs: the server is down" in todo.text


def unknown(*lists: str) -> ReportUnknown:
    return ReportUnknown(what=lists[0], reason="the server is down", missing_from=list(lists))


@pytest.mark.parametrize(
    "name", ["operations", "experiments", "rates", "lag", "jobs", "latency", "mismatches", "quarantine", "conflicts"]
)
@pytest.mark.parametrize("is_empty", [True, False], ids=["empty", "not empty"])
def test_i12_a_list_that_lacks_something_says_so_and_never_that_there_is_nothing(name: str, is_empty: bool) -> None:
    made = empty() if is_empty else sample_report()
    whole, lacking = (
        {each.attributes["id"]: each for each in read_page(render(report)).all("section")}
        for report in (made, msgspec.structs.replace(made, unknown=[unknown(name)]))
    )

    def nothing(section: Element) -> list[str]:
        return [each.text for each in section.all("p") if each.attributes.get("class") == "none"]

    assert len(nothing(whole[name])) == (1 if is_empty else 0)
    assert nothing(lacking[name]) == []
    assert "Not known: " in lacking[name].text
    assert "the server is down" in lacking[name].text


def test_a_rewritten_query_is_told_with_its_evidence_and_what_is_left(page: Element) -> None:
    (section,) = [each for each in page.all("section") if each.attributes["id"] == "experiments"]
    proven, wrong = (
        next(unbroken(row.text) for row in section.all("tr") if name in row.text) for name in ("unpaid", "last_trip")
    )
    assert "30,750" in proven
    assert "✓ enough" in proven
    assert "order 4" in wrong
    assert "✕ 9,000 more" in wrong
    assert "billing: 3 uses remain, 1 without a reason: bills.py:41." in unbroken(section.text)


def test_i12_what_is_unknown_is_no_number_at_a_glance() -> None:
    lists = ("operations", "lag_now", "jobs", "mismatches", "quarantine", "conflicts")
    made = msgspec.structs.replace(empty(), unknown=[unknown(*lists)])

    figures = {each.name: each.figure for each in glance(made)}

    assert set(figures.values()) == {"not known"}


def test_an_operation_that_was_never_compared_is_not_called_equal(page: Element) -> None:
    """I12."""
    (section,) = [each for each in page.all("section") if each.attributes["id"] == "operations"]
    (row,) = [each for each in section.all("tr") if "scan_rows" in each.text]

    assert "never compared" in row.text
    assert "enough" not in row.text


# Colours.


def colours(style: str, *, is_dark: bool) -> dict[str, str]:
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", blocks[0]))
    return found | (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", blocks[1])) if is_dark else {})


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("text", "ground"),
    [
        *((text, ground) for text in ("ink", "soft", "good", "bad") for ground in ("paper", "surface")),
        ("ink", "sunken"), ("good", "good-tint"), ("bad", "bad-tint"), ("warn", "warn-tint"), ("ink", "warn-tint"),
    ],
)  # fmt: skip
def test_every_text_has_enough_contrast(text: str, ground: str, is_dark: bool) -> None:
    found = colours((HERE / "page.css").read_text(), is_dark=is_dark)

    assert contrast(found[text], found[ground]) >= 4.5


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("line", ["old", "new", "ink", "bad", "focus", "rule"])
def test_every_mark_and_border_of_a_control_has_enough_contrast(line: str, is_dark: bool) -> None:
    found = colours((HERE / "page.css").read_text(), is_dark=is_dark)

    assert contrast(found[line], found["surface"]) >= 3


# Words and charts.


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "–"), (0, "0 s"), (0.0000005, "0 s"), (0.00068, "680 µs"), (0.0011, "1.1 ms"), (0.012, "12 ms"),
        (1, "1 s"), (59.96, "60 s"), (60, "1 min"), (5400, "1.5 h"), (200_000, "2.31 d"),
    ],
)  # fmt: skip
def test_durations_are_said_in_the_unit_that_fits(seconds: float | None, said: str) -> None:
    assert unbroken(words.duration(seconds)) == said


@pytest.mark.parametrize(
    ("share", "said"),
    [(0, "0 %"), (1, "100 %"), (0.1, "10 %"), (0.00829, "0.829 %"), (0.0000625, "0.00625 %"), (1e-7, "0.00001 %")],
)
def test_shares_are_said_with_the_digits_that_matter(share: float, said: str) -> None:
    assert unbroken(words.percent(share)) == said


def test_only_pairs_of_backticks_make_code() -> None:
    assert words.prose("run `a <b>` now") == "run <code>a &lt;b&gt;</code> now"
    assert words.prose("a ` b") == "a ` b"


def test_a_scale_holds_all_values_and_nothing_of_one_value_only() -> None:
    scale = scale_of([0.003, 0.2], 0, 100)

    assert (scale.low, scale.high) == (-3, 0)
    assert scale.at(0.001) == 0
    assert scale.at(1) == 100
    assert scale_of([], 0, 100).high == 1
    assert scale_of([1.0], 0, 100).high == 1


@pytest.mark.parametrize("hours", [1, 2, 168, 24 * 400])
def test_a_chart_of_any_length_stays_within_its_frame(hours: int) -> None:
    since = NOW - timedelta(hours=hours)
    points = [
        RateHour(hour=since + timedelta(hours=n), compared=10, mismatches=n % 2, rate_below=1 / (n + 1))
        for n in range(min(hours, 200))
    ]
    chart = rate_chart(RateSeries(operation="x", hours=points), LIMITS, Time(since, NOW))

    assert all(LEFT <= tick.at <= RIGHT for tick in chart.x_ticks)
    assert len(chart.x_ticks) <= 6
    assert all(LEFT <= mark.x <= RIGHT for mark in chart.marks)
    assert LEFT <= chart.end_x <= RIGHT
