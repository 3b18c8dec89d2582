"""Index queries as SQL over mapped columns."""
