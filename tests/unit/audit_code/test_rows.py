"""Objects of models are followed into attributes, through functions and factories; what is done to them is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.audit_code.services import INSTANCE, MODELS, NEW, audit
from tripstore.audit import Access, Use

#: A class that keeps rows, and one that keeps none, which has the same names.
KEEPS = """
from models import Trip, Driver


class Keeper:
    late: Trip
    driver: Driver

    def __init__(self, session):
        self.trip = session.get(Trip, 7)
        self.person = Driver()

    @property
    def first(self):
        return self.trip

    def find(self, number):
        return self.trip if number else None

    def told(self, number) -> Trip:
        return other(number)


class Heir(Keeper):
    pass


def use(session, heir: Heir):
    {code}
"""
KEPT = [
    ("heir.trip.status = 'x'", 1),
    ("heir.late.status = 'x'", 1),
    ("heir.first.status = 'x'", 1),
    ("heir.find(1).status = 'x'", 1),
    ("heir.told(1).status = 'x'", 1),
    ("session.add(heir.trip)", 1),
    ("session.refresh(heir.trip)", 1),
    ("session.add_all([heir.trip, heir.late])", 1),
    ("setattr(heir.trip, 'status', 'x')", 1),
    ("seen.add(heir.trip)", 0),
    ("heir.person.status = 'x'", 0),
    ("heir.driver.status = 'x'", 0),
    ("heir.first = 'x'", 0),
    ("print(heir.trip.status)", 0),
]


def at_use(uses: tuple[Use, ...]) -> list[Use]:
    """Those of the last line, which is the one that a test is about."""
    return [use for use in uses if use.file == "use.py" and use.line == max(each.line for each in uses)]


@pytest.mark.parametrize(("code", "number"), KEPT, ids=[code for code, _number in KEPT])
def test_an_object_is_followed_into_the_attributes_and_methods_of_another(
    tmp_path: Path, code: str, number: int
) -> None:
    kept = KEEPS.format(code="pass\n    " * 2 + code)
    line = len(kept.rstrip().split("\n"))

    found = [use for use in audit(tmp_path, {"models.py": MODELS, "use.py": kept}).uses if use.line == line]

    assert [use.kind.value for use in found] == [INSTANCE] * number


def test_objects_that_keep_each_other_are_given_up(tmp_path: Path) -> None:
    code = """
    from models import Trip


    class One:
        def __init__(self, other):
            self.trip = other.trip
            self.other = Two(self)

        def find(self):
            return self.other.find()


    class Two:
        def __init__(self, one: One):
            self.trip = one.trip
            self.one = one

        def find(self):
            return self.one.find()


    def use(one: One):
        one.trip.status = one.find()
    """

    assert at_use(audit(tmp_path, {"models.py": MODELS, "use.py": code}).uses) == []


FUNCTIONS = [
    ("def load(session):\n    return session.get(Trip, 7)", True),
    ("async def load(session):\n    trip = await session.get(Trip, 7)\n    return trip", True),
    ("def load(session):\n    return session.get(Driver, 7)", False),
    ("def load(session):\n    def inner():\n        return Trip()\n    return inner", False),
    ("@wrapped\ndef load(session):\n    return session.get(Trip, 7)", False),
    ("def load(session):\n    return load(session)", False),
]


@pytest.mark.parametrize(("function", "is_found"), FUNCTIONS)
def test_a_function_without_annotation_brings_what_it_returns(tmp_path: Path, function: str, is_found: bool) -> None:
    code = f"from models import Driver, Trip\n\n\n{function}\n\n\ndef use(session):\n    load(session).status = 'x'\n"

    found = audit(tmp_path, {"models.py": MODELS, "use.py": code}).uses

    last = [use.kind.value for use in found if use.excerpt.startswith("load(session).status")]
    assert last == ([INSTANCE] if is_found else [])


def test_a_function_of_a_chain_of_others_is_followed_as_well(tmp_path: Path) -> None:
    code = "from models import Trip\n\n\ndef one():\n    return Trip()\n\n\ndef two():\n    return one()\n\n\n"
    code += "two().status = 'x'\n"

    assert [use.kind.value for use in at_use(audit(tmp_path, {"models.py": MODELS, "use.py": code}).uses)] == [INSTANCE]


ALIASES = ["Annotated[Trip, Depends(load)]", "Optional[Trip]", "list[Trip]"]


@pytest.mark.parametrize("alias", ALIASES)
def test_a_type_that_has_a_name_stands_for_its_model(tmp_path: Path, alias: str) -> None:
    code = f"from models import Driver, Trip\n\nCurrent = {alias}\nOther = Optional[Driver]\n\n\n"
    code += "def use(trip: Current, driver: Other):\n    driver.status = 'x'\n    trip.status = 'x'\n"

    found = audit(tmp_path, {"models.py": MODELS, "use.py": code}).uses

    assert [use.line for use in found if use.kind.value == INSTANCE] == [9]


FACTORY = """
import factory
from models import Driver, Trip


