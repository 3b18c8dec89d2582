"""Answers of a MySQL or MariaDB server as they are taken apart: less of their columns than PyMySQL does, and sooner."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from pymysql.connections import MySQLResult
from pymysql.constants import SERVER_STATUS
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket

#: What ends a column's packet: charset, length, type, flags, decimals, and two bytes of nothing.
_TYPE = struct.Struct("<HIBHBxx")
_NO_DESCRIPTION = (None,) * 7
#: What stands before a value when it is not its length: nothing follows, or a length of so many bytes.
_NULL = 251
_WIDTHS = {252: 2, 253: 3, 254: 8}
#: Before each packet stand its length and its number. One that begins with such a byte is an error, the end of the
#: rows, or a row whose first value is longer than a packet.
_HEAD = 4
_NO_ROW = 254
#: An answer without rows; and of one with rows, what comes behind the columns and behind the rows.
_OK = 0
_END, _END_SIZE = 254, 5
_STATUS = struct.Struct("<HH")
_ONE_BYTE = b"\1\0\0"
#: How many kinds of columns are remembered; our statements have some thirty.
_KINDS_MAX = 512
#: What a row has beside its body: ids, key, name and time.
ROW_OVERHEAD_BYTES = 256


#: How the values of a column are decoded, and what they become.
Converter: TypeAlias = tuple[str | None, Callable[[Any], Any] | None]
#: Of rows that are one value each, which stays as it is: a good part of what is read by the million.
_ONE_OF_BYTES: list[Converter] = [(None, None)]
#: By whether texts are decoded, and the bytes that say of which kind a column is. All our connections have the same
#: decoders.
_kinds: dict[tuple[bool, bytes], Converter] = {}


class AnswerColumn(FieldDescriptorPacket):
    """A column of an answer: of what type it is, which the server says last. What it is called is read when asked for.

    To read the names of an answer's columns takes longer than to read a cell.
    """

    def _parse_field_descriptor(self, encoding: str) -> None:
        at = len(self._data) - _TYPE.size
        self.charsetnr, self.length, self.type_code, self.flags, self.scale = _TYPE.unpack_from(self._data, at)

    def description(self) -> tuple[None, ...]:
        """Made for every answer: without names, which `fields` tell to a cursor that needs them."""
        return _NO_DESCRIPTION

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "name" in self.__dict__:
            raise AttributeError(name)
        super()._parse_field_descriptor("utf-8")  # type: ignore[misc]  # the stubs leave it out
        return getattr(self, name)


class WireAnswer(MySQLResult):
    """An answer that is taken apart here as far as it has come: PyMySQL calls six functions for each packet of it.

    Packets that are whole, and what is expected, are taken. Whatever else comes next is left to PyMySQL, and so is
    trouble.
    """

    connection: Any  # a DeadlineConnection, and None when all is read
    message: Any
    has_next: Any
    affected_rows: Any
    insert_id: Any
    converters: list[Converter]
    #: The packets that say what its columns are, unless PyMySQL has read them.
    _definitions: bytes = b""
    _fields: list[FieldDescriptorPacket] | None = None

    def read(self) -> None:
        data = _come(self.connection)
        if self._take_ok(data):
            self.connection = None
        elif self._take_columns(data):
            try:
                self._read_rowdata_packet()
            finally:
                self.connection = None
        else:
            super().read()

    @property
    def fields(self) -> list[FieldDescriptorPacket]:
        """What the columns are called: read when asked for."""
        if self._fields is None:
            self._fields = [AnswerColumn(each, "utf-8") for each in _packets(self._definitions)]
        return self._fields

    @fields.setter
    def fields(self, found: list[FieldDescriptorPacket]) -> None:
        self._fields = found

    def _take_ok(self, data: bytes) -> bool:
        """An answer that has no rows: one packet."""
        if len(data) <= _HEAD or data[_HEAD] != _OK:
            return False
        end = _HEAD + int.from_bytes(data[:3], "little")
        if end > len(data) or data[3] != self.connection._next_seq_id:
            return False
        self.affected_rows, at = _number(data, _HEAD + 1)
        self.insert_id, at = _number(data, at)
        self.server_status, self.warning_count = _STATUS.unpack_from(data, at)
        self.message = data[at + _STATUS.size : end]
        self.has_next = self.server_status & SERVER_STATUS.SERVER_MORE_RESULTS_EXISTS
        _taken(self.connection, end, data[3] + 1)
        return True

    def _take_columns(self, data: bytes) -> bool:
        """The number of columns, and of what kind each is, if an answer before had columns of these kinds."""
        connection = self.connection
        number = connection._next_seq_id
        if len(data) <= _HEAD or data[:3] != _ONE_BYTE or data[3] != number or not _OK < data[_HEAD] < _NULL:
            return False
        count, first, converters = data[_HEAD], _HEAD + 1, []
        at = first
        for _ in range(count):
            number = (number + 1) % 256
            end = at + _HEAD + int.from_bytes(data[at : at + 3], "little")
            kind = _kinds.get((connection.use_unicode, data[end - _TYPE.size : end]))
            if kind is None or end > len(data) or data[at + 3] != number or data[at + _HEAD] >= _NO_ROW:
                return False
            converters.append(kind)
            at = end
        number = (number + 1) % 256
        end = at + _HEAD + _END_SIZE
        if data[at : at + _HEAD + 1] != bytes((_END_SIZE, 0, 0, number, _END)) or end > len(data):
            return False
        self.field_count, self.converters, self._definitions = count, converters, data[first:at]
        self.description = (_NO_DESCRIPTION,) * count
        _taken(connection, end, number + 1)
        return True

    def _get_descriptions(self) -> None:
        """PyMySQL reads the columns; what becomes of the values of each kind is remembered."""
        super()._get_descriptions()  # type: ignore[misc]  # the stubs leave it out
        if len(_kinds) > _KINDS_MAX:
            _kinds.clear()
        for column, converter in zip(self.fields, self.converters, strict=True):
            _kinds[self.connection.use_unicode, column._data[-_TYPE.size :]] = converter  # type: ignore[attr-defined]  # the stubs leave it out

    def _read_rowdata_packet(self) -> None:
        rows: list[tuple[Any, ...]] = []
        connection = self.connection
        while not self._take_rows(connection, rows):
            packet = connection._read_packet()
            if self._check_packet_is_eof(packet):  # type: ignore[attr-defined]  # the stubs leave it out
                break
            rows.append(self._row(packet._data))
        self.connection = None
        self.affected_rows = len(rows)
        self.rows = tuple(rows)

    def _take_rows(self, connection: Any, rows: list[tuple[Any, ...]]) -> bool:
        """The rows that have come; whether their end has come, too."""
        data = _come(connection)
        at, number, is_end = 0, connection._next_seq_id, False
        is_of_one = self.converters == _ONE_OF_BYTES
        while connection.row_bytes_left > 0 and at + _HEAD < len(data) and not is_end:
            length = int.from_bytes(data[at : at + 3], "little")
            begin, end = at + _HEAD, at + _HEAD + length
            if end > len(data) or data[at + 3] != number or not length:
                break
            if is_of_one and data[begin] == length - 1 < _NULL:
                rows.append((data[begin + 1 : end],))
                connection.row_bytes_left -= max(0, length - ROW_OVERHEAD_BYTES)
            elif data[begin] < _NO_ROW:
                rows.append(self._row(data[begin:end]))
                connection.row_bytes_left -= max(0, length - ROW_OVERHEAD_BYTES)
            elif data[begin] == _END and length == _END_SIZE:
                self.warning_count, status = _STATUS.unpack_from(data, begin + 1)
                self.has_next, is_end = status & SERVER_STATUS.SERVER_MORE_RESULTS_EXISTS, True
            else:
                break
            at, number = end, (number + 1) % 256
        _taken(connection, at, number)
        return is_end

    def _read_row_from_packet(self, packet: MysqlPacket) -> tuple[Any, ...]:
        return self._row(packet._data)  # type: ignore[attr-defined]  # the stubs leave it out

    def _row(self, data: bytes) -> tuple[Any, ...]:
        at, end = 0, len(data)
        row: list[Any] = []
        for encoding, converter in self.converters:
            if at == end:
                break  # there are no more columns
            length = data[at]
            at += 1
            if length == _NULL:
                row.append(None)
                continue
            if length > _NULL:
                width = _WIDTHS.get(length, end)
                length = int.from_bytes(data[at : at + width], "little")
                at += width
            begin, at = at, at + length
            if at > end:  # it is torn, and PyMySQL says so
                found: tuple[Any, ...] = super()._read_row_from_packet(MysqlPacket(data, "utf8mb4"))  # type: ignore[misc]  # the stubs leave it out
                return found
            value: Any = data[begin:at] if encoding is None else data[begin:at].decode(encoding)
            row.append(value if converter is None else converter(value))
        return tuple(row)


def read_answers(connection: Any) -> list[WireAnswer]:
    """The answer to each statement of the packet that was sent last."""
    found: list[WireAnswer] = []
    while not found or found[-1].has_next:
        answer = WireAnswer(connection)
        answer.read()
        found.append(answer)
    return found


def _come(connection: Any) -> bytes:
    """What of the answer has come. When that is nothing, it is waited for: more is sure to come."""
    try:
        found: bytes = connection._rfile.peek()
    except OSError:  # the next read says so, too
        return b""
    return found


def _taken(connection: Any, end: int, number: int) -> None:
    """Pass over what was taken; the next packet has this number."""
    connection._rfile.read(end)
    connection._next_seq_id = number % 256


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number as the protocol writes it, and where the next value begins."""
    first = data[at]
    if first < _NULL:
        return first, at + 1
    end = at + 1 + _WIDTHS[first]
    return int.from_bytes(data[at + 1 : end], "little"), end


def _packets(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        begin = at + _HEAD
        at = begin + int.from_bytes(data[at : at + 3], "little")
        yield data[begin:at]
