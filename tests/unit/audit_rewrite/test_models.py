"""A model that does more than load its columns keeps all that uses it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.rewritten_service import rewrite_service, write_service
from tests.unit.audit_rewrite.forms import HEAD
from tripstore.audit.rewrite.verdicts import RewriteVerdict

MORE_THAN_COLUMNS = [
    "__mapper_args__ = {'polymorphic_on': 'status'}",
    "query_class = None",
    "def __bool__(self): return self.status is not None",
]


@pytest.mark.parametrize("model", MORE_THAN_COLUMNS)
def test_a_mapper_that_does_more_than_load_columns_keeps_all(tmp_path: Path, model: str) -> None:
    folder = write_service(tmp_path, dedent(HEAD) + "    return session.get(Trip, n) is None\n")
    models = folder / "rewritten_billing" / "models.py"
    models.write_text(
        models.read_text().replace('    __tablename__ = "trips"', f'    __tablename__ = "trips"\n    {model}')
    )

    assert rewrite_service(folder).count(RewriteVerdict.REWRITTEN) == 0


TYPES = """
from sqlalchemy import Text as Plain
from sqlalchemy.types import TypeDecorator


class Text(TypeDecorator):
    impl = Plain
"""
OWN_TYPES = [
    (", Text\n", "\nfrom .types import Text\n"),  # another class of this name
    ("    pass", "    from .types import Text\n    type_annotation_map = {str: Text}"),
]


@pytest.mark.parametrize(("old", "new"), OWN_TYPES)
def test_a_type_of_the_company_s_own_keeps_all_though_it_is_called_as_one_of_sqlalchemy_s(
    tmp_path: Path, old: str, new: str
) -> None:
    folder = write_service(tmp_path, dedent(HEAD) + "    trip = session.get(Trip, n)\n    return trip.status\n")
    models = folder / "rewritten_billing" / "models.py"
    said = models.read_text().replace("Mapped[str | None] = mapped_column(Text)", "Mapped[str] = mapped_column()")
    source = said if "type_annotation_map" in new else models.read_text()
    assert old in source
    models.write_text(source.replace(old, new))
    (models.parent / "types.py").write_text(TYPES)

    assert rewrite_service(folder).count(RewriteVerdict.REWRITTEN) == 0


def test_events_keep_all(tmp_path: Path) -> None:
    folder = write_service(tmp_path, dedent(HEAD) + "    return session.get(Trip, n) is None\n")
    (folder / "rewritten_billing" / "events.py").write_text(
        "from sqlalchemy import event\n"
        "from .models import Trip\n"
        "\n"
        "@event.listens_for(Trip, 'load')\n"
        "def heard(*a): ...\n"
    )

    assert rewrite_service(folder).count(RewriteVerdict.REWRITTEN) == 0
