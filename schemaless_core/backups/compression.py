"""zstd, imported when it is needed: services that make no backup install none."""

from __future__ import annotations

from schemaless_core.errors import InvalidRequest

#: What zstd does by itself, too: more costs time, and saves little of JSON.
LEVEL = 3


def compressed(data: bytes) -> bytes:
    """A frame with a checksum of its own."""
    _require()
    from zstandard import ZstdCompressor

    return ZstdCompressor(level=LEVEL, write_checksum=True).compress(data)


def decompressed(frame: bytes) -> bytes:
    """Return what was compressed; `ValueError`: it is no such frame."""
    _require()
    from zstandard import ZstdDecompressor, ZstdError

    try:
        return ZstdDecompressor().decompress(frame)
    except ZstdError as problem:
        raise ValueError(str(problem)) from problem


def _require() -> None:
    try:
        import zstandard  # noqa: F401  # whether it is there
    except ImportError:
        hint = "Install it: pip install 'tripstore[backup]'."
        raise InvalidRequest("Backups need zstandard, which is not installed.", hint=hint) from None
