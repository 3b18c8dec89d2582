"""Each form in a line or two, and what replaces it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.audit_rewrite.forms import FARE, FETCHED, added, latest, rewritten
from tripstore.audit.rewrite.verdicts import RewriteVerdict

READS = [
    ("return session.get(Trip, trip_id) is None", f"return {latest()} is None"),
    ("return session.query(Trip).get(n + 1) is None", f"return {latest('n + 1')} is None"),
    (
        "return session.scalar(select(Trip.fare).where(Trip.id == n))",
        f'return rewritten.as_decimal(rewritten.value_of({latest("n")}, "fare"))',
    ),
    (
        "trip = present(session.get(Trip, trip_id))\nreturn trip.status",
        f'trip = present({latest()})\nreturn trip.get("status")',
    ),
    (
        "trip = session.get(Trip, trip_id)\nreturn trip and f'{trip.status}: {trip.id}'",
        f"trip = {latest()}\nreturn trip and f'{{trip.get(\"status\")}}: {{trip.number}}'",
    ),
    (
        "return [t.distance for t in session.scalars("
        "select(Trip).where(Trip.status.in_([value]), 'x' == Trip.status))]",
        'return [rewritten.as_float(t.get("distance")) for t in '
        'rewritten.found(store, "status_index", \'x\', [("status", "in", list([value]))], column_name="BASE")]',
    ),
    (
        "for trip in session.query(Trip).filter_by(status=value).order_by(Trip.requested):\n    print(trip.id)",
        'for trip in rewritten.found(store, "status_index", value, column_name="BASE", order_by="request_at"):\n'
        "    print(trip.number)",
    ),
    (
        "return session.get(Note, (trip_id, n)) is None",
        'return rewritten.child_of_id(store, trip_id, "NOTES", n, bits=20) is None',
    ),
]
#: What is asked within another question, and rows whose attributes are values of one.
READS += [
    (
        "trip = session.get(Trip, n)\nreturn session.get(Note, (trip.id, trip.distance)) is None",
        f"trip = {latest('n')}\n"
        'return rewritten.child_of_id(store, trip.number, "NOTES", rewritten.as_float(trip.get("distance")), bits=20)'
        " is None",
    ),
    (
        "return session.get(Trip, session.scalar(select(Trip.distance).where(Trip.id == n))) is None",
        "return " + latest(f'rewritten.as_float(rewritten.value_of({latest("n")}, "distance"))') + " is None",
    ),
]
#: Values, not rows: a function may return these.
BY_STATUS = 'rewritten.found(store, "status_index", n, column_name="BASE")'
READS += [
    (
        "return session.scalars(select(Trip.fare).where(Trip.status == n)).all()",
        f'return [rewritten.as_decimal(row.get("fare")) for row in {BY_STATUS}]',
    ),
    (
        "return set(session.scalars(select(Trip.id).where(Trip.status == n)))",
        f"return set([row.number for row in {BY_STATUS}])",
    ),
    ("return session.scalar(select(Trip.id).where(Trip.id == n))", f"return rewritten.number_of({latest('n')})"),
    ("return session.query(Trip).filter_by(status=n).count()", f"return len({BY_STATUS})"),
    (
        "trip = session.query(Trip).filter(Trip.id == n).one()\nreturn trip.status",
        f'trip = rewritten.required({latest("n")})\nreturn trip.get("status")',
    ),
    (
        "trip = session.execute(select(Trip).where(Trip.id == n)).scalar_one()\nreturn trip.status",
        f'trip = rewritten.required({latest("n")})\nreturn trip.get("status")',
    ),
    (
        "trip = Trip.query.filter_by(status=n).first_or_404()\nreturn trip.status",
        'trip = rewritten.or_404(rewritten.found_first(store, "status_index", n, column_name="BASE"))\n'
        'return trip.get("status")',
    ),
    (
        "trip = session.execute(select(Trip).filter_by(status=n)).scalar_one_or_none()\nreturn trip and trip.id",
        'trip = rewritten.found_one(store, "status_index", n, column_name="BASE")\nreturn trip and trip.number',
    ),
    (
        "trip = session.query(Trip).filter(Trip.status == n).one()\nreturn trip.id",
        'trip = rewritten.required(rewritten.found_one(store, "status_index", n, column_name="BASE"))\n'
        "return trip.number",
    ),
    ("Trip.query.get_or_404(n)\nreturn n", f"rewritten.or_404({latest('n')})\nreturn n"),
]
#: One row of a cursor.
READS += [
    (f"{FARE}\nreturn cursor.fetchone()", f"return {FETCHED}"),
    (f"{FARE}\nnumber, fare = cursor.fetchone()\nreturn fare", f"number, fare = {FETCHED}\nreturn fare"),
]
#: By its key, and like this besides.
IF_OPEN = f"rewritten.only_if({latest('n')}, {{\"status\": rewritten.text_value('open')}})"
READS += [
    (
        "return session.query(Trip).filter(Trip.id == n, Trip.status == 'open').first() is None",
        f"return {IF_OPEN} is None",
    ),
    (
        "trip = Trip.query.filter_by(status='open', id=n).first_or_404()\nreturn trip.status",
        f'trip = rewritten.or_404({IF_OPEN})\nreturn trip.get("status")',
    ),
    (
        "return session.scalar(select(Trip.fare).where(Trip.id == n, Trip.status == 'open'))",
        f'return rewritten.as_decimal(rewritten.value_of({IF_OPEN}, "fare"))',
    ),
    (
        "return session.query(Note).filter_by(trip_id=n, n=at, text=value).one_or_none() is None",
        'return rewritten.only_if(rewritten.child_of_id(store, n, "NOTES", at, bits=20), '
        '{"text": rewritten.text_value(value)}) is None',
    ),
]
IN_TEXTS = [
    ('f"{trip.status}"', """f"{trip.get('status')}\""""),
    ("f'{trip.status}'", "f'{trip.get(\"status\")}'"),
    ('"a" f"é {trip.id:>5} {trip.status!r}" "b"', """"a" f"é {trip.number:>5} {trip.get('status')!r}" "b\""""),
    ('f"""{trip.status}"""', 'f"""{trip.get("status")}"""'),
]
READS += [
    (f"trip = session.get(Trip, n)\nreturn {old}", f"trip = {latest('n')}\nreturn {new}") for old, new in IN_TEXTS
]
WRITES = [
    (
        "with factory.begin() as s:\n"
        "    s.execute(update(Trip).where(Trip.id == n).values(fare=value)"
        ".execution_options(synchronize_session=False))",
        "with factory.begin() as s:\n"
        '    rewritten.change_of_id(store, n, "BASE", {"fare": rewritten.decimal_text(value, 2, 12)})',
    ),
    (
        "with factory() as s:\n"
        "    trip = s.get(Trip, n)\n"
        "    trip.distance = value\n"
        "    trip.status = 'far'\n"
        "    s.commit()\n"
        "    return True",
        f"with factory() as s:\n"
        f"    trip = {latest('n')}\n"
        f'    rewritten.change_found(store, trip, {{"distance": rewritten.float_value(value), "status": \'far\'}})\n'
        f"    s.commit()\n"
        f"    return True",
    ),
    (
        "with factory.begin() as s:\n"
        '    s.execute(text("UPDATE trips SET status = :s WHERE id = :i"), {"s": value, "i": n})',
        "with factory.begin() as s:\n"
        '    rewritten.change_of_id(store, n, "BASE", {"status": rewritten.text_value(value)})',
    ),
]


