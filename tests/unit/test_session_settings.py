"""What a session shows of its settings is held against what was asked for, however either writes a time."""

from __future__ import annotations

import pytest

from tripstore.backends.postgres.errors import SessionRefused
from tripstore.backends.postgres.wire.session import _refuse_differences


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ("100.0", "100ms"),
        ("60000", "1min"),
        ("0.5s", "500ms"),
        ("2.5 s", "2500ms"),
        ("0", "0"),
        ("1h", "1h"),
        ("on", "on"),
    ],
)
def test_two_forms_of_one_value_are_no_difference(wanted: str, shown: str) -> None:
    _refuse_differences({"statement_timeout": wanted}, [shown])


@pytest.mark.parametrize(
    ("wanted", "shown"), [("100.0", "101ms"), ("1min", "1s"), ("3", "-3"), ("on", "off"), ("0", "1d")]
)
def test_another_value_is_refused_by_its_name(wanted: str, shown: str) -> None:
    with pytest.raises(SessionRefused, match="statement_timeout"):
        _refuse_differences({"statement_timeout": wanted}, [shown])
