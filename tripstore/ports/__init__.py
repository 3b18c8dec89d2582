"""The ports of the hand-over on real databases."""
