"""The OpenAPI document is true: schemathesis sends what it allows and what it does not, and checks what comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.http_clients import Served
from tests.integration.http.tokens import WRITER
from tests.scale import SCALE
from tripstore.http.openapi import openapi_document
from tripstore.http.route import HttpRoute
from tripstore.http.routes import ROUTES
from tripstore.store import TripStore

REQUESTS = max(60, int(3000 * SCALE * SCALE))
MODES = st.sampled_from([GenerationMode.POSITIVE, GenerationMode.NEGATIVE])


def is_no_bug(context: Any, response: Any, case: Any) -> None:
    """503 and 504 are answers: a deadline may be as short as a caller says."""
    assert response.status_code != 500, response.text


CHECKS: list[Callable[..., Any]] = [
    is_no_bug,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def fuzz(front: Served, routes: Iterable[HttpRoute], requests: int) -> Counter[int]:
    """Send requests of these routes, and count the statuses of their answers by hundreds."""
    found = Counter[int]()
    schema: Any = schemathesis.openapi.from_dict(openapi_document(routes))
    operations = [each.ok() for each in schema.get_all_operations()]
    cases = st.tuples(st.sampled_from(operations), MODES).flatmap(
        lambda of: of[0].as_strategy(generation_mode=of[1])  # what of this operation is allowed, or what is not
    )

    @settings(
        max_examples=requests,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=cases)
    def send(case: Any) -> None:
        answer = case.call_and_validate(
            base_url=front.url, headers={"Authorization": f"Bearer {WRITER}"}, checks=CHECKS
        )
        found[answer.status_code // 100] += 1

    send()
    return found


def test_every_answer_is_one_that_the_document_has(front: Served) -> None:
    found = fuzz(front, ROUTES, REQUESTS)

    assert min(found[2], found[4]) > REQUESTS // 20, "hardly any request was right, or hardly any was wrong"


def test_control_an_error_that_was_not_foreseen_is_found(front: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: TripStore, row_key: UUID) -> int:
        raise ZeroDivisionError(row_key)

    monkeypatch.setattr(TripStore, "shard_of", fails)

    with pytest.raises(FailureGroup, match="InternalError"):
        fuzz(front, [route for route in ROUTES if route.name == "shard_of"], 20)
