"""SQL in a text as data: its parameters, and the row that a cursor fetches."""
