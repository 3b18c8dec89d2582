# What we use of pgparse, which brings no types of its own.
from typing import Any

class PGQueryError(Exception):
    message: str
    position: int

def parse(statement: str) -> list[dict[str, Any]]: ...
def fingerprint(statement: str) -> str: ...
