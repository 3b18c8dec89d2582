"""Layouts: what a company says of its tables, read, checked against the live database, proposed."""
