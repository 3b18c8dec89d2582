"""What the company's own catalogue says of rows of the mapped tables, beyond the layout."""
