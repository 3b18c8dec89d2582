"""`tripstore diff`."""
