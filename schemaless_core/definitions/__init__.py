"""What an index is, as data: its definition, the documents that hold it, the types of its fields, a checked query."""