class Rides(factory.alchemy.SQLAlchemyModelFactory):
    class Meta:
        model = Trip


class Late(Rides):
    pass


class Drivers(factory.Factory):
    class Meta:
        model = Driver


class Plain:
    class Meta:
        model = Trip
"""


@pytest.mark.parametrize(
    ("made", "number"),
    [("Rides()", 1), ("Late.create()", 1), ("Late.build()", 1), ("Drivers.create()", 0), ("Plain.create()", 0)],
)
def test_a_factory_makes_objects_of_its_model(tmp_path: Path, made: str, number: int) -> None:
    code = f"{FACTORY}\nmade = {made}\nmade.status = 'x'\n"

    found = audit(tmp_path, {"models.py": MODELS, "use.py": code}).uses

    assert [use.kind.value for use in found if use.excerpt == "made.status = 'x'"] == [INSTANCE] * number


def test_an_object_that_is_made_in_the_call_of_the_session_is_one_use(tmp_path: Path) -> None:
    found = audit(tmp_path, {"models.py": MODELS, "use.py": "from models import Trip\n\nsession.add(Trip())\n"}).uses

    assert [(use.kind.value, use.access) for use in at_use(found)] == [(NEW, Access.WRITE)]


def test_a_comment_beside_an_except_allows_what_stands_there_alone(tmp_path: Path) -> None:
    code = "from models import Trip\n\ntry:\n    load()\nexcept Trip.Gone:{}\n    keep()\n"
    allowed = audit(tmp_path / "a", {"models.py": MODELS, "use.py": code.format("  # tripstore: allow goes last")})
    not_allowed = audit(tmp_path / "b", {"models.py": MODELS, "use.py": code.format("")})

    assert [use.line for use in allowed.allowed] == [5]
    assert [use.line for use in not_allowed.uses if use.file == "use.py"] == [5]


def test_a_model_is_named_in_an_except_although_the_try_queries_it(tmp_path: Path) -> None:
    code = "from models import Trip\n\ntry:\n    session.get(Trip, 7)\nexcept Trip.Gone:\n    keep()\n"

    found = audit(tmp_path, {"models.py": MODELS, "use.py": code}).uses

    assert [(use.line, use.kind.value) for use in found if use.file == "use.py"] == [(4, "orm.get"), (5, "reference")]


LOADERS = [("@login.user_loader", 1), ("", 0)]


@pytest.mark.parametrize(("decorator", "number"), LOADERS)
def test_the_user_of_flask_login_is_what_its_loader_returns(tmp_path: Path, decorator: str, number: int) -> None:
    loader = f"from models import Trip\n\n\n{decorator}\ndef load(id):\n    return session.get(Trip, int(id))\n"
    use = "from flask_login import current_user\n\n\ndef use():\n    current_user.status = 'x'\n"

    found = audit(tmp_path, {"models.py": MODELS, "load.py": loader, "use.py": use}).uses

    assert [use.kind.value for use in found if use.file == "use.py"] == [INSTANCE] * number


@pytest.mark.parametrize(
    ("annotation", "number"), [("Literal['notes', 'trips']", 1), ("Literal['notes']", 0), ("str", 0)]
)
def test_a_parameter_that_may_be_the_name_of_the_table_is_taken_for_it(
    tmp_path: Path, annotation: str, number: int
) -> None:
    code = f"def count(cursor, table: {annotation}):\n    cursor.execute('SELECT count(*) FROM %s' % table)\n"

    assert [use.kind.value for use in audit(tmp_path, {"use.py": code}).uses] == ["sql.select"] * number


def test_a_file_that_names_no_model_is_looked_at_where_a_base_or_a_function_brings_its_objects(tmp_path: Path) -> None:
    base = "from models import Trip\n\n\nclass Case:\n    def setup(self):\n        self.trip = Trip()\n\n\n"
    base += "def load():\n    return Trip()\n\n\nclass Plain:\n    def setup(self):\n        self.trip = object()\n"
    files = {
        "models.py": MODELS,
        "base.py": base,
        "heir.py": "from base import Case\n\n\nclass Heir(Case):\n    def test(self):\n        self.trip.status = 1\n",
        "load.py": "from base import load\n\nload().status = 1\n",
        "plain.py": "from base import Plain\n\n\nclass Own(Plain):\n    def a(self):\n        self.trip.status = 1\n",
    }

    found = audit(tmp_path, files).uses

    assert [use.file for use in found if use.kind.value == INSTANCE] == ["heir.py", "load.py"]
