"""What grows with a company's data, and how: the figures of docs/explanation/limits.md."""
