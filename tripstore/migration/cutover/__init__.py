"""The cutover: whether a hand-over is safe, with numbers; the hand-over itself, timed and written down; and the end.

Knows what a person wants to be told and what is written to the audit log. The order of the steps is `handover`'s.
"""
