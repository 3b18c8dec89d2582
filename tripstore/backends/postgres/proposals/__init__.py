"""What a layout for given tables could be: guesses from the live database, each with its reason, and its YAML."""
