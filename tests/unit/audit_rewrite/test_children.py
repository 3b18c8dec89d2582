"""Child rows by a relationship, new ones and those that go; and what is nearly so, and stays."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent, indent

import pytest

from tests.legacy import base, layout, notes
from tests.rewritten_service import SERVICE, rewrite_service, write_service
from tests.unit.audit_rewrite.forms import HEAD, added, latest, rewritten
from tripstore.audit.rewrite.models.attributes import ColumnRole, ModelAttribute
from tripstore.audit.rewrite.patches import diff, write
from tripstore.audit.rewrite.rewriting import rewrite_code
from tripstore.audit.rewrite.verdicts import NotCertain, RewriteAssumption, RewriteVerdict
from tripstore.audit.rewrite.wishes import RewriteWishes
from tripstore.backends.postgres.layout.layout import DeletePolicy, Field, FieldType

NOTES = 'rewritten.children_found(store, trip, "NOTES", bits=20)'
NEW = '"n", {"text": ("text", rewritten.text_value)}, bits=20, number_bits=64)'
ADDED = '("trip_id", "n"), {"text": ("text", rewritten.text_value)}, bits=20, parent_column="BASE", number_bits=64'
OPEN = "with factory.begin() as s:\n    trip = s.get(Trip, n)\n"
OPENED = f"with factory.begin() as s:\n    trip = {latest('n')}\n"

FORMS = [
    ("trip = session.get(Trip, n)\nreturn len(trip.notes)", f"trip = {latest('n')}\nreturn len({NOTES})"),
    (
        "trip = session.get(Trip, n)\nif not trip.notes:\n    return\nfor note in trip.notes:\n    print(note.n)",
        f"trip = {latest('n')}\nif not {NOTES}:\n    return\nfor note in {NOTES}:\n    print(note.number)",
    ),
    (
        f"{OPEN}    trip.notes.append(Note(n=1, text=value))",
        f'{OPENED}    rewritten.insert_child(store, trip, "NOTES", dict(n=1, text=value), {NEW}',
    ),
    (
        f"{OPEN}    row = new_note(at, value)\n    trip.notes.append(Note(**row))",
        f'{OPENED}    row = new_note(at, value)\n    rewritten.insert_child(store, trip, "NOTES", row, {NEW}',
    ),
    (
        f"{OPEN}    trip.notes.append(Note(**{{'n': 0}} | new_note(len(trip.notes), 'x')))",
        f"{OPENED}    rewritten.insert_child(store, trip, \"NOTES\", {{'n': 0}} | new_note(len({NOTES}), 'x'), {NEW}",
    ),
    (
        f"{OPEN}    if trip.notes:\n        trip.notes.remove(trip.notes[-1])",
        f"{OPENED}    if {NOTES}:\n        rewritten.delete_found(store, {NOTES}[-1])",
    ),
    (
        "with factory.begin() as s:\n    s.add(Note(trip_id=n, n=at, text=value))",
        "with factory.begin() as s:\n"
        f'    rewritten.insert_child_of_id(store, "NOTES", dict(trip_id=n, n=at, text=value), {ADDED})',
    ),
    (
        "session.add(Note(trip_id=n, **new_note(at, value)))\nsession.commit()",
        f'rewritten.insert_child_of_id(store, "NOTES", dict(trip_id=n, **new_note(at, value)), {ADDED})\n'
        "session.commit()",
    ),
    ("trip = _found(session, n)\nreturn trip.status", f'trip = present({latest("n")})\nreturn trip.get("status")'),
    (
        "return _note(n + 1, session, at) is None",
        'return rewritten.child_of_id(store, n + 1, "NOTES", at, bits=20) is None',
    ),
]
FUNCTIONS = """
from .models import new_note


def _found(session, trip_id):
    '''The trip.'''
    return present(session.get(Trip, trip_id))


def _note(trip_id, session, n):
    return session.get(Note, (trip_id, n))


