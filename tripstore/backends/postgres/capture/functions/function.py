"""`Function`: a plpgsql function of ours, with the settings that it carries. What is common to all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tripstore.backends.postgres.capture.names import in_schema, literal
from tripstore.backends.postgres.wire.connections import RENDERING, SIGHT

SEARCH_PATH = {"search_path": RENDERING["search_path"]}
#: For functions that look for a tomb: a scan of all of them, however few they are, makes SERIALIZABLE writers collide.
PINNED = SEARCH_PATH | {"enable_seqscan": "off"}
#: For functions that decide by rows of the company's: one that a policy hides from the owner of the function is not
#: gone.
SEEING = PINNED | SIGHT

#: Types whose text depends on no setting. What is not named here carries all settings.
_STEADY = frozenset(
    {"int2", "int4", "int8", "text", "varchar", "bpchar", "bool", "uuid", "numeric", "json", "jsonb", "enum", "citext"}
)
_UNSTEADY: Mapping[str, tuple[str, ...]] = {
    "timestamptz": ("TimeZone", "DateStyle"),
    "timestamp": ("DateStyle",),
    "date": ("DateStyle",),
    "float4": ("extra_float_digits",),
    "float8": ("extra_float_digits",),
    "bytea": ("bytea_output",),
    "interval": ("IntervalStyle",),
}


def settings_for(types: Iterable[str]) -> dict[str, str]:
    """What a function that renders values of these types must carry; each setting costs time at every call."""
    names: dict[str, None] = {}
    for type_name in types:
        if type_name not in _STEADY:
            names |= dict.fromkeys(_UNSTEADY.get(type_name, tuple(RENDERING)))
    return {name: RENDERING[name] for name in RENDERING if name in names}


@dataclass(frozen=True, slots=True)
class Function:
    """A trigger function. Runs as its owner, since writers have no rights on our tables.

    One that touches no table may run as the writer, without settings, when it names all it uses with its schema.
    """

    name: str
    body: str
    settings: Mapping[str, str]
    as_owner: bool = True
    #: What it returns; any role may call one that is no trigger's.
    returns: str = "trigger"
    #: Names and types, as Postgres itself writes them.
    arguments: str = ""
    #: What an earlier version wrote that recorded the same, beside what `former` knows.
    former_body: str | None = None
    #: An earlier version had none, and refused what it captures.
    is_later: bool = False

    @property
    def sql(self) -> str:
        """Its name and arguments."""
        return f"{in_schema(self.name)}({self.arguments})"

    @property
    def create(self) -> str:
        # What follows SET is a list of names or one text, as the setting wants it.
        settings = " ".join(f"SET {name} = {_value(name, value)}" for name, value in self.settings.items())
        return (
            f"CREATE OR REPLACE FUNCTION {self.sql} RETURNS {self.returns} LANGUAGE plpgsql VOLATILE "
            f"{'SECURITY DEFINER' if self.as_owner else 'SECURITY INVOKER'} {settings} AS {_dollars(self.body)}"
        )

    @property
    def statements(self) -> list[str]:
        statements = [self.create, f"REVOKE ALL ON FUNCTION {self.sql} FROM PUBLIC"]
        return (
            statements
            if self.returns == "trigger"
            else [*statements, f"GRANT EXECUTE ON FUNCTION {self.sql} TO PUBLIC"]
        )


def _value(name: str, value: str) -> str:
    return value if name == "search_path" else literal(value)


def _dollars(body: str) -> str:
    mark = "$capture$"
    while mark in body:
        mark = mark[:-1] + "_$"
    return f"{mark}{body}{mark}"


def refuse(sqlstate: str, message: str, hint: str, *values: str) -> str:
    """The statement that raises; `%` in the message stands for a value each, an expression."""
    given = "".join(f", {value}" for value in values)
    return f"RAISE EXCEPTION {literal(message)}{given} USING ERRCODE = '{sqlstate}', HINT = {literal(hint)};"


def plain(text: str) -> str:
    """A name inside a message: a percent sign is none for a value."""
    return text.replace("%", "%%")
