"""What a value of a body is as text of Postgres, and back: one class per field type.

The text is what `column::text` gives under `connections.RENDERING`, and what a cast to the column's type takes. A class
takes exactly those values that come back the same: whatever would be rounded, padded or written in another way is
refused with `Refused`. Reasons never hold the value, since they are logged.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Mapping

from schemaless_core import Json
from tripstore.backends.postgres.codec.arrays import Array
from tripstore.backends.postgres.codec.moments import Date, Datetime
from tripstore.backends.postgres.codec.nested import NestedDocument
from tripstore.backends.postgres.codec.refused import Refused, other_type
from tripstore.backends.postgres.codec.value import Value
from tripstore.backends.postgres.layout.layout import Field, FieldType

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
#: What no JSON number can be; strings in bodies, of floats and decimals alike.
NOT_FINITE = ("NaN", "Infinity", "-Infinity")

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_MINUS_ZERO = re.compile(r"-0(?:\.0+)?").fullmatch
_DECIMAL = re.compile(r"(?!-0(?:\.0+)?\Z)-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?").fullmatch


class Uuid:
    """In bodies as Postgres writes it: small letters, hyphens."""

    def read(self, text: str) -> Json:
        if _UUID(text) is None:
            raise Refused("it is no UUID")
        return text

    def write(self, value: Json) -> str:
        if type(value) is not str:
            raise other_type(value, "a string")
        if _UUID(value) is None:
            raise Refused("it is not written as UUIDs are here: small letters and hyphens")
        return value


class String:
    """Any text but one with the character 0; also the text of whatever has no type of its own here.

    The blanks that `char(n)` pads with are no part of it.
    """

    def read(self, text: str) -> Json:
        return text

    def write(self, value: Json) -> str:
        if type(value) is not str:
            raise other_type(value, "a string")
        if "\0" in value:
            raise Refused("Postgres keeps no character 0 in text")
        return value


class Int:
    """64 bits with a sign."""

    def read(self, text: str) -> Json:
        try:
            number = int(text)
        except ValueError:
            raise Refused("it is no integer") from None
        if str(number) != text or not INT_MIN <= number <= INT_MAX:  # int() takes "1_000" and " 7" too
            raise Refused("it is no integer of 64 bits")
        return number

    def write(self, value: Json) -> str:
        if type(value) is not int:
            raise other_type(value, "an integer")
        if not INT_MIN <= value <= INT_MAX:
            raise Refused("it does not fit into 64 bits with a sign")
        return str(value)


class Float:
    """64 bits; what is not finite is a string. A body's integer is none: it would come back as a float."""

    def read(self, text: str) -> Json:
        try:
            number = float(text)
        except ValueError:
            raise Refused("it is no floating-point number") from None
        if number - number == 0.0:
            return number
        if text not in NOT_FINITE:
            raise Refused("it is beyond what 64 bits hold")
        return text

    def write(self, value: Json) -> str:
        if type(value) is float:
            return repr(value)
        if type(value) is not str:
            raise other_type(value, "a float")
        if value not in NOT_FINITE:
            raise Refused("it is a string, but none of NaN, Infinity, -Infinity")
        return value


class Decimal:
    """The digits as text: 1.10 and 1.1 differ. No exponent, no plus, no negative zero: Postgres keeps none of them."""

    def read(self, text: str) -> Json:
        if _DECIMAL(text) is None and text not in NOT_FINITE:
            raise Refused("it is no decimal number")
        return text

    def write(self, value: Json) -> str:
        if type(value) is not str:
            raise other_type(value, "a decimal number as a string")
        if _MINUS_ZERO(value) is not None:
            raise Refused("decimals have no negative zero")
        if _DECIMAL(value) is None and value not in NOT_FINITE:
            raise Refused('it is not written as decimals are here, like "-12.50"')
        return value


class Boolean:
    _READ: Mapping[str, bool] = {"true": True, "false": False, "t": True, "f": False}  # short within arrays

    def read(self, text: str) -> Json:
        try:
            return self._READ[text]
        except KeyError:
            raise Refused("it is no boolean") from None

    def write(self, value: Json) -> str:
        if type(value) is not bool:
            raise other_type(value, "a boolean")
        return "true" if value else "false"


class Bytes:
    """Base64 in bodies, with its padding."""

    def read(self, text: str) -> Json:
        if not text.startswith("\\x"):
            raise Refused("it is not written in hexadecimal digits")
        try:
            data = bytes.fromhex(text[2:])
        except ValueError:
            raise Refused("it is not written in hexadecimal digits") from None
        return binascii.b2a_base64(data, newline=False).decode()

    def write(self, value: Json) -> str:
        if type(value) is not str:
            raise other_type(value, "base64 text")
        try:
            data = b64decode(value, validate=True)
        except ValueError:
            raise Refused("it is no base64") from None
        # Of several texts for the same bytes only one comes back: bits beyond the last byte are 0 in it.
        if binascii.b2a_base64(data, newline=False).decode() != value:
            raise Refused("it is not written as base64 is here")
        return "\\x" + data.hex()


_VALUES: Mapping[FieldType, Callable[[], Value]] = {
    FieldType.UUID: Uuid,
    FieldType.STRING: String,
    FieldType.INT: Int,
    FieldType.FLOAT: Float,
    FieldType.DECIMAL: Decimal,
    FieldType.BOOLEAN: Boolean,
    FieldType.DATETIME: Datetime,
    FieldType.DATE: Date,
    FieldType.BYTES: Bytes,
    FieldType.JSON: NestedDocument,
}


def value_of(field: Field) -> Value:
    """The value of a field; what its lookup pairs it with is the codec's business."""
    if field.kind is not FieldType.ARRAY:
        return _VALUES[field.kind]()
    items = field.items or FieldType.STRING
    return Array(_VALUES[items](), is_nested=items is not FieldType.JSON)