def use("""


def with_functions(code: str) -> str:
    return dedent(HEAD).replace("\ndef use(", FUNCTIONS) + indent(dedent(code).strip("\n"), "    ") + "\n"


@pytest.mark.parametrize(("old", "new"), FORMS)
def test_child_rows_are_found_put_and_taken_as_the_relationship_does(tmp_path: Path, old: str, new: str) -> None:
    found = rewrite_service(write_service(tmp_path, with_functions(old)))

    assert added(found) == new


LEFT = [
    ("trip = session.get(Trip, n)\nreturn trip.notes", "as a list of objects"),
    ("trip = session.get(Trip, n)\nreturn trip.notes[0].text", "as a list of objects"),
    (f"{OPEN}    trip.notes.pop()", "as a list of objects"),
    (f"{OPEN}    trip.notes = []", "as a list of objects"),
    (f"{OPEN}    trip.notes.append(value)", "made elsewhere"),
    (f"{OPEN}    trip.notes.append(Trip(status='x'))", "made elsewhere"),
    (f"{OPEN}    trip.notes.append(Note(**value))", "run time only"),
    (f"{OPEN}    row = new_note(1, 'x')\n    row.update(value)\n    trip.notes.append(Note(**row))", "run time only"),
    (f"{OPEN}    row = new_note(1, 'x')\n    row |= value\n    trip.notes.append(Note(**row))", "run time only"),
    (f"{OPEN}    row = new_note(1, 'x')\n    row['n'] = 2\n    trip.notes.append(Note(**row))", "run time only"),
    (f"{OPEN}    trip.notes.append(Note(**elsewhere.note()))", "run time only"),
    (f"{OPEN}    trip.notes.append(Note(**changing({{'n': 1}})))", "run time only"),
    (f"{OPEN}    trip.notes.append(Note(n=1, memo='x'))", "no column"),
    (f"{OPEN}    trip.notes.append(Note(text='x'))", "has no number"),
    (f"{OPEN}    trip.notes.append(Note(n=1, trip_id=n))", "the id of its row"),
    (f"{OPEN}    trip.notes.append(Note(n=1))\n    trip.status = str(len(trip.notes))", "after it was changed"),
    (f"{OPEN}    for i in value:\n        trip.notes.append(Note(n=len(trip.notes)))", "after it was changed"),
    (f"{OPEN}    trip.notes.append(Note(n=1))\n    trip.notes.append(Note(n=2))", "about one row"),
    (f"{OPEN}    trip.notes.append(Note(n=1))\n    elsewhere.tell(n)", "goes on after it"),
    (f"{OPEN}    trip.notes.remove(value)", "comes from elsewhere"),
    ("found = set()\nfound.add(Note(trip_id=n, n=1))\nreturn found", "begins elsewhere"),
    ("with factory.begin() as s:\n    s.add(Note(n=1, text='x'))", "no id of its parent"),
    ("with factory.begin() as s:\n    s.add(Note(trip_id=n, text='x'))", "no number"),
    ("with factory.begin() as s:\n    s.add(Trip(id=n, status='x'))", "come from Postgres"),
    ("with factory.begin() as s:\n    note = Note(trip_id=n, n=1)\n    s.add(note)", "come from Postgres"),
    ("with factory.begin() as s:\n    s.add(Note(trip_id=n, n=1))\n    s.flush()\n    print(n)", "goes on after it"),
    ("trip = session.get(Trip, n)\ntrip.notes.append(Note(n=1))", "begins elsewhere"),
    ("trip = session.get(Trip, n)\nsession.commit()\nreturn len(trip.notes)", "loaded anew"),
    (
        "with factory.begin('SERIALIZABLE') as s:\n    trip = s.get(Trip, n)\n    trip.distance = len(trip.notes)",
        "isolation level",
    ),
    ("return session.get(Trip, changing('trips')) is None", "name of the table"),
]


@pytest.mark.parametrize(("code", "reason"), LEFT)
def test_what_is_nearly_so_stays_and_says_why(tmp_path: Path, code: str, reason: str) -> None:
    found = rewrite_service(write_service(tmp_path, with_functions(code)))

    assert "rewritten." not in "".join(file.after for file in found.changed)
    said = [each.reason for each in found.uses if each.verdict is RewriteVerdict.LEFT]
    assert any(reason in each for each in said), said


#: What stays stands in one function with a call that says by a function what a row is.
BESIDE = """

def beside(trip_id):
    name = _named("trips")
    with cursor_of_unit() as cursor:
        cursor.execute("SELECT id, fare FROM trips WHERE id = %s", (trip_id,))
        row = cursor.fetchone()
        return name, row


def _named(table):
    return table
"""
MODELS = [  # what the models say: each keeps the form that is appended, or taken
    ('cascade="all, delete-orphan", ', 'cascade="all", ', "take", "not deleted"),
    ('cascade="all, delete-orphan", ', 'cascade="merge", ', "append", "does not cascade"),
    ("order_by=", 'lazy="dynamic", order_by=', "take", "is no list"),
    ('order_by="Note.n"', 'order_by="Note.text"', "take", "order of its own"),
    ('order_by="Note.n"', 'primaryjoin="x"', "take", "says primaryjoin"),
    ('Mapped[list["Note"]]', 'Mapped["Note"]', "take", "does not lead to child rows"),
    (
        "text: Mapped[str | None] = mapped_column(Text)",
        "text: Mapped[str | None] = mapped_column(Text, server_default='x')",
        "append",
        "comes from Postgres",
    ),
    (
        "text: Mapped[str | None] = mapped_column(Text)",
        "text: Mapped[str] = mapped_column(Text)",
        "append",
        "comes from Postgres",
    ),
    (
        "text: Mapped[str | None] = mapped_column(Text)",
        "text: Mapped[str | None] = mapped_column(Text, default='x')",
        "append",
        "text's default",
    ),
    ('    __tablename__ = "notes"', '    __tablename__ = "notes"\n    def __init__(self): ...', "append", "__init__"),
]
TAKE = f"{OPEN}    if trip.notes:\n        trip.notes.remove(trip.notes[-1])"


@pytest.mark.parametrize(("old", "new", "form", "reason"), MODELS)
def test_a_relationship_that_is_more_than_its_rows_keeps_all(
    tmp_path: Path, old: str, new: str, form: str, reason: str
) -> None:
    code = TAKE if form == "take" else f"{OPEN}    trip.notes.append(Note(n=1))"
    folder = write_service(tmp_path, with_functions(code))
    models = folder / "rewritten_billing" / "models.py"
    before = models.read_text()
    assert rewrite_service(folder).count(RewriteVerdict.REWRITTEN) > 0  # but for this
    assert old in before
    models.write_text(before.replace(old, new))

    found = rewrite_service(folder)

    assert found.count(RewriteVerdict.REWRITTEN) == 0
    assert any(reason in each.reason for each in found.uses), [each.reason for each in found.uses]


def test_events_of_the_list_keep_it(tmp_path: Path) -> None:
    folder = write_service(tmp_path, with_functions(TAKE))
    (folder / "rewritten_billing" / "events.py").write_text(
        "from sqlalchemy import event\n"
        "from .models import Trip\n\n"
        "@event.listens_for(Trip.notes, 'remove')\n"
        "def heard(*a): ...\n"
    )

    assert rewrite_service(folder).count(RewriteVerdict.REWRITTEN) == 0


def test_a_dict_of_a_function_that_another_may_stand_for_is_not_known(tmp_path: Path) -> None:
    folder = write_service(tmp_path, with_functions(f"{OPEN}    trip.notes.append(Note(**new_note(1, 'x')))"))
    (folder / "rewritten_billing" / "others.py").write_text("def new_note(n, text):\n    return {}\n")

    assert rewrite_service(folder).count(RewriteVerdict.REWRITTEN) == 0


INNER = [
    "@elsewhere.cached\ndef _other(s, i):\n    return s.get(Trip, i)",
    "def _other(s, i):\n    print(i)\n    return s.get(Trip, i)",
    "def _other(s, i=1):\n    return s.get(Trip, i)",
    "def _other(s, i):\n    return s.get(Trip, i, with_for_update=True)",
    "def _other(s, i):\n    return s.get(Trip, i + 1)",
    "def _other(s, i):\n    return changing(s.get(Trip, i))",
    "async def _other(s, i):\n    return s.get(Trip, i)",
]


@pytest.mark.parametrize("function", INNER)
def test_a_function_that_does_more_than_to_ask_for_a_row_is_not_looked_through(tmp_path: Path, function: str) -> None:
    code = dedent(HEAD).replace("\ndef use(", f"\n{function}\n\n\ndef use(")
    code += "    trip = _other(session, n)\n    return trip.status\n"

    found = rewrite_service(write_service(tmp_path, code))

    assert found.count(RewriteVerdict.REWRITTEN) == 0


def test_a_value_that_the_function_would_not_compute_keeps_the_call(tmp_path: Path) -> None:
    code = dedent(HEAD).replace("\ndef use(", "\ndef _other(s, i, more):\n    return s.get(Trip, i)\n\n\ndef use(")
    plain, calling = "_other(session, n, at)", "_other(session, n, elsewhere.tell())"

    done = rewrite_service(write_service(tmp_path / "plain", f"{code}    trip = {plain}\n    return trip.status\n"))
    left = rewrite_service(write_service(tmp_path / "calling", f"{code}    trip = {calling}\n    return trip.status\n"))

    assert latest("n") in added(done)
    assert "rewritten." not in "".join(file.after for file in left.changed)


def test_a_function_whose_name_is_given_twice_is_not_looked_through(tmp_path: Path) -> None:
    code = with_functions("trip = _found(session, n)\nreturn trip.status")
    again = code.replace("\ndef use(", "\n_found = elsewhere.cached(_found)\n\n\ndef use(")

    assert latest("n") in added(rewrite_service(write_service(tmp_path / "once", code)))
    assert "rewritten." not in added(rewrite_service(write_service(tmp_path / "twice", again)))


def test_a_list_is_a_question_of_its_own_beside_one_whose_values_are_those_of_rows(tmp_path: Path) -> None:
    """What such a snapshot saw is more than the row that is changed: a put unless that has changed is not the same."""
    code = """
    with factory.begin("REPEATABLE READ") as s:
        trip = s.get(Trip, n)
        trip.distance = len(trip.notes)
    """
    inner = code.replace(
        "len(trip.notes)", "s.scalar(select(Trip.distance).where(Trip.id == trip.id)) + len(trip.notes)"
    )

    assert rewritten(tmp_path / "snapshot", code).count(RewriteVerdict.REWRITTEN) == 0
    assert rewritten(tmp_path / "inner", inner).count(RewriteVerdict.REWRITTEN) == 0


def test_two_sessions_keep_a_list(tmp_path: Path) -> None:
    code = """
    with factory() as s, factory() as t:
        trip = s.get(Trip, n)
        other = t.get(Trip, n)
        return len(trip.notes), other.status
    """

    found = rewritten(tmp_path, code)

    assert found.count(RewriteVerdict.REWRITTEN) == 0
    assert any("two sessions" in each.reason for each in found.uses)


DOCUMENTS = [  # a document is known of an attribute; of SQL it is a text
    ("with factory.begin() as s:\n    trip = s.get(Trip, n)\n    trip.memo = value", True),
    ("with factory.begin() as s:\n    s.execute(update(Trip).where(Trip.id == n).values(memo=value))", True),
    ("with cursor_of_unit() as c:\n    c.execute('UPDATE trips SET memo = %s WHERE id = %s', (value, n))", False),
    ("with cursor_of_unit() as c:\n    c.execute(\"UPDATE trips SET memo = '{}' WHERE id = %s\", (n,))", False),
]


@pytest.mark.parametrize(("code", "is_certain"), DOCUMENTS)
def test_a_document_is_written_by_an_attribute_and_not_by_sql(tmp_path: Path, code: str, is_certain: bool) -> None:
    folder = write_service(tmp_path, with_functions(code))
    models = folder / "rewritten_billing" / "models.py"
    said = models.read_text().replace("memo: Mapped[str | None] = mapped_column(Text)", "memo = mapped_column(KIND)")
    models.write_text(said.replace("KIND", "JSONB(none_as_null=True)").replace(" Text\n", " Text, JSONB\n", 1))
    known = layout(base(DeletePolicy.TOMBSTONE, Field("memo", "memo", FieldType.JSON)), notes())
    wishes = RewriteWishes("rewritten_billing.stores:store", ("cursor_of_unit",), tuple(RewriteAssumption))

    found = rewrite_code(folder, known, (), (), wishes)

    assert ("rewritten.json_value(value)" in "".join(each.after for each in found.changed)) is is_certain
    assert (found.count(RewriteVerdict.REWRITTEN) > 0) is is_certain


def test_two_writes_by_a_list_and_an_attribute_are_assumed_to_be_separate(tmp_path: Path) -> None:
    code = f"{OPEN}    trip.notes.append(Note(n=1))\n    trip.status = 'x'"

    left = rewritten(tmp_path / "left", code, (RewriteAssumption.COMMITTED_READS,))

    assert left.count(RewriteVerdict.REWRITTEN) == 0
    assert any("--assume separate-writes" in each.advice for each in left.uses)


def test_a_second_run_over_all_forms_changes_nothing(tmp_path: Path) -> None:
    folder = write_service(tmp_path, SERVICE + BESIDE)
    first = rewrite_service(folder)
    assert "lambda row:" in first.changed[0].after.partition("def beside(")[2]
    assert write(folder, first.changed, allow_dirty=True) == []

    again = rewrite_service(folder)

    assert [diff(each) for each in again.changed] == []
    assert again.count(RewriteVerdict.REWRITTEN) == 0


def attribute(kind: FieldType, said: str, items: FieldType | None = None) -> ModelAttribute:
    node = ast.parse(said, mode="eval").body
    return ModelAttribute("tags", "tags", ColumnRole.FIELD, Field("tags", "tags", kind, None, items), node, False)


def test_lists_and_documents_are_written_by_what_their_types_say() -> None:
    tags = attribute(FieldType.ARRAY, "ARRAY(sa.Text)", FieldType.STRING)
    legs = attribute(FieldType.ARRAY, "ARRAY(Double)", FieldType.FLOAT)

    assert tags.written("x", None) == "rewritten.list_value(x, rewritten.text_value)"
    assert tags.read("x") == ("rewritten.as_list(x)", set())
    assert legs.read("x") == ("rewritten.as_list(x, rewritten.as_float)", set())
    assert attribute(FieldType.JSON, "JSONB(none_as_null=True)").written("x", None) == "rewritten.json_value(x)"


@pytest.mark.parametrize(
    ("kind", "said", "items"),
    [
        (FieldType.ARRAY, "ARRAY(Text, dimensions=2)", FieldType.STRING),
        (FieldType.ARRAY, "ARRAY(String(3))", FieldType.STRING),
        (FieldType.ARRAY, "ARRAY(Text)", FieldType.FLOAT),
        (FieldType.ARRAY, "MutableList.as_mutable(ARRAY(Text))", FieldType.STRING),
        (FieldType.ARRAY, "ARRAY(Integer)", FieldType.INT),
        (FieldType.JSON, "JSONB", None),
        (FieldType.JSON, "JSONB()", None),
        (FieldType.JSON, "JSONB(none_as_null=False)", None),
    ],
)
def test_of_other_lists_and_documents_the_form_is_not_certain(
    kind: FieldType, said: str, items: FieldType | None
) -> None:
    with pytest.raises(NotCertain):
        attribute(kind, said, items).written("x", None)
