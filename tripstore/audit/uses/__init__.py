"""Uses of legacy tables in one Python file."""
