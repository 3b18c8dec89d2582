from pathlib import Path
from typing import BinaryIO

from pyarrow import Table

class ParquetFile:
    def __init__(self, source: Path) -> None: ...
    def read(self) -> Table: ...

def write_table(table: Table, where: BinaryIO, *, compression: str) -> None: ...
