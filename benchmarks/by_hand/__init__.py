"""The peers that a developer would write by hand, who knows the tables and looks at nothing twice."""
