"""`tripstore init --from`: looks at the company's tables and writes the layout that they suggest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from schemaless_core.config import load_document, resolve_references
from schemaless_core.errors import InvalidConfig
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.layout.layout import TableName
from tripstore.backends.postgres.proposals.fit import fitted
from tripstore.backends.postgres.proposals.proposing import propose
from tripstore.backends.postgres.proposals.text import render, undecided
from tripstore.backends.postgres.wire.connections import connected
from tripstore.config import parse_postgres_url
from tripstore.example import write_private


@dataclass(frozen=True, slots=True)
class Proposed:
    """A layout's text, and what a person should look at first."""

    text: str
    undecided: tuple[str, ...]


def proposed_layout(
    url: str, tables: Sequence[str], datastore: str, folder: Path, facts: Sequence[str] = ()
) -> Proposed:
    """Look at the tables; references in the URL are read from environment and files as in the configuration."""
    known = parse_postgres_url("--from", resolve_references(url, folder))
    names = list(dict.fromkeys(_table(name) for name in tables))
    with connected(known.text, "init", key="--from") as connection:
        proposal, errors = fitted(connection, propose(connection, names, datastore, _among(facts, names)))
    text, remarks, misfits = render(proposal), undecided(proposal), [str(each) for each in errors]
    if misfits:
        text += "\n# Errors of `tripstore schema plan`, to be mended first:\n"
        text += "".join(f"#   {misfit}\n" for misfit in misfits)
    return Proposed(text, (*misfits, *remarks))


def write_layout(path: Path, text: str, *, replace: bool) -> None:
    """Write the layout; never over another one unless it may."""
    try:
        write_private(path, text, replace=replace)
    except FileExistsError:
        hint = "Name another with --layout, or replace it with --force."
        raise InvalidConfig(str(path), "exists already", hint=hint) from None


def datastore_of(config: Path) -> str | None:
    """The datastore of a configuration that is there, as it stands in the file."""
    if not config.exists():
        return None
    found = load_document(config)[0].get("datastore")
    return found if isinstance(found, str) else None


def holds_password(url: str) -> bool:
    try:
        password = urlsplit(url).password or ""
    except ValueError:
        return False
    return bool(password) and not password.startswith("${")


def _among(facts: Sequence[str], names: Sequence[TableName]) -> list[TableName]:
    found = [_table(name) for name in facts]
    for name in found:
        if name not in names:
            raise InvalidLayout(f"--facts {name} is none of the tables.", hint=f"Name it with --table {name} too.")
    return found


def _table(name: str) -> TableName:
    found = TableName.find(name)
    if found is None:
        hint = """Write its name, or schema.name; a name with a dot in quotes: --table '"a.b"'."""
        raise InvalidLayout(f"{name!r} is no table.", hint=hint)
    return found
