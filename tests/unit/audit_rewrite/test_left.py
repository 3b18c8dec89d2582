"""A form that is nearly one of them stays, and says why; so does what only the company can answer for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.audit_rewrite.forms import FARE, added, latest, rewritten
from tripstore.audit.rewrite.verdicts import RewriteAssumption, RewriteVerdict

LEFT = [
    ("return session.get(Trip, trip_id)", "handed on"),
    ("trip = session.get(Trip, trip_id)\nreturn trip", "handed on"),
    ("trip = session.get(Trip, trip_id)\nelsewhere.keep(trip)", "handed on"),
    ("trip = changing(session.get(Trip, trip_id))\nreturn trip.status", "handed on"),
    ("trip = session.get(Trip, trip_id)\nreturn trip.memo", "not mapped"),
    ("trip = session.get(Trip, trip_id)\nreturn trip.driver_id", "is a key of users"),
    ("trip = session.get(Trip, trip_id)\nreturn trip.surprise", "no column"),
    ("trip = session.get(Trip, trip_id)\ntrip = n\nreturn trip", "other things"),
    ("trip = session.get(Trip, trip_id)\ntrip = None\nreturn trip", "handed on"),
    ("trip = session.get(Trip, trip_id)\nreturn lambda: trip.status", "inside of this one"),
    ("return session.get(Trip, trip_id, with_for_update=True) is None", "locks a row"),
    ("return session.query(Trip).filter(Trip.id == n).one()", "handed on"),
    (f"{FARE}\nprint(n)\nreturn cursor.fetchone()", "tuples of a cursor"),
    (f"{FARE}\nrow = cursor.fetchone()\nreturn row or cursor.fetchone()", "elsewhere as well"),
    (f"{FARE} # cursor_factory=\nreturn cursor.fetchone()", "other forms"),
    ("cursor.execute('SELECT fare FROM trips WHERE id > %s', (n,))\nreturn cursor.fetchone()", "by the key"),
    (f"{FARE.replace('= %s', '= %s FOR UPDATE')}\nreturn cursor.fetchone()", "locks rows"),
    ("cursor.execute('SELECT count(fare) FROM trips WHERE id = 1')\nreturn cursor.fetchone()", "an aggregate"),
    ("return Trip.query.filter(Trip.status == n).one_or_404() is None", "404 where there are two"),
    ("return session.query(Trip).filter(Trip.status == n).limit(1).one_or_none() is None", "limits what brings one"),
    ("return session.scalars(select(Trip.id).where(Trip.status == n))", "before they are read"),
    ("return session.query(Trip.id).filter(Trip.status == n).all()", "tuples"),
    ("return session.execute(select(Trip.fare).where(Trip.id == n)).scalar_one()", "a value or raises"),
    (
        "more = Trip.fare + 1\n"
        "with factory.begin() as s:\n    s.execute(update(Trip).where(Trip.id == n).values(fare=more))",
        "Postgres computes",
    ),
    ("trip = session.get(Trip, n)\ntrip.status = 'x'\nelsewhere.tell(n)\nsession.commit()", "begins elsewhere"),
    ("return session.query(Trip).filter(Trip.id == n, Trip.fare == value).first() is None", "more than the key"),
    ("return session.query(Trip).filter(Trip.id == n, Trip.fare > value).first() is None", "not mapped"),
    ("return session.query(Trip).filter(Trip.id == n, Trip.status.is_(True)).first() is None", "no truth value"),
    ("return len(session.query(Trip).filter(Trip.status).all())", "no truth value"),
    ("return session.query(Trip).filter(Trip.id == n, Trip.status == 'x', Trip.status == at).first()", "asks twice"),
    (
        "return session.query(Trip).filter(Trip.status == elsewhere.a(), Trip.id == elsewhere.b()).first() is None",
        "another order",
    ),
    (
        "return len(session.query(Trip).filter(Trip.fare > elsewhere.a(), Trip.status == elsewhere.b()).all())",
        "another order",
    ),
    ("return session.query(Note).filter_by(n=elsewhere.a(), trip_id=elsewhere.b()).first() is None", "another order"),
    ("return session.query(Trip).filter(Trip.id > n).first() is None", "no column has one value"),
    (
        "return len(session.query(Trip).filter(Trip.status == 'x', Trip.fare.is_(None)).all())",
        "none that an index knows",
    ),
    ("return len(session.query(Trip).filter(Trip.status == None).all())", "no index finds rows without"),
    ("return len(session.query(Trip).filter(Trip.status == 'x', Trip.status > 'a').all())", "by a collation"),
    ("return len(session.query(Trip).filter_by(status='x').order_by(Trip.fare).all())", "may be NULL"),
    ("return len(session.query(Trip).filter_by(status='x').order_by(Trip.status).all())", "by a collation"),
    ("return len(session.query(Trip).filter_by(status='x').offset(3).all())", "no OFFSET"),
    ("return len(session.query(Trip).join(Note).filter(Trip.status == 'x').all())", "joins another table"),
    ("return len(session.query(Trip).filter(Trip.status == func.lower(value)).all())", "what Postgres computes"),
    ("return len(session.query(Trip).filter_by(distance=1.5).all())", "no index holds"),
    ("return len(session.query(Note).filter_by(text='x').all())", "holds the latest"),
    ("return session.query(func.count(Trip.id)).scalar()", "more than columns"),
    ("session.query(Trip).filter_by(id=n).delete()", "foreign keys"),
    ("with factory.begin() as s:\n    trip = s.get(Trip, n)\n    s.delete(trip)", "foreign keys"),
    (
        "with factory.begin() as s:\n    note = s.get(Note, (n, 1))\n    note.text = 'x'\n    s.delete(note)",
        "about one row",
    ),
    ("session.add(Trip(status='x'))", "come from Postgres"),
    ("trip = session.get(Trip, n)\ntrip.status = 'x'", "begins elsewhere"),
    ("with factory() as s:\n    s.get(Trip, n).status = 'x'", "handed on"),
    ("with factory() as s:\n    trip = s.get(Trip, n)\n    trip.status = 'x'", "commits at its end"),
    (
        "with factory.begin() as s:\n    trip = s.get(Trip, n)\n    trip.status = 'x'\n    elsewhere.tell(n)",
        "goes on after it",
    ),
    (
        "with factory.begin() as s:\n"
        "    trip = s.get(Trip, n)\n"
        "    if trip is not None:\n"
        "        trip.status = 'x'\n"
        "    elsewhere.tell(n)",
        "goes on after it",
    ),
    (
        "with factory.begin() as s:\n    trip = s.get(Trip, n)\n    trip.status = 'x'\n    return trip.status",
        "read after it was changed",
    ),
    ("with factory.begin() as s:\n    trip = s.get(Trip, n)\n    trip.fare += 1", "changed in place"),
    (
        "with factory.begin() as s:\n    elsewhere.also(s)\n    trip = s.get(Trip, n)\n    trip.status = 'x'",
        "something else as well",
    ),
    (
        "with factory.begin() as s:\n    s.rollback()\n    trip = s.get(Trip, n)\n    trip.status = 'x'",
        "something else as well",
    ),
    ("with factory.begin('SERIALIZABLE') as s:\n    return s.get(Trip, n) is None", "isolation level"),
    (
        "with factory.begin() as s:\n"
        "    for i in value:\n"
        "        s.execute(update(Trip).where(Trip.id == i).values(status='x'))\n"
        "        print(i)",
        "goes on after it",
    ),
    (
        "with factory.begin('SERIALIZABLE') as s:\n"
        "    other = s.get(Trip, 1)\n"
        "    trip = s.get(Trip, n)\n"
        "    trip.fare = other.fare",
        "isolation level",
    ),
    (
        "with factory.begin() as s:\n"
        "    one = s.get(Trip, n)\n"
        "    two = s.get(Note, (n, 1))\n"
        "    one.status = 'x'\n"
        "    two.text = 'x'\n"
        "    one.fare = None",
        "mixed with each other",
    ),
    (
        "with factory.begin() as s:\n"
        "    one = s.get(Trip, n)\n"
        "    two = s.get(Trip, value)\n"
        "    one.status = 'x'\n"
        "    two.status = 'y'",
        "about one row",
    ),
    (
        "with factory.begin() as s:\n"
        "    trip = s.get(Trip, n)\n"
        "    s.execute(update(Trip).where(Trip.id == value).values(status='x'))\n"
        "    trip.status = 'y'",
        "about one row",
    ),
    (
        "with factory.begin() as s:\n    s.execute(update(Trip).where(Trip.id == n).values(fare=Trip.distance + 1))",
        "Postgres computes",
    ),
    (
        "with cursor_of_unit() as c:\n    c.execute('UPDATE trips SET status = status WHERE id = 1')",
        "Postgres computes",
    ),
    ("with cursor_of_unit() as c:\n    c.execute('UPDATE trips SET fare = fare || 1 WHERE id = 1')", "has no ||"),
    (
        "with factory.begin('SERIALIZABLE') as s:\n"
        "    trip = s.scalars(select(Trip).where(Trip.status == n)).first()\n"
        "    trip.status = 'x'",
        "isolation level",
    ),
    ("with cursor_of_unit() as c:\n    c.execute('DELETE FROM trips WHERE id = %s', (n,))", "foreign keys"),
    ("with factory.begin() as s:\n    s.execute(update(Trip).where(Trip.status == n).values(fare=1))", "many rows"),
    ("with factory.begin() as s:\n    s.execute(update(Trip).where(Trip.id == n).values(**value))", "run time only"),
    (
        "with factory.begin() as s:\n    x = s.execute(update(Trip).where(Trip.id == n).values(fare=1)).rowcount",
        "answers is used",
    ),
    ("with other_unit() as c:\n    c.execute(TIP, (value, n))", "commits at its end"),
    ("with cursor_of_unit() as c:\n    c.execute(TIP, elsewhere.values())", "run time only"),
    (
        "with cursor_of_unit() as c:\n    c.execute('UPDATE trips SET fare = distance + 1 WHERE id = %s', (n,))",
        "Postgres computes",
    ),
    ("with cursor_of_unit() as c:\n    c.execute('UPDATE trips SET fare = %s', (n,))", "every row"),
    (
        "with cursor_of_unit() as c:\n    c.execute('UPDATE trips SET fare = %s WHERE id > %s', (n, n))",
        "key of one row",
    ),
    ("with cursor_of_unit() as c:\n    c.execute(TIP, (elsewhere.value(), elsewhere.key()))", "another order"),
    (
        "with cursor_of_unit() as c:\n    c.execute(\"UPDATE trips SET status = 'a %s' WHERE id = %s\", (n, n))",
        "a placeholder in a text",
    ),
    (
        "with cursor_of_unit() as c:\n    c.execute('UPDATE trips SET fare = ? WHERE id = ?', (n, n))",
        "none of psycopg's",
    ),
    ("with cursor_of_unit() as c:\n    c.execute('UPDATE trips SET fare = $1 WHERE id = $2', (n, n))", "psycopg's"),
    ("trip = session.get(Trip, n)\nsession.commit()\nreturn trip.status", "loaded anew"),
    ("trip = session.get(Trip, n)\nfor i in value:\n    print(trip.status)\n    session.rollback()", "loaded anew"),
    (
        "with factory.begin() as s:\n"
        "    trip = s.get(Trip, n)\n"
        "    s.execute(update(Trip).where(Trip.id == n).values(status='x'))\n"
        "return trip.status",
        "loaded anew",
    ),
    ("return session.get(Trip, {'id': n}) is None", "a mapping"),
    (
        "with factory() as s:\n    trip = s.get(Trip, n)\n    trip.status = 'x'\n    return\n    s.commit()",
        "commits at its end",
    ),
    ("with cursor_of_unit() as c:\n    c.execute(\"UPDATE trips SET fare = '5' WHERE id = %s\", (n,))", "no value of"),
    (
        "with factory.begin() as s:\n    s.execute(update(Trip).where(Trip.id == n).values(status=5))",
        "no value of",
    ),
    ("return (session  # of the caller\n    .get(Trip, n)) is None", "a comment"),
    ("yield session.get(Trip, n) is None", "stops in the middle"),
]


@pytest.mark.parametrize(("code", "reason"), LEFT)
def test_what_is_nearly_a_form_stays_and_says_why(tmp_path: Path, code: str, reason: str) -> None:
    found = rewritten(tmp_path, code)

    assert "rewritten." not in "".join(file.after for file in found.changed)
    said = [each for each in found.uses if each.verdict is RewriteVerdict.LEFT]
    assert any(reason in each.reason for each in said), [each.reason for each in said]
    assert all(each.advice for each in said)
    [file] = [file for file in found.changed if file.name.endswith("service.py")]
    assert f"# tripstore rewrite: {said[-1].reason}" in file.after


OTHERS = [
    ("s.get(elsewhere.User, n)", True),
    ("s.scalars(select(elsewhere.User).where(elsewhere.User.id == n)).all()", True),
    ("s.execute(select(elsewhere.User))", False),
    ("s.scalars(update(elsewhere.User).returning(elsewhere.User.id))", False),
    ("s.add(n)", False),
    ("elsewhere.also(s)", False),
]


@pytest.mark.parametrize(("other", "may_stay"), OTHERS)
def test_reads_of_other_tables_may_stay_in_the_transaction_of_a_read_but_not_of_a_write(
    tmp_path: Path, other: str, may_stay: bool
) -> None:
    read = f"with factory() as s:\n    {other}\n    return s.get(Trip, n) is None"
    write = f"with factory.begin() as s:\n    {other}\n    trip = s.get(Trip, n)\n    trip.status = 'x'"

    assert (latest("n") in added(rewritten(tmp_path / "read", read))) is may_stay
    assert "rewritten." not in added(rewritten(tmp_path / "write", write))


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    return session.get(Trip, n) is None\nexcept DBAPIError:\n    pass",
        "with suppress(DBAPIError):\n    return session.get(Trip, n) is None",
    ],
)
def test_errors_of_the_driver_that_are_caught_keep_the_function(tmp_path: Path, code: str) -> None:
    code = f"from contextlib import suppress\nfrom sqlalchemy.exc import DBAPIError\n{code}"

    [use] = [each for each in rewritten(tmp_path, code).uses if each.use.kind == "orm.get"]

    assert "errors of the driver" in use.reason


@pytest.mark.parametrize(
    ("code", "assumption"),
    [
        ("return session.get(Trip, n) is None", RewriteAssumption.COMMITTED_READS),
        ("with factory() as s:\n    trip = s.get(Trip, n)\n    return trip.requested", RewriteAssumption.UTC_SESSIONS),
        (
            "'REPEATABLE READ'\nwith factory.begin() as s:\n    trip = s.get(Trip, n)\n    trip.fare = trip.fare * 2",
            RewriteAssumption.READ_COMMITTED,
        ),
        (
            "with cursor_of_unit() as c:\n    c.execute(TIP, (at, 1))\n    c.execute(TIP, (at, 2))",
            RewriteAssumption.SEPARATE_WRITES,
        ),
        (  # two reads in one snapshot
            "'repeatable read'\n"
            "with factory() as s:\n    return s.get(Trip, n) is None and not s.get(Trip, n + 1) is None",
            RewriteAssumption.READ_COMMITTED,
        ),
    ],
)
def test_what_only_the_company_knows_is_assumed_by_name_or_left(
    tmp_path: Path, code: str, assumption: RewriteAssumption
) -> None:
    others = tuple(each for each in RewriteAssumption if each is not assumption)

    left = rewritten(tmp_path / "left", code, others)
    done = rewritten(tmp_path / "done", code, (assumption,))

    assert any(f"--assume {assumption.value}" in each.advice for each in left.uses)
    assert left.count(RewriteVerdict.REWRITTEN) == 0
    assert {each.assumes for each in done.uses if each.verdict is RewriteVerdict.REWRITTEN} == {(assumption,)}


def test_an_error_that_is_raised_as_well_may_be_caught(tmp_path: Path) -> None:
    code = (
        "from sqlalchemy.exc import NoResultFound\n"
        "try:\n    session.query(Trip).filter(Trip.id == n).one()\nexcept NoResultFound:\n    return None"
    )

    assert f"rewritten.required({latest('n')})" in added(rewritten(tmp_path, code))


def test_a_transaction_stays_alone_with_what_keeps_it(tmp_path: Path) -> None:
    """Two `with` are two transactions: one is rewritten though the other stays. One session is one."""
    code = """
    with factory() as one:
        gone = one.get(Trip, n) is None
    with factory() as two:
        two.add(Trip())
    return gone
    """
    together = "gone = session.get(Trip, n) is None\nsession.add(Trip())\nreturn gone"

    assert latest("n") in added(rewritten(tmp_path / "two", code))
    assert latest("n") not in added(rewritten(tmp_path / "one", together))
