"""`tripstore cell`: what is put is what is got, byte for byte, and nothing is overwritten."""

from __future__ import annotations

import signal
from uuid import UUID

import pytest

from schemaless_core.cell.sharding import shard_of
from tests.acceptance.conftest import SHARDS, Shell

ROW_KEY = "7d4bf1a0-92c5-4bf6-8d0c-8f8f3c1c9a11"
SHARD = str(shard_of(UUID(ROW_KEY), SHARDS))
#: Numbers that a careless printer changes: beyond 53 bits, a float that looks whole, the smallest.
NUMBERS = '{"a":18446744073709551615,"b":1.0,"c":-9223372036854775808,"d":0.1,"e":5e-324,"f":"\\u0000[red]München"}'


def test_a_body_comes_back_byte_for_byte(store: Shell) -> None:
    put = store.run("cell", "put", ROW_KEY, "BASE", "1", NUMBERS)
    got = store.run("cell", "get", ROW_KEY, "BASE")
    as_json = store.run("cell", "get", ROW_KEY, "BASE", "1", "--read", "replica", "--deadline", "5", "--json")

    assert put.code == 0, put.complaint
    assert put.stdout == f"CREATED: ({ROW_KEY}, BASE, 1) is in shard {SHARD} under added id 1.\n"
    assert got.stdout == NUMBERS + "\n"
    assert f"shard {SHARD}, added id 1" in got.complaint
    assert f'"body":{NUMBERS}' in as_json.stdout


def test_the_same_cell_again_exists_and_another_body_is_a_conflict(store: Shell) -> None:
    assert store.run("cell", "put", ROW_KEY, "BASE", "1", "-", stdin='{"b": 1, "a": 2}').code == 0

    again = store.call("cell", "put", ROW_KEY, "BASE", "1", '{"a":2,"b":1}', "--json")
    other = store.call("cell", "put", ROW_KEY, "BASE", "1", '{"a":2,"b":1.0}', "--json")

    assert again.document["result"]["status"] == "EXISTS"
    assert other.code == 1
    assert other.document["error"]["kind"] == "CellConflict"
    assert "already holds another body" in other.complaint


def test_a_conditional_put_is_stored_only_after_the_expected_cell(store: Shell) -> None:
    first = store.call("cell", "put", ROW_KEY, "STATUS", "-7", '"a"', "--expect-latest", "none")
    second = store.call("cell", "put", ROW_KEY, "STATUS", "2", "-1.5", "--expect-latest", "-7")
    late = store.call("cell", "put", ROW_KEY, "STATUS", "3", "null", "--expect-latest", "-7")

    assert (first.code, second.code, late.code) == (0, 0, 1)
    assert "was to follow ref key -7" in late.complaint
    assert store.call("cell", "get", ROW_KEY, "STATUS").stdout == "-1.5\n"
    assert store.call("cell", "get", ROW_KEY, "STATUS", "-7").stdout == '"a"\n'


def test_history_row_and_log_show_the_cells_in_their_orders(store: Shell) -> None:
    for number in (1, 2, 3):
        assert store.call("cell", "append", ROW_KEY, "NOTES", f'{{"event": {number}}}').code == 0
    store.call("cell", "put", ROW_KEY, "BASE", "1", "null")

    history = store.run("cell", "history", ROW_KEY, "NOTES", "--before", "3", "--limit", "5", "--json").document
    row = store.call("cell", "row", ROW_KEY, "--json").document
    log = store.call("cell", "log", SHARD, "--from", "1", "--limit", "2", "--json").document

    assert [cell["ref_key"] for cell in history["cells"]] == [2, 1]
    assert [(cell["column_name"], cell["body"]) for cell in row["cells"]] == [("BASE", None), ("NOTES", {"event": 3})]
    assert [cell["added_id"] for cell in log["cells"]] == [2, 3]
    assert (log["head"], log["next"]) == (4, "1:3")
    rest = store.call("cell", "log", SHARD, "--from", log["next"])
    assert rest.stdout.endswith(f"{ROW_KEY} BASE 1 null\n")
    assert rest.stdout.count("\n") == 1
    assert '{"event":2}' in store.call("cell", "history", ROW_KEY, "NOTES").stdout
    only_base = store.call("cell", "row", ROW_KEY, "BASE").stdout
    assert "BASE" in only_base
    assert "NOTES" not in only_base


def test_a_followed_log_shows_what_is_put_meanwhile_and_ctrl_c_ends_it(store: Shell) -> None:
    following = store.start("cell", "log", SHARD, "--follow")
    store.call("cell", "put", ROW_KEY, "BASE", "1", '"late"')

    assert following.stdout is not None
    assert following.stderr is not None
    line, place = following.stdout.readline(), following.stderr.readline()
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=20)

    assert line.endswith('BASE 1 "late"\n')
    assert "--from 1:1" in place
    assert following.returncode == 5
    assert store.call("cell", "log", SHARD, "--follow", "--json").code == 2, "one document, and no end"


def test_new_makes_a_row_key(store: Shell) -> None:
    made = store.call("cell", "put", "new", "BASE", "1", "{}", "--json").document

    assert UUID(made["row_key"]).version == 4
    assert store.call("cell", "get", made["row_key"], "BASE").stdout == "{}\n"


def test_a_cell_that_is_not_there_is_no_traceback_and_exit_code_1(store: Shell) -> None:
    ran = store.call("cell", "get", ROW_KEY, "BASE", "9", "--json")

    assert ran.code == 1
    assert ran.document == {"cell": None}
    assert "There is no cell" in ran.complaint


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("put", ROW_KEY, "BASE", "1", "NaN"), "NaN"),
        (("put", ROW_KEY, "BASE", "1", "{oops}"), "no JSON"),
        (("put", ROW_KEY, "BASE", "1", '{"a":1,"a":2}'), "'a' twice"),
        (("put", ROW_KEY, "BASE", "1", "0.1000000000000000000001"), "0.1000000000000000000001"),
        (("put", ROW_KEY, "BASE", "1", "18446744073709551616"), "18446744073709551616"),
        (("put", ROW_KEY, "BASE", "1", '"\\ud800"'), "surrogate"),
        (("put", ROW_KEY, "", "1", "{}"), "column name"),
        (("put", ROW_KEY, "BASE", "9223372036854775808", "{}"), "9223372036854775808"),
        (("put", ROW_KEY, "BASE", "first", "{}"), "first"),
        (("put", "no-uuid", "BASE", "1", "{}"), "no-uuid"),
        (("get", "new", "BASE"), "new"),
        (("put", ROW_KEY, "BASE", "1", "{}", "--expect-latest", "some"), "some"),
        (("put", ROW_KEY, "BASE", "1", "{}", "--exepct-latest", "1"), "--exepct-latest"),
        (("log", "4"), "shard 4"),
        (("log", "0", "--from", "yesterday"), "yesterday"),
        (("log", "0", "--from", "2026-03-01T12:00:00"), "time zone"),
        (("get", ROW_KEY, "BASE", "--deadline", "0"), "deadline"),
        (("history", ROW_KEY, "BASE", "--limit", "0"), "limit"),
    ],
)
def test_a_wrong_call_names_the_culprit_and_exits_with_2(store: Shell, arguments: tuple[str, ...], named: str) -> None:
    ran = store.call("cell", *arguments)

    assert ran.code == 2, ran.stderr
    assert named in ran.complaint
    assert len(ran.stderr.strip().splitlines()) <= 2
    assert ran.stdout == ""
