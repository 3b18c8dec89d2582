"""SQL: which tables a text uses, and how."""
