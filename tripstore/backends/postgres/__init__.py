"""The legacy store: the company's own Postgres tables behind the Schemaless API.

`layout` says what the tables mean, `ids` gives their rows UUIDs, `capture` misses no change, `codec` turns rows into
bodies, `cells` and `queries` answer calls, `wire` holds the connections, `ddl` changes a busy database gently.
"""
