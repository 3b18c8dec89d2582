"""What still uses the legacy store: in the code of services, and in the database itself."""

from tripstore.audit.code import audit_code
from tripstore.audit.findings import Access, CodeAudit, Definition, Remark, Use, UseKind
from tripstore.audit.names import LegacyTable, LegacyTables

__all__ = [
    "Access",
    "CodeAudit",
    "Definition",
    "Use",
    "UseKind",
    "LegacyTable",
    "LegacyTables",
    "Remark",
    "audit_code",
]
