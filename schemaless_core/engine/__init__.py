"""Database engines: one folder each, all behind `engine.base.Node`."""
