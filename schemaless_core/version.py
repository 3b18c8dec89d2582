"""The version of the library, for those of its parts that name it."""

VERSION = "0.1.0"
