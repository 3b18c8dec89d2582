"""`http` of the configuration: what may listen where, and that no token is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemaless_core.errors import InvalidConfig
from tripstore.config import HttpDocument, TripstoreConfig, load_config
from tripstore.http.errors import NotServed
from tripstore.http.settings import HttpSettings, ServiceRight, http_settings

SECRET = "s" * 32
TOKEN = {"service": "billing", "token": SECRET, "rights": "read"}


def settings(folder: Path, **given: Any) -> HttpSettings:
    return http_settings(HttpDocument(given, folder))


def configuration(folder: Path, http: Any) -> TripstoreConfig:
    clusters = {"a": {"primary": f"sqlite:///{folder}"}}
    return load_config({"datastore": "trips", "shards": 2, "clusters": clusters, "http": http})


def test_without_a_section_it_listens_on_loopback(tmp_path: Path) -> None:
    asked = settings(tmp_path)

    asked.refuse_unprotected()
    assert (asked.limits.host, asked.limits.port, asked.tokens) == ("127.0.0.1", 8080, ())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "trips.example", "127.0.0.1.example"])
def test_elsewhere_it_needs_a_certificate_and_tokens(tmp_path: Path, host: str) -> None:
    for name in ("front.crt", "front.key"):
        (tmp_path / name).touch()
    files = {"tls_certificate": "front.crt", "tls_key": "front.key"}

    with pytest.raises(NotServed, match="TLS"):
        settings(tmp_path, host=host, tokens=[TOKEN]).refuse_unprotected()
    with pytest.raises(NotServed, match="tokens"):
        settings(tmp_path, host=host, **files).refuse_unprotected()
    settings(tmp_path, host=host, tokens=[TOKEN], **files).refuse_unprotected()


def test_references_are_looked_up_where_it_is_served_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration(tmp_path, {"tokens": [TOKEN | {"token": "${BILLING_TOKEN}"}]})

    with pytest.raises(InvalidConfig, match="BILLING_TOKEN"):
        http_settings(config.http)
    monkeypatch.setenv("BILLING_TOKEN", SECRET)
    asked = http_settings(config.http)

    assert [(each.service, each.token, each.right) for each in asked.tokens] == [("billing", SECRET, ServiceRight.READ)]


def test_a_token_is_not_shown(tmp_path: Path) -> None:
    assert SECRET not in repr(settings(tmp_path, tokens=[TOKEN]))
    assert SECRET not in repr(configuration(tmp_path, {"tokens": [TOKEN]}))


@pytest.mark.parametrize(
    "given",
    [
        {"hots": "127.0.0.1"},
        {"port": 70_000},
        {"port": "8080"},
        {"host": 1},
        {"tls_key": "missing.key"},
        {"tokens": TOKEN},
        {"tokens": [TOKEN, TOKEN]},
        {"tokens": [TOKEN | {"token": "short" + SECRET[:10]}]},
        {"tokens": [TOKEN | {"rights": "all"}]},
        {"tokens": [TOKEN | {"service": ""}]},
    ],
)
def test_what_cannot_be_meant_is_refused_and_no_token_repeated(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="http") as refused:
        settings(tmp_path, **given)

    assert SECRET[:10] not in str(refused.value)
