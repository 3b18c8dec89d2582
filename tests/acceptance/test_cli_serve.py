"""`tripstore serve`: it listens where it may, and SIGTERM ends it when the calls that have begun are answered."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from schemaless_core import Datastore
from tripstore.cli.run import run
from tripstore.http.routes import ROUTES

TOKEN = "t" * 32


@contextmanager
def served(config: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, once it says where it listens."""
    code = "from tripstore.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "-c", str(config), "serve", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"FRONT_TOKEN": TOKEN},
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("Listening at "), line + process.stderr.read()
        assert json.loads(process.stdout.readline()) == {"url": line.split()[-1]}
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.communicate()


def certified(folder: Path) -> None:
    """A certificate of 127.0.0.1, signed by its own key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    certificate = (
        builder.not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "front.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    (folder / "front.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    )


def cipher_of(url: str, trusted: ssl.SSLContext) -> str:
    """What a client of TLS 1.2 agrees upon."""
    trusted.maximum_version = ssl.TLSVersion.TLSv1_2
    address = ("127.0.0.1", int(url.rsplit(":", 1)[1]))
    with socket.create_connection(address) as plain, trusted.wrap_socket(plain) as wrapped:
        agreed = wrapped.cipher()
    assert agreed is not None
    return agreed[0]


def test_it_serves_by_tls_and_tokens_and_ends_at_sigterm(tmp_path: Path) -> None:
    certified(tmp_path)
    stores = {"datastore": "trips", "shards": 2, "clusters": {"a": {"primary": f"sqlite:///{tmp_path}/a"}}}
    with Datastore.open(stores) as datastore:
        datastore.create_schema()
    tokens = [{"service": "trips", "token": "${FRONT_TOKEN}", "rights": "write"}]
    http = {"tls_certificate": "front.crt", "tls_key": "front.key", "tokens": tokens}
    (tmp_path / "tripstore.yaml").write_text(yaml.safe_dump(stores | {"http": http}))
    trusted = ssl.create_default_context()
    trusted.check_hostname = False
    trusted.verify_mode = ssl.CERT_NONE

    with served(tmp_path / "tripstore.yaml") as (process, url):
        answer = httpx.get(f"{url}/v1/shards/0/log", headers={"Authorization": f"Bearer {TOKEN}"}, verify=trusted)
        refused = httpx.get(f"{url}/v1/shards/0/log", verify=trusted)
        cipher = cipher_of(url, trusted)
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)

    assert url.startswith("https://")
    assert "GCM" in cipher or "CHACHA20" in cipher
    assert (answer.status_code, refused.status_code, code) == (200, 401, 0)


def test_it_prints_the_openapi_document_without_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run(["serve", "--openapi"]) == 0
    page = json.loads(capsys.readouterr().out)
    assert set(page["paths"]) == {route.path for route in ROUTES}


def test_it_refuses_to_be_open_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    stores = {"datastore": "trips", "shards": 2, "clusters": {"a": {"primary": f"sqlite:///{tmp_path}/a"}}}
    Path("tripstore.yaml").write_text(yaml.safe_dump(stores | {"http": {"host": "0.0.0.0"}}))

    assert run(["serve", "--port", "0"]) == 2
    assert "Without TLS" in capsys.readouterr().err
