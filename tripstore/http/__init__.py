"""The HTTP front: the calls of a `TripStore` as JSON, for services that are not Python.

`routes` is the one table of what can be called: the front serves it, and the OpenAPI document is written from it.
"""
