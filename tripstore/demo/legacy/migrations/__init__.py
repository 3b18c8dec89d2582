"""The company's own alembic environment."""
