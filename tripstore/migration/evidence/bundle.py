"""A bundle of evidence: a zip of plain files, and a manifest with the digest of each."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from schemaless_core.control.seals import AuditLine, SealedLine, SealFault, SealHead, seal_faults
from tripstore.errors import TripstoreError

MANIFEST = "manifest.json"
AUDIT = "audit.jsonl"
FORMAT = 1


class NoBundle(TripstoreError):
    """The file is no bundle of evidence."""


class SealedLineDocument(msgspec.Struct, frozen=True):
    """A line of the audit log in a bundle."""

    entry: int
    at: str
    who: str
    host: str
    action: str
    detail: str
    number: int | None
    seal: str | None


class BundleManifest(msgspec.Struct, frozen=True):
    """What a bundle says of itself."""

    format: int
    datastore: str
    made_at: str
    who: str
    host: str
    #: Of the audit log when it was made.
    head: SealHead
    #: SHA-256 of each file.
    files: dict[str, str]


class ReadBundle(msgspec.Struct, frozen=True):
    """A bundle that was opened: what it says of itself, its audit log, and files that are not as the manifest says."""

    #: SHA-256 of the file itself.
    sha256: str
    manifest: BundleManifest
    lines: list[SealedLine]
    complaints: list[str]


def audit_file(lines: list[SealedLine]) -> bytes:
    documents = (SealedLineDocument(*each.line, each.number, each.seal) for each in lines)
    return b"".join(msgspec.json.encode(each) + b"\n" for each in documents)


def pack(manifest: BundleManifest, files: Mapping[str, bytes]) -> bytes:
    """The bytes of a bundle: the same files make the same bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in {MANIFEST: msgspec.json.format(msgspec.json.encode(manifest)), **files}.items():
            bundle.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def unpack(file: Path) -> ReadBundle:
    """Open a bundle, and hold its files against its manifest."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise NoBundle(f"{file} cannot be read: {error.strerror}.", hint="Name a file that is there.") from error
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as bundle:
            names = bundle.namelist()
            files = {name: bundle.read(name) for name in names}
        manifest = msgspec.json.decode(files[MANIFEST], type=BundleManifest)
        complaints = [*_complaints(manifest, files), *_twice(names)]
        return ReadBundle(digest_of(content), manifest, [*_lines(files.get(AUDIT, b""))], complaints)
    except (zipfile.BadZipFile, zlib.error, KeyError, msgspec.DecodeError, EOFError, RuntimeError) as error:
        hint = "Name one that `tripstore evidence -o FILE` made; where it was one, it is damaged."
        raise NoBundle(f"{file} is no bundle of evidence ({error}).", hint=hint) from error


def bundle_faults(read: ReadBundle) -> list[SealFault]:
    """What was done to the audit log in a bundle since it was made."""
    return [*seal_faults(read.manifest.head, read.lines)]


def log_faults(read: ReadBundle, head: SealHead, lines: list[SealedLine]) -> Iterator[SealFault]:
    """Whether the log of now goes on from that of the bundle, and knows this very file."""
    then = read.manifest.head
    if then.number < head.pruned:
        yield SealFault(None, PRUNED.format(then.number), is_open=True)
        return
    now = {each.number: each.seal for each in lines} | {head.pruned: head.pruned_seal}
    if now.get(then.number) != then.seal:
        yield SealFault(None, OTHER_LOG.format(then.number))
    elif not any(each.line.action == MADE and read.sha256 in each.line.detail for each in lines):
        yield SealFault(None, OTHER_FILE.format(read.sha256))


#: The action of the line that tells of a bundle, with its SHA-256.
MADE = "evidence.bundle"
PRUNED = "number {:,} of the bundle was pruned since, so that the log of now cannot be compared with it"
OTHER_LOG = "the log of now does not go on from the bundle: its number {:,} has another seal, or is gone"
OTHER_FILE = "the log of now has no line of a bundle whose SHA-256 is {}: this is not the file that was made"


def _complaints(manifest: BundleManifest, files: Mapping[str, Any]) -> Iterator[str]:
    if manifest.format != FORMAT:
        yield f"its format is {manifest.format}, and this version reads {FORMAT}"
    for name, digest in manifest.files.items():
        if name not in files:
            yield f"{name} is missing"
        elif digest_of(files[name]) != digest:
            yield f"{name} is not as it was written"
    yield from (f"{name} is not in the manifest" for name in files if name not in manifest.files and name != MANIFEST)


def _twice(names: list[str]) -> Iterator[str]:
    yield from (f"{name} is in it twice" for name in sorted(set(names)) if names.count(name) > 1)


def _lines(content: bytes) -> Iterator[SealedLine]:
    for line in content.splitlines():
        each = msgspec.json.decode(line, type=SealedLineDocument)
        yield SealedLine(
            AuditLine(each.entry, each.at, each.who, each.host, each.action, each.detail), each.number, each.seal
        )
