"""The measure over public code bases counts what a reader would count in a small one."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.public.rewritten.__main__ import chosen_models, main
from tripstore.backends.postgres.layout.layout import FieldType

APPLICATION = """
from flask_sqlalchemy import SQLAlchemy

db = SQLAlchemy()


class BikeTrip(db.Model):
    id = db.Column(db.Integer, primary_key=True)
    city = db.Column(db.String(80))


def is_there(trip_id):
    return BikeTrip.query.filter_by(id=trip_id).first() is not None


def in_city(city):
    return len(BikeTrip.query.filter_by(city=city).all())


def make():
    db.session.add(BikeTrip())
"""


def test_models_are_found_uses_counted_and_changes_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "app.py").write_text(dedent(APPLICATION))

    [model] = chosen_models(tmp_path)
    assert (model.table, model.key, model.fields["city"]) == ("bike_trip", "id", FieldType.STRING)
    assert main([str(tmp_path)]) == 0

    said = capsys.readouterr().out
    assert f"{tmp_path.name}: 1 models, rewritten 2, left 1, schema 0" in said
    assert '+    return rewritten.latest_of_id(cell_store, trip_id, "BASE") is not None' in said
    assert '+    return len(rewritten.found(cell_store, "city_index", city, column_name="BASE"))' in said
