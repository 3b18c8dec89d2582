"""Numbers of child rows that a sequence of the company's gives."""
