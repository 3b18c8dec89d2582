"""What the names and expressions of the audited code stand for. Nothing of it is run."""
