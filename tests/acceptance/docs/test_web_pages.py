"""The services of the page about Flask and Django: their code runs, and answers the same questions alike."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from uuid import uuid4

import django  # type: ignore[import-untyped]  # Django brings no types
import pytest
from django.conf import settings as django_settings  # type: ignore[import-untyped]  # as above
from django.test import Client  # type: ignore[import-untyped]  # as above
from django.urls import clear_url_caches  # type: ignore[import-untyped]  # as above

from tests.acceptance.conftest import Shell
from tests.acceptance.docs.test_typed_pages import company
from tests.chaos.actors import wait_until
from tests.documents import DOCS, blocks

__all__ = ["company"]

FLASK, DJANGO = [text for kind, text in blocks(DOCS / "howto" / "web-frameworks.md") if kind == "python"]
#: Method and address: status, document and headers.
Ask = Callable[..., tuple[int, Any, Any]]
_NUMBERS = count()


def module_of(code: str, folder: Shell) -> Any:
    """The code of the page as a file of the service; each has a name of its own."""
    name = f"service_{next(_NUMBERS)}"
    (folder.folder / f"{name}.py").write_text(code)
    return importlib.import_module(name)


def flask(folder: Shell) -> tuple[Ask, Any]:
    service = module_of(FLASK, folder)

    def ask(method: str, path: str) -> tuple[int, Any, Any]:
        answer = service.app.test_client().open(path, method=method)
        return answer.status_code, answer.get_json(silent=True), answer.headers

    return ask, service.store


def django_service(folder: Shell) -> tuple[Ask, Any]:
    service = module_of(DJANGO, folder)
    if not django_settings.configured:
        django_settings.configure(ALLOWED_HOSTS=["*"], USE_TZ=True)
        django.setup()
    django_settings.ROOT_URLCONF = service.__name__
    django_settings.MIDDLEWARE = [f"{service.__name__}.TryLater"]
    django_settings.TRIPSTORE = folder.folder / "tripstore.yaml"
    clear_url_caches()
    client = Client()

    def ask(method: str, path: str) -> tuple[int, Any, Any]:
        answer = client.generic(method, path)
        is_json = "json" in answer["Content-Type"]
        return answer.status_code, answer.json() if is_json else None, answer.headers

    return ask, service.store()


@pytest.fixture(params=[flask, django_service], ids=["flask", "django"])
def service(request: pytest.FixtureRequest, company: Shell) -> Iterator[Ask]:
    ask, store = request.param(company)
    yield ask
    store.close()
    for name in [name for name in sys.modules if name.startswith("service_")]:
        del sys.modules[name]


def test_the_service_of_the_page_answers(service: Ask) -> None:
    trip, driver, city = uuid4(), uuid4(), uuid4()
    asked = f"?driver={driver}&city={city}"

    assert service("GET", "/health")[:2] == (200, {"is_ready": True})
    assert service("GET", f"/trips/{trip}")[0] == 404
    assert service("PUT", f"/trips/{trip}/1{asked}")[:2] == (200, {"status": "CREATED"})
    assert service("PUT", f"/trips/{trip}/1{asked}")[:2] == (200, {"status": "EXISTS"})
    assert service("PUT", f"/trips/{trip}/1?driver={driver}&city={uuid4()}")[0] == 409
    body = {"driver_partner_uuid": str(driver), "city_uuid": str(city)}
    assert service("GET", f"/trips/{trip}")[:2] == (200, {"version": 1, "trip": body})
    wait_until("it is in the index", lambda: service("GET", f"/drivers/{driver}/trips")[1]["trips"] == [str(trip)])


@pytest.mark.parametrize("made", [flask, django_service], ids=["flask", "django"])
def test_a_service_whose_store_is_away_says_when_to_try_again(
    made: Callable[[Shell], tuple[Ask, Any]], company: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its health check takes it out of the balancer."""
    for port, name in enumerate("ab", start=1):
        monkeypatch.setenv(f"TRIPSTORE_SET__CLUSTERS__{name.upper()}__PRIMARY", f"mysql://u:p@127.0.0.1:{port}")
    ask, store = made(company)
    status, _document, headers = ask("GET", f"/trips/{uuid4()}")
    assert (status, headers["Retry-After"]) == (503, "1")
    assert ask("GET", "/health")[:2] == (503, {"is_ready": False})
    store.close()
