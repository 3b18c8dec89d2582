"""The control database: topology and audit log. Needed for changes, never for reading or writing cells."""
