"""Reading: a cell by its key, the latest, rows, history, walks in row-key order."""
