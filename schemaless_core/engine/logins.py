"""`CarefulConnection`: a PyMySQL connection that gives its password to no server whose certificate it has not verified.

Any server, and whatever answers in its place, may ask for the password itself. PyMySQL would send it in plain text.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from pymysql import err
from pymysql.connections import Connection
from pymysql.constants import CR
from pymysql.cursors import Cursor

if TYPE_CHECKING:  # generic in the stubs only
    _Connection = Connection[Cursor]
else:
    _Connection = Connection

#: Ways of logging in by which the password travels as it is.
PLAIN = frozenset({b"mysql_clear_password", b"dialog"})


class CarefulConnection(_Connection):
    """Every connection of ours is one."""

    def _process_auth(self, plugin_name: bytes, *given: Any) -> Any:
        if plugin_name in PLAIN and not self._is_verified:
            raise err.OperationalError(
                CR.CR_AUTH_PLUGIN_CANNOT_LOAD,
                "it asks for the password in plain text, which is given under tls.ca only: it was not sent",
            )
        return super()._process_auth(plugin_name, *given)  # type: ignore[misc]  # the stubs leave it out

    @property
    def _is_verified(self) -> bool:
        """Whether TLS is on, and only a certificate of tls.ca passed."""
        context: ssl.SSLContext | None = getattr(self, "ctx", None)
        is_encrypted: bool = self._secure  # type: ignore[attr-defined]  # the stubs leave it out
        return is_encrypted and context is not None and context.verify_mode == ssl.CERT_REQUIRED


def unverified(error: BaseException | None) -> str | None:
    """Why the server's certificate was refused; None: that was not it."""
    found = getattr(error, "original_exception", None)
    return found.verify_message if isinstance(found, ssl.SSLCertVerificationError) else None


#: What to do about a certificate that was refused.
CERTIFICATE = "Name in tls.ca the authority that signed its certificate, and the server as the certificate does."
