"""alembic revisions of our own tables; the company's are untouched and keep their own version table."""
