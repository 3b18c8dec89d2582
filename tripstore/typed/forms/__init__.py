"""The types of values: as a body holds them, and as Python does."""
