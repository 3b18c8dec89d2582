"""The mirror: what the authority has is carried to the other backend.

Forward, relays carry captured changes to Schemaless. Backwards, a built-in group of the trigger workers writes cells
into the legacy tables; while Postgres is the authority it rehearses, and only compares.
"""
