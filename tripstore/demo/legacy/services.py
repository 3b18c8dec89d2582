"""`Service`: a program that writes to the database, in which role, and with which settings of the session.

No two services agree about their settings, and none asked: what is captured must not depend on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Service:
    """One of the company's services."""

    name: str  #: Its application_name.
    role: str | None = None  #: The role that it acts as; None: the role that the URL names.
    settings: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def options(self) -> str:
        """The settings as an option of the connection."""
        settings = dict(self.settings) | ({"role": self.role} if self.role else {})
        return " ".join(f"-c {name}={_escaped(value)}" for name, value in settings.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


#: The big one: SQLAlchemy's ORM.
TRIPS_API = Service("trips-api")
#: Scheduled jobs: bulk statements and Core.
CITY_OPS = Service("city-ops", settings={"timezone": "Australia/Lord_Howe", "extra_float_digits": "-15"})
#: Writes raw SQL, sees only what it was granted, and names schemas because it trusts no search path.
BILLING = Service(
    "billing",
    role="svc_billing",
    settings={"timezone": "America/Los_Angeles", "extra_float_digits": "0", "search_path": "pg_catalog"},
)
SUPPORT = Service("support", role="svc_support", settings={"timezone": "Asia/Kolkata", "intervalstyle": "sql_standard"})
#: Batches of trips that come from elsewhere. It does not wait for the disk.
IMPORTER = Service("importer", settings={"synchronous_commit": "off", "bytea_output": "escape", "timezone": "UTC"})
#: Looks things up for the others; changes nothing.
READER = Service("reader")
