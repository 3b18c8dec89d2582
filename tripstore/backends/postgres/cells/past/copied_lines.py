"""`CopiedLines`: what COPY sends, as columns of texts. No more than there is room for."""

from __future__ import annotations


class CopyTooLarge(Exception):
    """COPY sends more than there is room for. The connection is half-way through and of no more use."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size:,} bytes")
        self.bytes = size


class CopiedLines:
    """The file that the driver writes to, one line at a time."""

    def __init__(self, bytes_max: int | None) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        self._lines.append(line)
        self.bytes += len(line)
        if self._bytes_max is not None and self.bytes > self._bytes_max:
            raise CopyTooLarge(self.bytes)

    def __len__(self) -> int:
        return len(self._lines)

    def columns(self) -> list[list[str]]:
        """The texts of each column, still escaped; nothing when there was no row. Can be asked once."""
        if not self._lines:
            return []
        width = self._lines[0].count(b"\t") + 1
        text = b"".join(self._lines).decode()
        self._lines.clear()
        # Every row ends with its line: one list of all values, without one for each row.
        values = text.replace("\n", "\t").split("\t")
        values.pop()
        return [values[place::width] for place in range(width)]
