"""What capture's functions and triggers say, as SQL: the gate, versions, facts, pairs, and their former texts."""
