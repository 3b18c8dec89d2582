"""The past, for a backfill: where to cut it, and its rows by COPY as cells."""
