"""Ledgers: what many processes count, by the hour, exact whatever becomes of an answer; and how long things took."""
