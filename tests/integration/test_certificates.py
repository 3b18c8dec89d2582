"""A server whose certificate is not verified is an error of the configuration, on real servers: no call helps."""

from __future__ import annotations

import datetime
import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from schemaless_core import Datastore, InvalidServer
from schemaless_core.deadline import Deadline
from tests.legacy_databases import PATIENT
from tests.stores import Stores
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.local.servers import LocalServers


@dataclass(frozen=True)
class Signed:
    """A certificate that vouches for itself, of one host, with its key."""

    certificate: Path
    key: Path


def signed(folder: Path, name: str) -> Signed:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(
        subject, subject, key.public_key(), x509.random_serial_number(), now - day, now + day
    )
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    made = Signed(folder / f"{name}.pem", folder / f"{name}.key")
    certificate = builder.sign(key, hashes.SHA256())
    made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    made.key.write_bytes(private)
    return made


def test_postgres_with_another_authority_or_host_is_refused(servers: LocalServers, tmp_path: Path) -> None:
    server = servers.postgres("certified", flavour="machine")
    theirs, other = signed(server.place.data, "theirs"), signed(tmp_path, "other")
    for file in (theirs.certificate, theirs.key):
        file.chmod(0o600)
        owner = server.place.data.stat()
        os.chown(file, owner.st_uid, owner.st_gid)
    for name, file in (("ssl_cert_file", theirs.certificate), ("ssl_key_file", theirs.key)):
        server.query(f"ALTER SYSTEM SET {name} = '{file}'")
    server.query("ALTER SYSTEM SET ssl = on")
    server.query("SELECT pg_reload_conf()")
    known = tmp_path / "known.pem"
    known.write_bytes(theirs.certificate.read_bytes())
    place = server.url.replace("127.0.0.1", "localhost") + "/postgres"

    for authority, host, sign in (
        (other.certificate, "localhost", "certificate verify failed"),
        (tmp_path / "missing.pem", "localhost", "root certificate file"),
        (known, "127.0.0.1", "does not match host name"),
    ):
        url = f"{place.replace('localhost', host)}?sslmode=verify-full&sslrootcert={authority}"
        with pytest.raises(InvalidServer, match=f"its certificate is refused.*{sign}"), connected(url, "test"):
            pass
        with closing(LegacyDatabase(url, PATIENT)) as database, pytest.raises(InvalidServer, match=sign):
            database.run(lambda connection: connection.rows("SELECT 1"), Deadline(5.0))

    # The control: the authority that signed it, and the host that it is for.
    with connected(f"{place}?sslmode=verify-full&sslrootcert={known}", "test") as connection:
        assert rows(connection, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == [(True,)]


def test_mysql_with_another_authority_is_refused(stores: Stores, tmp_path: Path) -> None:
    config: dict[str, Any] = stores.config("mysql", shards=2)
    other = str(signed(tmp_path, "other").certificate)

    with (
        closing(Datastore.open({**config, "tls": {"ca": other}})) as store,
        pytest.raises(InvalidServer, match="its certificate is refused") as refused,
    ):
        store.create_schema()
    assert "tls.ca" in str(refused.value.hint)

    # Its own authority, of another host than the certificate's; the control: the host is not asked for.
    (row,) = stores.clusters("mysql")[0].primary.query("SELECT CONCAT(@@datadir, @@ssl_ca) AS ca")
    own = str(row["ca"])
    strange = {"ca": own, "verify_hostname": True}
    with (
        closing(Datastore.open({**config, "tls": strange})) as store,
        pytest.raises(InvalidServer, match="its certificate is refused"),
    ):
        store.create_schema()
    with closing(Datastore.open({**config, "tls": {"ca": own, "verify_hostname": False}})) as store:
        store.create_schema()
