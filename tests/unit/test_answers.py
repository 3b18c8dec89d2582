"""An answer is taken apart as PyMySQL does it, value by value, however its bytes come."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysql.connections import MySQLResult
from pymysql.constants import FIELD_TYPE, SERVER_STATUS
from pymysql.err import InternalError, OperationalError
from pymysql.protocol import MysqlPacket

from schemaless_core.engine.mysql.wire.answers import WireAnswer
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection

#: How columns are read: as bytes, as text, as text that becomes a number.
CONVERTERS: list[tuple[str | None, Any]] = [(None, None), ("utf-8", None), ("ascii", int)]
numbers = st.integers(-(2**63), 2**63 - 1).map(lambda number: str(number).encode())
texts = st.text(st.characters(codec="utf-8"), max_size=20).map(str.encode)
rows = st.tuples(st.none() | st.binary(max_size=300), st.none() | texts, st.none() | numbers)


def packed(values: tuple[bytes | None, ...]) -> bytes:
    return b"".join(b"\xfb" if value is None else length_of(value) + value for value in values)


def length_of(value: bytes) -> bytes:
    size = len(value)
    if size < 251:
        return bytes([size])
    prefix, width = next(each for each in ((252, 2), (253, 3), (254, 8)) if size < 256 ** each[1])
    return bytes([prefix]) + size.to_bytes(width, "little")


def read(kind: type[MySQLResult], data: bytes) -> Any:
    answer = kind.__new__(kind)
    answer.connection = None
    answer.unbuffered_active = False
    answer.converters = CONVERTERS  # type: ignore[attr-defined]  # the stubs leave it out
    return answer._read_row_from_packet(MysqlPacket(data, "utf8mb4"))  # type: ignore[attr-defined]  # the stubs leave it out


@given(values=rows)
def test_a_row_is_what_pymysql_reads(values: tuple[bytes | None, ...]) -> None:
    found = read(WireAnswer, packed(values))

    assert found == read(MySQLResult, packed(values))
    assert found[0] == values[0]


@pytest.mark.parametrize("size", [0, 250, 251, 252, 65_535, 65_536, 2**24 - 1, 2**24])
def test_a_value_of_any_length_is_whole(size: int) -> None:
    values = (b"\xfb" * size, b"text", b"7")

    assert read(WireAnswer, packed(values)) == (values[0], "text", 7)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_row_that_ends_early_is_as_short_as_pymysqls(count: int) -> None:
    data = packed((b"a", b"b", b"7")[:count])

    assert read(WireAnswer, data) == read(MySQLResult, data)
    assert len(read(WireAnswer, data)) == count


@pytest.mark.parametrize("data", [b"\x05abc", b"\xfc\xff\xff", b"\x01a\xfd\x01", b"\xff"])
def test_a_torn_row_is_read_by_pymysql_and_ends_as_there(data: bytes) -> None:
    endings = []
    for kind in (WireAnswer, MySQLResult):
        try:
            endings.append(repr(read(kind, data)))
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the same
            endings.append(type(error).__name__)

    assert endings[0] == endings[1]


# ------------------------------------------------------------------------------------------- many rows


class _Socket(io.RawIOBase):
    """Brings bytes in pieces of these sizes, then all that is left; and an error in place of a piece that is None."""

    def __init__(self, data: bytes, pieces: Sequence[int | None]) -> None:
        self._data = data
        self._pieces = list(pieces)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._pieces.pop(0) if self._pieces else len(self._data)
        if size is None:
            raise TimeoutError("the deadline has passed")
        piece, self._data = self._data[: min(size, len(buffer))], self._data[min(size, len(buffer)) :]
        buffer[: len(piece)] = piece
        return len(piece)


def connected(packets: Sequence[bytes], pieces: Sequence[int | None] = (), *, first: int = 0) -> DeadlineConnection:
    """A connection to which a server sends these packets, numbered from this number."""
    data = b"".join(
        len(packet).to_bytes(3, "little") + bytes([(first + n) % 256]) + packet for n, packet in enumerate(packets)
    )
    connection = DeadlineConnection(defer_connect=True)
    connection._rfile = io.BufferedReader(_Socket(data, pieces), 512)
    connection._next_seq_id = first % 256  # type: ignore[attr-defined]  # the stubs leave it out
    connection._read_timeout = connection._current_timeout = 1.0
    return connection


def read_all(kind: type[MySQLResult], connection: DeadlineConnection) -> Any:
    """The rows of an answer, and how the connection stands then."""
    answer = kind.__new__(kind)
    answer.connection = connection
    answer.converters = CONVERTERS  # type: ignore[attr-defined]  # the stubs leave it out
    answer.unbuffered_active = False
    answer._read_rowdata_packet()  # type: ignore[attr-defined]  # the stubs leave it out
    place = (connection._next_seq_id, connection.is_cut, connection.row_bytes_left)  # type: ignore[attr-defined]  # the stubs leave it out
    return answer.rows, answer.affected_rows, place, connection._rfile.read(3)


EOF = b"\xfe\0\0\x02\0"
BEHIND = b"\x01\x02\x03"


@given(
    some=st.lists(rows, max_size=40),
    pieces=st.lists(st.integers(1, 400), max_size=30),
    first=st.integers(0, 255),
    room=st.just(math.inf) | st.integers(1, 600),
)
def test_many_rows_are_what_pymysql_reads_however_their_bytes_come(
    some: list[tuple[bytes | None, ...]], pieces: list[int], first: int, room: float
) -> None:
    packets = [*map(packed, some), EOF, BEHIND]
    read_by = []
    for kind in (WireAnswer, MySQLResult):
        connection = connected(packets, pieces, first=first)
        connection.row_bytes_left = room
        read_by.append(read_all(kind, connection))

    assert read_by[0] == read_by[1]
    if math.isinf(room):
        assert len(read_by[0][0]) == len(some)


MANY: list[bytes] = [packed((b"key", b"text", b"7"))] * 5
ERROR = b"\xff\x15\x04#28000denied"


def test_an_error_among_rows_is_raised() -> None:
    with pytest.raises(OperationalError, match="denied"):
        read_all(WireAnswer, connected([*MANY, ERROR]))


def test_a_row_with_a_number_out_of_turn_is_refused() -> None:
    connection = connected([*MANY, EOF])
    data = bytearray(connection._rfile.read())
    data[(len(MANY[0]) + 4) * 3 + 3] = 9
    connection._rfile = io.BufferedReader(_Socket(bytes(data), ()))

    with pytest.raises(InternalError, match="sequence number"):
        read_all(WireAnswer, connection)


def test_a_deadline_that_passes_among_rows_ends_the_call() -> None:
    size = (len(MANY[0]) + 4) * 3
    with pytest.raises(OperationalError, match="deadline"):
        read_all(WireAnswer, connected([*MANY, EOF], [size, None, None, None]))


def test_a_server_that_goes_among_rows_is_lost() -> None:
    with pytest.raises(OperationalError, match="Lost connection"):
        read_all(WireAnswer, connected(MANY))


# ------------------------------------------------------------------------------------------- whole answers


def column(name: bytes, kind: int, charset: int) -> bytes:
    names = b"".join(length_of(each) + each for each in (b"def", b"trips_0001", b"c", b"cell", name, name))
    return names + struct.pack("<BHIBHBxx", 12, charset, 255, kind, 0, 0)


COLUMNS = [
    column(b"row_key", FIELD_TYPE.STRING, 63),
    column(b"name", FIELD_TYPE.VAR_STRING, 45),
    column(b"n", FIELD_TYPE.LONGLONG, 63),
]
HAS_MORE = SERVER_STATUS.SERVER_MORE_RESULTS_EXISTS
counts = st.sampled_from([0, 1, 250, 251, 2**16, 2**24, 2**63])


def ended(status: int) -> bytes:
    return struct.pack("<BHH", 254, 3, status)


def of_no_rows(changed: int, number: int, status: int, message: bytes) -> list[bytes]:
    return [b"\0" + counted(changed) + counted(number) + struct.pack("<HH", status, 1) + message]


def of_rows(some: list[tuple[bytes | None, ...]], status: int) -> list[bytes]:
    return [bytes([len(COLUMNS)]), *COLUMNS, ended(0), *map(packed, some), ended(status)]


def counted(value: int) -> bytes:
    """A number as the protocol writes it."""
    if value < 251:
        return bytes([value])
    prefix, width = next(each for each in ((252, 2), (253, 3), (254, 8)) if value < 256 ** each[1])
    return bytes([prefix]) + value.to_bytes(width, "little")


statuses = st.sampled_from([2, 2 | HAS_MORE])
wholes = st.one_of(
    st.builds(of_no_rows, counts, counts, statuses, st.binary(max_size=20)),
    st.builds(of_rows, st.lists(rows, max_size=10), statuses),
)


def whole(kind: type[MySQLResult], connection: DeadlineConnection) -> Any:
    """What an answer says, and how the connection stands then; or what error it ends in."""
    answer = kind(connection)
    try:
        answer.read()
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the same
        return type(error), str(error)
    its = (answer.rows, answer.affected_rows, answer.insert_id, answer.has_next, answer.warning_count, answer.message)
    columns: Any = answer.fields if answer.rows is not None else []  # type: ignore[attr-defined]  # the stubs leave it out
    names = [column.name for column in columns]
    place = (connection._next_seq_id, connection.is_cut, connection.row_bytes_left)  # type: ignore[attr-defined]  # the stubs leave it out
    return its, answer.server_status, names, place, connection._rfile.read(3)


@given(
    packets=wholes,
    pieces=st.lists(st.integers(1, 400), max_size=12),
    first=st.integers(0, 255),
    is_text=st.booleans(),
    lost=st.none() | st.integers(0, 400),
)
def test_a_whole_answer_is_what_pymysql_reads_however_its_bytes_come(
    packets: list[bytes], pieces: list[int], first: int, is_text: bool, lost: int | None
) -> None:
    """Also where the connection ends within it. Twice: the second time the kinds of its columns are known."""
    for _ in range(2):
        read_by = []
        for kind in (WireAnswer, MySQLResult):
            connection = connected([*packets, BEHIND], pieces, first=first)
            connection.use_unicode = is_text
            if lost is not None:
                data = connection._rfile.read()
                connection._rfile = io.BufferedReader(_Socket(data[:lost], pieces), 512)
            read_by.append(whole(kind, connection))

        assert read_by[0] == read_by[1]
        assert lost is not None or read_by[0][-1] == (len(BEHIND)).to_bytes(3, "little")


@pytest.mark.parametrize("packets", [of_no_rows(1, 300, 2, b""), of_rows([(b"key", b"text", b"7")], 2)])
def test_a_whole_answer_may_be_cut_at_any_byte(packets: list[bytes]) -> None:
    """What has come is 3 bytes of a head, or all but one of a packet; the rest comes later."""
    read_by = whole(WireAnswer, connected(packets))
    for size in range(1, sum(len(packet) + 4 for packet in packets)):
        assert whole(WireAnswer, connected(packets, [size])) == read_by
        assert whole(MySQLResult, connected(packets, [size])) == read_by


@pytest.mark.parametrize("at", range(len(COLUMNS) + 2))
def test_an_error_in_the_place_of_any_packet_is_raised(at: int) -> None:
    packets = of_rows([(b"key", b"text", b"7")], 2)
    packets[at] = ERROR

    with pytest.raises(OperationalError, match="denied"):
        WireAnswer(connected(packets)).read()


def test_packets_out_of_turn_are_refused_wherever_they_come() -> None:
    packets = of_rows([(b"key", b"text", b"7")], 2)
    whole(WireAnswer, connected(packets))  # the kinds of its columns are known from now on
    places = [sum(len(packet) + 4 for packet in packets[:n]) for n in range(len(packets))]
    for place in places:
        connection = connected(packets)
        data = bytearray(connection._rfile.read())
        data[place + 3] = 99
        connection._rfile = io.BufferedReader(_Socket(bytes(data), ()))

        with pytest.raises(InternalError, match="sequence number"):
            WireAnswer(connection).read()
