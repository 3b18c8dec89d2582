"""`Frames`: bodies and frames of zstd, by one dictionary. zstandard is imported when it is needed."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from schemaless_core.engine.dictionaries import Dictionary
from schemaless_core.errors import InvalidRequest

if TYPE_CHECKING:
    from zstandard import ZstdCompressor, ZstdDecompressor

T = TypeVar("T")

#: Of one process: each keeps what zstd derives from a dictionary.
FRAMES_MAX = 256


class Frames:
    """What compresses with one dictionary, and reads what was. Threads share it; zstd's own contexts serve one each."""

    def __init__(self, dictionary: Dictionary, level: int) -> None:
        require_zstandard()
        from zstandard import FORMAT_ZSTD1_MAGICLESS, ZstdCompressionDict, ZstdCompressionParameters

        self.dictionary = dictionary
        self._format = FORMAT_ZSTD1_MAGICLESS
        self._data = ZstdCompressionDict(dictionary.data)
        self._parameters = ZstdCompressionParameters.from_level(
            level, format=self._format, write_content_size=1, write_checksum=1, write_dict_id=0
        )
        self._data.precompute_compress(compression_params=self._parameters)
        # Idle ones. Taking and giving back are one step of the interpreter each: no lock, and a fork inherits them.
        self._compressors: list[ZstdCompressor] = []
        self._decompressors: list[ZstdDecompressor] = []

    def compressed(self, body: bytes) -> bytes:
        """A frame without its magic number: the mark before it says what it is."""
        from zstandard import ZstdCompressor

        context = _idle(self._compressors) or ZstdCompressor(dict_data=self._data, compression_params=self._parameters)
        frame = context.compress(body)
        self._compressors.append(context)
        return frame

    def plain(self, frame: memoryview) -> bytes | None:
        """None: it is no frame of this dictionary, or its bytes are damaged."""
        from zstandard import ZstdDecompressor, ZstdError

        context = _idle(self._decompressors) or ZstdDecompressor(dict_data=self._data, format=self._format)
        try:
            body = context.decompress(frame)
        except (ZstdError, MemoryError):  # a damaged head may ask for any number of bytes
            return None
        self._decompressors.append(context)
        return body


@lru_cache(maxsize=FRAMES_MAX)
def frames_of(dictionary: Dictionary, level: int) -> Frames:
    """Servers of a process that have the same dictionary share what is made of it."""
    return Frames(dictionary, level)


def require_zstandard() -> None:
    """`InvalidRequest` where it is not installed."""
    try:
        import zstandard  # noqa: F401  # whether it is there
    except ImportError:
        hint = "Install it: pip install 'tripstore[compress]'."
        raise InvalidRequest("Compressed bodies need zstandard, which is not installed.", hint=hint) from None


def _idle(contexts: list[T]) -> T | None:
    try:
        return contexts.pop()
    except IndexError:
        return None
