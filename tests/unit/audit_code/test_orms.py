"""Models whose ORM names their tables: each rule, and beside it the class that breaks it and must not count."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.audit_code.services import write
from tripstore.audit import CodeAudit, LegacyTables, audit_code

FLASK = "from flask_sqlalchemy import SQLAlchemy\n\ndb = SQLAlchemy()\n\n\n"
DJANGO = "from django.db import models\n\n\n"
PEEWEE = "import peewee\n\n\n"


def audited(folder: Path, table: str, files: dict[str, str]) -> CodeAudit:
    return audit_code(write(folder, files), LegacyTables.parse([table]))


def kinds(result: CodeAudit) -> list[str]:
    assert not result.unread
    return [use.kind.value for use in result.uses]


#: The models, the table that the last class named Trip or BikeTrip is kept in, and one that it is not kept in.
NAMED = [
    (FLASK + "class BikeTrip(db.Model):\n    id = db.Column(primary_key=True)\n", "bike_trip", "biketrip"),
    (FLASK + "class BikeTrip(db.Model):\n    __bind_key__ = 'old'\n", "bike_trip", "bike_trips"),
    (FLASK + "class Base(db.Model):\n    __abstract__ = True\nclass BikeTrip(Base):\n    pass\n", "bike_trip", "base"),
    (FLASK + "class Mixin:\n    pass\nclass BikeTrip(Mixin, db.Model):\n    pass\n", "bike_trip", "mixin"),
    (FLASK + "class Ride(db.Model):\n    id = db.Column(primary_key=True)\nclass BikeTrip(Ride):\n    pass\n",
     "ride", "bike_trip"),
    (FLASK + "class Ride(db.Model):\n    pass\nclass BikeTrip(Ride):\n    id = db.Column(primary_key=True)\n",
     "bike_trip", "rides"),
    ("from sqlmodel import SQLModel\nclass BikeTrip(SQLModel, table=True):\n    id: int\n", "biketrip", "bike_trip"),
    ("from sqlmodel import SQLModel\nclass BikeTrip(SQLModel, table=True):\n    __tablename__ = 'x'\n", "x",
     "biketrip"),
    (DJANGO + "class BikeTrip(models.Model):\n    pass\n", "app_biketrip", "biketrip"),
    (DJANGO + "class BikeTrip(models.Model):\n    class Meta:\n        db_table = 'x'\n", "x", "app_biketrip"),
    (DJANGO + "class BikeTrip(models.Model):\n    class Meta:\n        app_label = 'old'\n", "old_biketrip",
     "app_biketrip"),
    (DJANGO + "class Ride(models.Model):\n    class Meta:\n        abstract = True\nclass BikeTrip(Ride):\n    pass\n",
     "app_biketrip", "app_ride"),
    (DJANGO + "class Ride(models.Model):\n    pass\nclass BikeTrip(Ride):\n    class Meta:\n        proxy = True\n",
     "app_ride", "app_biketrip"),
    (DJANGO + "class Ride(models.Model):\n    pass\nclass BikeTrip(Ride):\n    pass\n", "app_ride", "app_rides"),
    (PEEWEE + "class BikeTrip(peewee.Model):\n    pass\n", "biketrip", "app_biketrip"),
    (PEEWEE + "class BikeTrip(peewee.Model):\n    class Meta:\n        table_name = 'x'\n", "x", "biketrip"),
    (PEEWEE + "class Ride(peewee.Model):\n    class Meta:\n        legacy_table_names = False\n"
     "class BikeTrip(Ride):\n    pass\n", "bike_trip", "biketrip"),
    (PEEWEE + "class Ride(peewee.Model):\n    pass\nclass BikeTrip(Ride):\n    pass\n", "biketrip", "ride"),
    ("from sqlalchemy.orm import DeclarativeBase\nclass Base(DeclarativeBase):\n    @declared_attr\n"
     "    def __tablename__(cls):\n        return cls.__name__.lower() + 's'\nclass BikeTrip(Base):\n    pass\n",
     "biketrips", "biketrip"),
]  # fmt: skip


@pytest.mark.parametrize(("models", "table", "other"), NAMED)
def test_a_model_is_kept_in_the_table_that_its_orm_names(tmp_path: Path, models: str, table: str, other: str) -> None:
    files = {"app/models.py": models, "app/use.py": "from app.models import BikeTrip\n\nBikeTrip()\n"}

    assert kinds(audited(tmp_path, table, files)) == ["orm.new"]
    assert kinds(audited(tmp_path, other, files)) == []  # The control: another rule than the ORM's would find it.


RIDES = {
    "trips/models.py": DJANGO
    + "class Driver(models.Model):\n    pass\n\n\nclass Trip(models.Model):\n    open = models.Manager()\n"
    "    driver = models.ForeignKey(Driver)\n\n\nclass Note(models.Model):\n    trip = models.ForeignKey('Trip')\n",
}
DJANGO_USES = [
    ("Trip.objects.filter(id=1)", ["orm.query"]),
    ("Trip.open.all()", ["orm.query"]),
    ("Trip.objects.get(id=1)", ["orm.get"]),
    ("Trip.objects.create(id=1)", ["orm.new"]),
    ("Trip.objects.filter(id=1).update(fare=1)", ["update"]),
    ("Trip.objects.bulk_create(rows)", ["orm.bulk"]),
    ("rows = Trip.objects.all()\n    rows.delete()", ["orm.query", "delete"]),
    ("for trip in Trip.objects.all():\n        trip.save()", ["orm.query", "orm.instance"]),
    ("Trip.objects.raw('SELECT id FROM trips_trip')", ["orm.query", "sql.select"]),
    ("anything.trip_set.all()", ["orm.relationship"]),
    ("Note.objects.filter(trip__fare=1)", ["orm.relationship"]),
    ("Note.objects.select_related('trip')", ["orm.relationship"]),
    ("rows.filter(Q(trip__fare=1))", ["orm.relationship"]),
    ("apps.get_model('trips', 'Trip').objects.all()", ["orm.query"]),
    ("cursor.execute(f'DELETE FROM {Trip._meta.db_table}')", ["sql.delete"]),
    ("Driver.objects.filter(name=1)", []),
    ("Note.objects.filter(trip_id=1)", []),
    ("apps.get_model('trips', 'Driver').objects.all()", []),
]


@pytest.mark.parametrize(("code", "expected"), DJANGO_USES)
def test_django_reaches_a_table_by_managers_relations_and_lookups(
    tmp_path: Path, code: str, expected: list[str]
) -> None:
    use = f"from trips.models import Driver, Note, Trip\n\n\ndef use(rows, anything, apps, cursor):\n    {code}\n"
    result = audited(tmp_path, "trips_trip", {**RIDES, "trips/use.py": use})

    assert [each.kind.value for each in result.uses if each.file == "trips/use.py"] == expected


def test_the_table_between_two_models_is_found(tmp_path: Path) -> None:
    models = DJANGO + "class Tag(models.Model):\n    pass\n\n\nclass Trip(models.Model):\n"
    models += "    tags = models.ManyToManyField(Tag)\n"
    use = "from trips.models import Trip\n\ntrip = Trip.objects.get(id=1)\ntrip.tags.add(1)\n"

    result = audited(tmp_path, "trips_trip_tags", {"trips/models.py": models, "trips/use.py": use})

    assert "orm.relationship" in kinds(result)


def test_the_model_of_users_is_found_by_what_the_settings_say(tmp_path: Path) -> None:
    use = "from django.contrib.auth import get_user_model\n\nget_user_model().objects.get(id=1)\n"
    own = {
        "settings.py": "AUTH_USER_MODEL = 'people.User'\n",
        "people/models.py": DJANGO + "class User(models.Model):\n    pass\n",
    }

    assert len(kinds(audited(tmp_path / "a", "auth_user", {"use.py": use}))) == 1
    assert len(kinds(audited(tmp_path / "b", "people_user", {**own, "use.py": use}))) == 1
    assert kinds(audited(tmp_path / "b", "auth_user", {**own, "use.py": use})) == []


PEEWEE_USES = [
    ("Trip.select().where(Trip.id == 1)", ["orm.query"]),
    ("Trip.create(id=1)", ["orm.new"]),
    ("Trip.get_by_id(1)", ["orm.get"]),
    ("Trip.update(fare=1).where(Trip.id == 1).execute()", ["update"]),
    ("trip = Trip.get(id=1)\n    trip.save()", ["orm.get", "orm.instance"]),
    ("anything.trip_set.count()", ["orm.relationship"]),
    ("Driver.select()", []),
]


@pytest.mark.parametrize(("code", "expected"), PEEWEE_USES)
def test_peewee_asks_models_themselves(tmp_path: Path, code: str, expected: list[str]) -> None:
    models = PEEWEE + "class Driver(peewee.Model):\n    pass\n\n\nclass Trip(peewee.Model):\n"
    models += "    driver = peewee.ForeignKeyField(Driver)\n"
    use = f"from models import Driver, Trip\n\n\ndef use(anything):\n    {code}\n"

    found = kinds(audited(tmp_path, "trip", {"models.py": models, "use.py": use}))

    assert found[: len(expected)] == expected
    assert set(found) - set(expected) <= {"select"}  # The columns that its conditions name.


UNTOLD = [
    "class Trip(db.Model):\n    id = db.Column()\n",
    "from sqlalchemy.orm import DeclarativeBase\nclass Base(DeclarativeBase):\n    @declared_attr\n"
    "    def __tablename__(cls):\n        return name_of(cls)\nclass Row(Base):\n    pass\n",
    "from company import Base\nclass Row(Base):\n    id = mapped_column()\n",
    "from tortoise.models import Model\nclass Row(Model):\n    pass\n",
    "from sqlalchemy import MetaData\nmetadata = MetaData()\nmetadata.reflect(engine)\n",
    "Base = automap_base()\nBase.prepare(autoload_with=engine)\n",
]


@pytest.mark.parametrize("code", UNTOLD)
def test_no_use_is_no_news_while_the_table_of_a_model_cannot_be_told(tmp_path: Path, code: str) -> None:
    """I12: what was not looked at is not called clean."""
    result = audited(tmp_path / "a", "fares", {"a.py": code})

    assert result.untold
    assert not result.is_complete


@pytest.mark.parametrize(
    "code",
    [
        "from django import forms\nclass TripForm(forms.Form):\n    name = forms.CharField()\n",
        "import django_tables2 as tables\n\n\nclass Rows(tables.Table):\n    name = tables.Column()\n",
        "class Trip(Unknown):\n    name = 'x'\n",
        "from company import Base\nclass Row(Base):  # tripstore: allow kept in memory\n    id = mapped_column()\n",
    ],
)
def test_control_what_is_no_model_leaves_nothing_untold(tmp_path: Path, code: str) -> None:
    assert audited(tmp_path, "fares", {"a.py": code}).is_complete


def test_a_table_that_resembles_its_class_is_taken_for_its_own_and_said(tmp_path: Path) -> None:
    result = audited(
        tmp_path, "trips", {"a.py": "from company import Base\nclass Trip(Base):\n    id = Column()\nTrip()\n"}
    )

    assert kinds(result) == ["orm.new"]
    assert "resembles" in result.untold[0].reason


#: A class that is a manager whatever it is called, and the model that has it.
MANAGER = "class Open(models.Manager):\n    pass\n\n\n"
MANAGED = [
    MANAGER + "class Trip(models.Model):\n    live = Open()\n",
    MANAGER.replace("models.Manager", "models.Manager.from_queryset(Rows)")
    + "class Trip(models.Model):\n    live = Open()\n",
    MANAGER
    + "class Base(models.Model):\n    live = Open()\n\n    class Meta:\n        abstract = True\n\n\n"
    + "class Trip(Base):\n    pass\n",
]


@pytest.mark.parametrize("models", MANAGED, ids=["of its own", "of a queryset", "of its base"])
def test_a_manager_is_known_by_what_it_derives_from(tmp_path: Path, models: str) -> None:
    use = "from trips.models import Trip\n\nTrip.live.filter(id=1).delete()\n"
    files = {"trips/models.py": DJANGO + models, "trips/use.py": use}
    others = {**files, "trips/models.py": files["trips/models.py"].replace("models.Manager", "object")}

    assert kinds(audited(tmp_path / "a", "trips_trip", files)) == ["delete"]
    assert kinds(audited(tmp_path / "b", "trips_trip", others)) == ["reference"]  # the control
    assert kinds(audited(tmp_path / "c", "trips_open", files)) == []  # a manager has no table


def test_a_model_that_is_called_manager_is_no_manager(tmp_path: Path) -> None:
    models = "from hr.models import Manager\nfrom django.db import models\n\n\nclass Trip(Manager):\n"
    models += "    city = models.CharField(max_length=9)\n"
    use = "from trips.models import Trip\n\nTrip.objects.get(id=1)\n"

    found = audited(tmp_path, "trips_trip", {"trips/models.py": models, "trips/use.py": use})

    assert kinds(found) == ["orm.get"]


MIGRATIONS = [
    ("CreateModel(name='Trip', fields=[])", "trips_trip"),
    ("CreateModel('Trip', [], options={'db_table': 'rides'})", "rides"),
    ("AddField(model_name='trip', name='fare', field=models.TextField())", "trips_trip"),
    ("RemoveField('trip', 'fare')", "trips_trip"),
    ("AlterModelTable(name='trip', table='rides')", "rides"),
    ("AddIndex('trip', models.Index(fields=['fare'], name='fares'))", "trips_trip"),
    ("DeleteModel('trip')", "trips_trip"),
    ("RenameModel(old_name='Ride', new_name='Trip')", "trips_trip"),
    ("RenameModel('Trip', 'Ride')", "trips_trip"),
]


@pytest.mark.parametrize(("operation", "table"), MIGRATIONS)
def test_a_migration_of_django_changes_the_table_of_its_model(tmp_path: Path, operation: str, table: str) -> None:
    code = "from django.db import migrations, models\n\n\nclass Migration(migrations.Migration):\n"
    code += f"    operations = [migrations.{operation}]\n"
    model = {"trips/models.py": DJANGO + "class Trip(models.Model):\n    pass\n"}

    assert kinds(audited(tmp_path / "a", table, {**model, "trips/migrations/0001.py": code})) == ["schema"]
    assert kinds(audited(tmp_path / "b", table, {**model, "drivers/migrations/0001.py": code})) == (
        ["schema"] if table == "rides" else []  # the control: a model of another app
    )
    assert kinds(audited(tmp_path / "c", table, {**model, "trips/operations.py": code})) == []  # no migration


def test_a_table_of_the_metadata_is_known_by_a_name(tmp_path: Path) -> None:
    code = (
        "NAME = 'trips'\n\n\ndef use(metadata, session, other):\n    session.execute(select(metadata.tables[{key}]))\n"
    )

    assert kinds(audited(tmp_path / "a", "trips", {"use.py": code.format(key="NAME")})) == ["select"]
    unknown = audited(tmp_path / "b", "trips", {"use.py": code.format(key="other")})
    assert kinds(unknown) == []
    assert [remark.line for remark in unknown.unclear] == [5]


def test_a_relationship_that_is_called_tables_is_followed(tmp_path: Path) -> None:
    models = (
        "from sqlalchemy.orm import DeclarativeBase, relationship\n\n\nclass Base(DeclarativeBase):\n    pass\n\n\n"
    )
    models += "class Seat(Base):\n    __tablename__ = 'seats'\n\n\n"
    models += "class Room(Base):\n    __tablename__ = 'rooms'\n    tables = relationship('Seat')\n"
    use = "from app.models import Room\n\n\ndef use(session):\n    room = session.get(Room, 1)\n"
    use += "    room.tables[0].city = 'SF'\n"

    result = audited(tmp_path, "seats", {"app/models.py": models, "app/use.py": use})

    assert [each.kind.value for each in result.uses if each.file == "app/use.py"] == [
        "orm.instance",
        "orm.relationship",
    ]


STARRED = [
    ("from peewee import *\n\n\nclass Trip(Model):\n    city = TextField()\n", "trip"),
    ("from peewee import *\nfrom playhouse.sqlite_ext import *\n\n\nclass Trip(FTSModel):\n    class Meta:\n"
     "        table_name = 'trip'\n", "trip"),
    ("from sqlmodel import *\n\n\nclass Trip(SQLModel, table=True):\n    id: int\n", "trip"),
    ("from django.db.models import *\n\n\nclass Trip(Model):\n    pass\n", "app_trip"),
]  # fmt: skip


@pytest.mark.parametrize(("models", "table"), STARRED)
def test_a_star_brings_the_names_of_an_orm(tmp_path: Path, models: str, table: str) -> None:
    files = {"app/models.py": models, "app/use.py": "from app.models import Trip\n\nTrip()\n"}
    again = {
        "app/base.py": models.partition("\n\n\n")[0],
        "app/models.py": "from app.base import *\n\n\n" + models.partition("\n\n\n")[2],
        "app/use.py": files["app/use.py"],
    }

    assert kinds(audited(tmp_path / "a", table, files)) == ["orm.new"]
    assert kinds(audited(tmp_path / "b", table, again)) == ["orm.new"]  # through a module that has all of its names


def test_control_a_star_of_another_library_brings_no_model(tmp_path: Path) -> None:
    models = "from shapes import *\n\n\nclass Trip(Model):\n    city = TextField()\n"

    assert kinds(audited(tmp_path, "trip", {"models.py": models, "use.py": "from models import Trip\nTrip()\n"})) == []


def test_a_star_hides_no_module(tmp_path: Path) -> None:
    files = {
        "app/__init__.py": "from peewee import *\n",
        "app/models.py": PEEWEE + "class Trip(peewee.Model):\n    pass\n",
        "use.py": "from app import models\n\nmodels.Trip.select()\n",
    }

    assert kinds(audited(tmp_path, "trip", files)) == ["orm.query"]


@pytest.mark.parametrize("settings", ["MIGRATION_MODULES = {'trips': 'db.moved.trips'}\n", ""])
def test_migrations_are_where_the_settings_say(tmp_path: Path, settings: str) -> None:
    code = "from django.db import migrations\n\n\nclass Migration(migrations.Migration):\n"
    code += "    operations = [migrations.DeleteModel('trip')]\n"
    files = {
        "settings.py": settings,
        "trips/models.py": DJANGO + "class Trip(models.Model):\n    pass\n",
        "db/moved/trips/0001_initial.py": code,
        "db/moved/drivers/0001_initial.py": code,
    }

    found = audited(tmp_path, "trips_trip", files).uses

    assert [use.file for use in found] == (["db/moved/trips/0001_initial.py"] if settings else [])


LOOKED_UP = [
    ("class Notes(ModelAdmin[Note]):\n    list_select_related = ('trip',)\n", 1),
    ("@admin.register(Note)\nclass Notes(admin.ModelAdmin):\n    search_fields = ['=trip__city', 'text']\n", 1),
    ("class Notes(ListView):\n    model = Note\n    ordering = '-trip__city'\n", 1),
    ("class Notes(admin.ModelAdmin):\n    search_fields = ('trip__city',)\n", 1),
    ("class Notes(ModelAdmin[Note]):\n    search_fields = ('text', 'trip_id')\n", 0),
    ("class Drivers(ModelAdmin[Driver]):\n    list_select_related = ('car',)\n    list_filter = 'name'\n", 0),
]


@pytest.mark.parametrize(("code", "number"), LOOKED_UP)
def test_options_of_an_admin_name_relations_by_texts(tmp_path: Path, code: str, number: int) -> None:
    admin = f"from trips.models import Driver, Note\n\n\n{code}"
    result = audited(tmp_path, "trips_trip", {**RIDES, "trips/admin.py": admin})

    assert [each.kind.value for each in result.uses if each.file == "trips/admin.py"] == ["orm.relationship"] * number


def test_a_lookup_is_followed_from_the_models_that_have_its_first_name(tmp_path: Path) -> None:
    models = RIDES["trips/models.py"] + "\n\nclass Car(models.Model):\n    trip = models.ForeignKey('Trip')\n"
    models += "\n\nclass Garage(models.Model):\n    trip = models.ForeignKey('Driver')\n\n\n"
    models += "class Rent(models.Model):\n    garage = models.ForeignKey('Garage')\n"
    files = {
        "trips/models.py": models,
        "trips/use.py": "rows.filter(garage__trip__name=1)\nrows.filter(trip__fare=1)\n",
    }

    found = [use.line for use in audited(tmp_path, "trips_trip", files).uses if use.file == "trips/use.py"]

    assert found == [2]  # the trip of a garage is a driver


def test_an_object_of_django_is_asked_for_again(tmp_path: Path) -> None:
    use = "from trips.models import Driver, Trip\n\ntrip = Trip.objects.get(id=1)\ntrip.refresh_from_db()\n"
    use += "driver = Driver.objects.get(id=1)\ndriver.refresh_from_db()\n"

    found = audited(tmp_path, "trips_trip", {**RIDES, "trips/use.py": use}).uses

    assert [(each.line, each.access.value) for each in found if each.kind.value == "orm.instance"] == [(4, "read")]


def test_an_object_of_sqlmodel_is_made_by_validation_and_updated_at_once(tmp_path: Path) -> None:
    models = "from sqlmodel import SQLModel\n\n\nclass Trip(SQLModel, table=True):\n    id: int\n"
    use = "from models import Trip\n\ntrip = Trip.model_validate(data)\ntrip.sqlmodel_update(data)\n"

    found = audited(tmp_path, "trip", {"models.py": models, "use.py": use}).uses

    assert [(each.line, each.kind.value) for each in found] == [(3, "reference"), (4, "orm.instance")]


def test_a_property_of_a_model_is_no_column(tmp_path: Path) -> None:
    models = PEEWEE + "class Trip(peewee.Model):\n    def note(self):\n        return 1\n\n    extra = property(note)\n"
    use = "from models import Trip\n\ntrip = Trip.get(id=1)\ntrip.extra = 1\ntrip.city = 1\n"

    found = audited(tmp_path, "trip", {"models.py": models, "use.py": use}).uses

    assert [each.line for each in found if each.kind.value == "orm.instance"] == [5]


def test_a_mere_name_is_no_sign_that_models_were_found(tmp_path: Path) -> None:
    """I12: a text that happens to be the name of the table does not hide that a model cannot be told."""
    code = "from company import Base\n\n\nclass Row(Base):\n    id = mapped_column()\n\n\ndef search(word):\n    pass\n"
    named = code + "\n\nsearch('fares')\n"
    used = named + "run('SELECT id FROM fares')\n"

    mere = audited(tmp_path / "a", "fares", {"a.py": named})
    assert kinds(mere) == ["name"]
    assert not mere.is_complete
    assert audited(tmp_path / "b", "fares", {"a.py": used}).is_complete  # the control
