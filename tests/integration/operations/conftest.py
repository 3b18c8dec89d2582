"""The programs that read the files for operators."""

from __future__ import annotations

import pytest

from tests.absence import absent
from tests.integration.operations.promtool import Promtool
from tripstore.local.errors import LocalServerError
from tripstore.local.promtool import get_promtool


@pytest.fixture(scope="session")
def promtool() -> Promtool:
    """Missing, it fails in CI, and skips with its reason elsewhere."""
    try:
        return Promtool(get_promtool())
    except LocalServerError as error:
        absent(str(error))
