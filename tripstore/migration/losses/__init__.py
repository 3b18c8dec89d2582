"""What the mirror has and a promoted Postgres lacks: found, listed, and mended in either direction."""
