"""`tripstore.yaml`: the facade's own keys, and the rest for the core, which knows and checks its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemaless_core.config import DatastoreConfig, load_document, parse_config

DEFAULT_FILE = Path("tripstore.yaml")
ENVIRONMENT_VARIABLE = "TRIPSTORE_CONFIG"


@dataclass(frozen=True, slots=True)
class TripstoreConfig:
    """Everything that stands in the file."""

    core: DatastoreConfig


def load_config(source: str | os.PathLike[str] | Mapping[str, Any]) -> TripstoreConfig:
    """Read and check a configuration in full, or raise `InvalidConfig` naming the key, the value and a fix."""
    document, folder = load_document(source)
    return TripstoreConfig(core=parse_config(document, folder))
