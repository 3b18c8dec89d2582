"""Another server of a cluster becomes its primary, and what the old one alone had is taken from its disk."""
