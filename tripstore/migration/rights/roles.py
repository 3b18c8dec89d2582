"""`LoginRole`: whose login it is. `GrantPlace`: what a right is about."""

from __future__ import annotations

from enum import StrEnum


class LoginRole(StrEnum):
    """A login of its own each. None of them is a superuser."""

    SERVICE = "service"  #: A process of the company's that opens the facade.
    WORKER = "worker"  #: `tripstore worker run`, `mirror run`, `triggers run`: what carries, keeps and serves jobs.
    OPERATOR = "operator"  #: The person who runs `schema apply`, jobs and hand-overs; owns our objects in Postgres.
    READER = "reader"  #: A person who reads `report`, `status`, `cutover plan` and cells, and changes nothing.


class GrantPlace(StrEnum):
    """Of Postgres the objects of one kind, or a membership; of MySQL and MariaDB the tables of one kind."""

    DATABASE = "the database"
    SCHEMA = "the schemas of mapped tables"
    OWN_SCHEMA = "schema tripstore"
    OWNER = "the owners of mapped tables"
    OPERATOR = "the operator's role"
    SIGNAL = "pg_signal_backend"
    STATISTICS = "pg_read_all_stats"
    MAPPED = "mapped tables"
    LOOKUP = "looked-up tables"
    SEQUENCE = "sequences of mapped tables"
    OWN = "tables of schema tripstore"
    OWN_SEQUENCE = "sequences of schema tripstore"
    SHARDS = "databases of shards"
    META = "tables of the shards' state"
    CONTROL = "tables of the control database"
    ALL = "all databases of the datastore"
    SERVER = "the server"

    @property
    def is_postgres(self) -> bool:
        return self not in _STORE


_STORE = {GrantPlace.SHARDS, GrantPlace.META, GrantPlace.CONTROL, GrantPlace.ALL, GrantPlace.SERVER}
