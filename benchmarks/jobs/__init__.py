"""Jobs against their peers: rows and cells that are copied, compared, mended and kept."""
