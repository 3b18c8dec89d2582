"""Typed classes from a layout and indexes, as the text of a module: what `tripstore models` writes."""
