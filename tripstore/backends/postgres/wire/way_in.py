"""`way_in`: what to look at in a URL when no session of it begins, by what libpq and Postgres say."""

from __future__ import annotations

#: A part of what they say, and what it means. The first that fits holds: libpq names host and port in all of them.
_CAUSES = (
    ("could not translate host name", "No host has this name: check the host"),
    ("Connection refused", "Nothing listens there: check host and port, and that Postgres runs"),
    ("invalid port number", "A port is a number up to 65535: check the port"),
    ("response to SSL negotiation", "What listens there is no Postgres: check the port"),
    ("expected authentication request", "What listens there is no Postgres: check the port"),
    ("timeout expired", "Nothing answered: check host and port, and whether a firewall stands in between"),
    ("timed out", "Nothing answered: check host and port, and whether a firewall stands in between"),
    ("unreachable", "No network leads there: check the host"),
    ("No route to host", "No network leads there: check the host"),
    ("No such file or directory", "No Postgres of this machine has a socket there: check the host, or name one"),
    ("no password supplied", "Postgres asks for a password, and there is none: write user:password@"),
    (
        "password authentication failed",
        "Check user and password; in a password @ is %40, / is %2F, : is %3A and % is %25",
    ),
    ("no pg_hba.conf entry", "pg_hba.conf lets no such user in from here: check user and database, or add a line"),
    ("does not support SSL", "Postgres has no TLS, and sslmode demands it: check sslmode"),
)


def way_in(said: str, key: str) -> str:
    """One sentence on the part of the URL that is wrong; `key` names where the URL stands."""
    if "does not exist" in said:
        part = "user" if 'role "' in said else "database's name, the last part of the URL"
        return f"Check the {part}, in {key}."
    return next((f"{cause}, in {key}." for sign, cause in _CAUSES if sign in said), f"Check {key}.")
