"""A client in JavaScript, generated from the OpenAPI document, against the contract of cells: `make javascript`.

It needs node and npm. They are none of the suite's needs: Debian's npm brings hundreds of packages.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

from schemaless_core import Datastore
from tests.http_clients import Served
from tripstore.http.openapi import openapi_document
from tripstore.http.routes import ROUTES
from tripstore.http.settings import HttpLimits, HttpSettings, ServiceRight, ServiceToken

HERE = Path(__file__).parent
TOKEN = "j" * 32


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("package.json", "package-lock.json", "contract.ts"):
            shutil.copy(HERE / file, folder)
        (folder / "openapi.json").write_text(json.dumps(openapi_document(ROUTES)))
        run(folder, "npm", "ci", "--no-audit", "--no-fund", "--silent")
        run(folder, "npx", "openapi", "--input", "openapi.json", "--output", "generated", "--useOptions")
        bundle = ("--bundle", "--platform=node", "--format=esm", "--outfile=contract.js", "--log-level=warning")
        run(folder, "npx", "esbuild", "contract.ts", *bundle)
        clusters = {"a": {"primary": f"sqlite:///{folder}/a"}}
        with Datastore.open({"datastore": "trips", "shards": 4, "clusters": clusters}) as store:
            store.create_schema()
            token = ServiceToken("javascript", TOKEN, ServiceRight.WRITE)
            with closing(Served(store, HttpSettings(HttpLimits(), (token,)))) as served:
                run(folder, "node", "contract.js", served.url, TOKEN)


def run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True)


if __name__ == "__main__":
    main()
