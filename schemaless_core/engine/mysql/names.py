"""Names of databases and tables: built here only, from checked parts."""

from __future__ import annotations

from copy import copy
from functools import cached_property

from schemaless_core.engine.bodies import AS_STORED, NO_BODIES, BodyForms
from schemaless_core.engine.index_sql import checked_name
from schemaless_core.engine.leases import LEASE_SECONDS
from schemaless_core.engine.mysql.guard import Guard
from schemaless_core.engine.mysql.remembered import IS_REMEMBERED, REMEMBER

#: Statements kept filled in: some of each kind for 4096 shards.
STATEMENTS_MAX = 32_768
#: And of those that name no shard.
TEMPLATES_MAX = 512


#: Looks at the lease of the server; a packet that writes begins with it, so that all its statements go by one look.
#: SET would wait for the row's lock, which who extends the lease has.
LOOK = "SELECT {leased} INTO @tripstore_leased"
#: Fails where a server refuses writes; MariaDB lets superusers write there all the same. Under a lock that a fence
#: waits for: what began before is done by then, and what begins later is refused.
MAY_WRITE = """\
BEGIN NOT ATOMIC DECLARE held INT; SELECT one INTO held FROM {meta}.datastore WHERE one = 1 LOCK IN SHARE MODE;
 IF @@GLOBAL.read_only THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'read_only'; END IF; END"""
#: The fence waits for all of these.
ALL_DONE = "SELECT one FROM {meta}.datastore WHERE one = 1 FOR UPDATE"
# One that would last longer is of a clock that was ahead.
_IS_LEASED = """\
EXISTS (SELECT 1 FROM {lease} WHERE server = @@server_id AND lasts_until > UTC_TIMESTAMP(6)
 AND lasts_until <= UTC_TIMESTAMP(6) + INTERVAL {microseconds} MICROSECOND)"""

_STATUS = "IF({leased} OR state IN ('RO', 'GOING', 'COMES', 'MOVED'), state, 'UNLEASED')"


class Names:
    """The databases of one datastore on one server.

    `is_leased`: the server takes writes only as long as it has a lease. Without one its shards are UNLEASED.
    """

    def __init__(self, datastore: str, *, is_leased: bool = False, bodies: BodyForms = NO_BODIES) -> None:
        #: Checked by the configuration: lower-case letters, digits and _.
        self.datastore = datastore
        #: Whether the server has a lease now.
        self.leased = leased = _IS_LEASED.format(lease=self.lease, microseconds=int(LEASE_SECONDS * 1e6))
        #: What a packet that writes begins with, and what its conditions end with.
        self.look = f"{LOOK.format(leased=leased)}; " if is_leased else ""
        self.held = " AND @tripstore_leased" if is_leased else ""
        #: The same of a condition that looks by itself.
        self.leased_now = f" AND {leased}" if is_leased else ""
        #: The state of a shard: for a read, and under such a look.
        self.status = _STATUS.format(leased=leased) if is_leased else "state"
        self.status_held = _STATUS.format(leased="@tripstore_leased") if is_leased else "state"
        #: The look and the condition of a call that goes by what its session remembers: it looks if that was long ago.
        self.remember = REMEMBER.format(lease=self.lease, leased=leased) if is_leased else ""
        self.remembered = f" AND {IS_REMEMBERED}" if is_leased else ""
        self.guard = Guard(datastore)
        #: How the server keeps bodies.
        self.bodies = bodies
        self._filled: dict[tuple[str, int], str] = {}
        self._filled_once: dict[str, str] = {}

    @cached_property
    def as_stored(self) -> Names:
        """The same for reads of bodies as they are stored."""
        found = copy(self)
        found.bodies = AS_STORED
        return found

    @property
    def may_write(self) -> bytes:
        return MAY_WRITE.format(meta=self.meta).encode()

    @property
    def is_leased(self) -> bool:
        return bool(self.look)

    @property
    def lease(self) -> str:
        return f"{self.meta}.lease"

    @property
    def promise(self) -> str:
        return f"{self.meta}.promise"

    @property
    def meta(self) -> str:
        return f"`{self.datastore}_meta`"

    @property
    def shard_state(self) -> str:
        return f"{self.meta}.shard_state"

    @property
    def shard_epoch(self) -> str:
        return f"{self.meta}.shard_epoch"

    @property
    def shard_authority(self) -> str:
        return f"{self.meta}.shard_authority"

    @property
    def index_error(self) -> str:
        return f"{self.meta}.index_error"

    @property
    def trigger_offset(self) -> str:
        return f"{self.meta}.trigger_offset"

    @property
    def purged(self) -> str:
        return f"{self.meta}.purged"

    @property
    def purged_key(self) -> str:
        return f"{self.meta}.purged_key"

    @property
    def mended(self) -> str:
        return f"{self.meta}.mended"

    @property
    def document(self) -> str:
        return f"{self.meta}.document"

    def database(self, shard: int) -> str:
        return f"`{self.datastore}_{shard:04d}`"

    def cell(self, shard: int) -> str:
        return f"{self.database(shard)}.cell"

    def index(self, shard: int, table_name: str) -> str:
        """The table of an index version in a shard."""
        return f"{self.database(shard)}.`{checked_name(table_name)}`"

    def meta_sql(self, template: str) -> str:
        """A statement with the tables that a server has once filled in; its values stay to be bound."""
        filled = self._filled_once.get(template)
        if filled is None:
            filled = self._with_tables(template)
            if len(self._filled_once) < TEMPLATES_MAX:
                self._filled_once[template] = filled
        return filled

    def _with_tables(self, template: str) -> str:
        return template.format(
            state=self.shard_state,
            authority=self.shard_authority,
            history=self.shard_epoch,
            primacy=f"{self.meta}.primacy",
            offset=self.trigger_offset,
            purged=self.purged,
            purged_key=self.purged_key,
            buffered=f"{self.meta}.buffered",
            second=f"{self.meta}.second_copy",
            conflict=f"{self.meta}.buffer_conflict",
            mended=self.mended,
            parked=f"{self.meta}.trigger_parked",
            call=f"{self.meta}.trigger_call",
            index_error=self.index_error,
            lease=self.lease,
            leased=self.leased,
            promise=self.promise,
            status_held=self.status_held,
        )

    def sql(self, template: str, shard: int) -> str:
        """A statement with the tables of a shard filled in; its values stay to be bound."""
        filled = self._filled.get((template, shard))
        if filled is None:
            filled = template.format(
                cell=self.cell(shard),
                state=self.shard_state,
                history=self.shard_epoch,
                purged_key=self.purged_key,
                status=self.status,
                remembered=self.remembered,
            )
            if len(self._filled) < STATEMENTS_MAX:
                self._filled[template, shard] = filled
        return filled
