"""The preflight: which of a company's statements would be refused, slowed or unserved in each phase, and why."""
