"""Cells that another cluster keeps until their own takes them."""
