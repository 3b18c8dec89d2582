"""What `audit rewrite` makes of public code bases that use SQLAlchemy. None of their code is here."""
