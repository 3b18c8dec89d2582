"""Puts, reads, history, walks and the emulated log over the company's tables and our own."""