WRITES += [
    (
        "with factory.begin() as s:\n    note = s.get(Note, (n, 1))\n    if note is not None:\n        s.delete(note)",
        "with factory.begin() as s:\n"
        '    note = rewritten.child_of_id(store, n, "NOTES", 1, bits=20)\n'
        "    if note is not None:\n        rewritten.delete_found(store, note)",
    ),
    (
        "trip = session.get(Trip, n)\ntrip.status = 'x'\nsession.commit()\nelsewhere.tell(n)",
        f"trip = {latest('n')}\n"
        "rewritten.change_found(store, trip, {\"status\": 'x'})\nsession.commit()\nelsewhere.tell(n)",
    ),
    (
        "with factory.begin() as s:\n    s.execute(update(Trip).where(Trip.id == n).values(fare=Trip.fare + value))",
        "with factory.begin() as s:\n"
        '    rewritten.change_of_id(store, n, "BASE", {"fare": rewritten.added_decimal("fare", value, 2, 12)})',
    ),
    (
        "with cursor_of_unit() as c:\n"
        '    c.execute("UPDATE notes SET text = text || %s WHERE trip_id = %s AND n = 3", (at, n))',
        "with cursor_of_unit() as c:\n"
        '    rewritten.change_child_of_id(store, n, "NOTES", 3, {"text": rewritten.joined_text("text", at)}, bits=20)',
    ),
    (
        "with cursor_of_unit() as c:\n    c.execute('DELETE FROM notes WHERE trip_id = %s AND n = %s', value)",
        'with cursor_of_unit() as c:\n    rewritten.delete_child_of_id(store, value[0], "NOTES", value[1], bits=20)',
    ),
    (
        "with factory.begin() as s:\n    s.query(Note).filter_by(trip_id=n, n=1).delete()",
        'with factory.begin() as s:\n    rewritten.delete_child_of_id(store, n, "NOTES", 1, bits=20)',
    ),
    (
        "with factory.begin() as s:\n    note = s.get(Note, value)\n    note.text = 'x'",
        "with factory.begin() as s:\n"
        '    note = rewritten.child_of_id(store, value[0], "NOTES", value[1], bits=20)\n'
        "    rewritten.change_found(store, note, {\"text\": 'x'})",
    ),
    (
        "with factory.begin('REPEATABLE READ') as s:\n    trip = s.get(Trip, n)\n    trip.fare = (trip.fare or 0) + 1",
        "with factory.begin('REPEATABLE READ') as s:\n"
        f"    trip = {latest('n')}\n"
        '    rewritten.change_found(store, trip, {"fare": rewritten.decimal_text('
        '(rewritten.as_decimal(trip.get("fare")) or 0) + 1, 2, 12)}, unless_changed=True)',
    ),
    (
        "with cursor_of_unit() as c:\n"
        "    for i in value:\n"
        "        c.execute('UPDATE trips SET fare = %s WHERE id = %s', (at, i))",
        "with cursor_of_unit() as c:\n"
        "    for i in value:\n"
        '        rewritten.change_of_id(store, i, "BASE", {"fare": rewritten.decimal_text(at, 2, 12)})',
    ),
    (
        "with factory.begin() as s:\n"
        "    trip = s.get(Trip, n)\n"
        "    note = s.get(Note, (n, 1))\n"
        "    note.text = trip.status\n"
        "    trip.status = 'x'",
        "with factory.begin() as s:\n"
        f"    trip = {latest('n')}\n"
        '    note = rewritten.child_of_id(store, n, "NOTES", 1, bits=20)\n'
        '    rewritten.change_found(store, note, {"text": rewritten.text_value(trip.get("status"))})\n'
        "    rewritten.change_found(store, trip, {\"status\": 'x'})",
    ),
]


@pytest.mark.parametrize(("code", "expected"), READS + WRITES)
def test_a_form_is_replaced(tmp_path: Path, code: str, expected: str) -> None:
    found = rewritten(tmp_path, code)

    assert added(found) == expected
    assert {each.verdict for each in found.uses if each.use.line > 20} == {RewriteVerdict.REWRITTEN}
