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
        with zipfile.ZipFile(file) as bundle:
            files = {name: bundle.read(name) for name in bundle.namelist()}
        manifest = msgspec.json.decode(files[MANIFEST], type=BundleManifest)
        complaints = [*_complaints(manifest, files)]
        return ReadBundle(manifest, [*_lines(files.get(AUDIT, b""))], complaints)
    except OSError as error:
        raise NoBundle(f"{file} cannot be read: {error.strerror}.", hint="Name a file that is there.") from error
    except (zipfile.BadZipFile, zlib.error, KeyError, msgspec.DecodeError, EOFError) as error:
        hint = "Name one that `tripstore evidence -o FILE` made; where it was one, it is damaged."
        raise NoBundle(f"{file} is no bundle of evidence ({error}).", hint=hint) from error


def bundle_faults(read: ReadBundle) -> list[SealFault]:
    """What was done to the audit log in a bundle since it was made."""
    return [*seal_faults(read.manifest.head, read.lines)]


def log_fault(read: ReadBundle, head: SealHead, lines: list[SealedLine]) -> SealFault | None:
    """Whether the log of now goes on from that of the bundle; None: it does."""
    then = read.manifest.head
    if then.number == head.pruned:
        return None if then.seal == head.pruned_seal else SealFault(None, _OTHER.format(then.number))
    if then.number < head.pruned:
        return SealFault(None, f"number {then.number:,} of the bundle was pruned since; the log cannot be compared")
    now = {each.number: each.seal for each in lines}
    if now.get(then.number, then.seal if not then.number else None) == then.seal:
        return None
    return SealFault(None, _OTHER.format(then.number))


_OTHER = "the log of now does not go on from the bundle: its number {:,} has another seal, or is gone"


def _complaints(manifest: BundleManifest, files: Mapping[str, Any]) -> Iterator[str]:
    if manifest.format != FORMAT:
        yield f"its format is {manifest.format}, and this version reads {FORMAT}"
    for name, digest in manifest.files.items():
        if name not in files:
            yield f"{name} is missing"
        elif digest_of(files[name]) != digest:
            yield f"{name} is not as it was written"
    yield from (f"{name} is not in the manifest" for name in files if name not in manifest.files and name != MANIFEST)


def _lines(content: bytes) -> Iterator[SealedLine]:
    for line in content.splitlines():
        each = msgspec.json.decode(line, type=SealedLineDocument)
        yield SealedLine(
            AuditLine(each.entry, each.at, each.who, each.host, each.action, each.detail), each.number, each.seal
        )
