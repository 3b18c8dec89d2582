"""promtool, which reads rules and expressions as Prometheus does: that one program, out of Debian's package.

The package would also bring a service that begins with the machine. The program is whole or absent in the user's
cache, because it gets there by a rename.
"""

import shutil
import tempfile
from pathlib import Path

from tripstore.local.errors import LocalServerError
from tripstore.local.template import cache_folder, give_to_owner_of, run

PACKAGE = "prometheus"


def find_promtool() -> Path | None:
    """Return the machine's promtool, or that of our cache, or None."""
    on_path = shutil.which("promtool")
    if on_path is not None:
        return Path(on_path)
    return program if (program := _program()).exists() else None


def get_promtool() -> Path:
    """Return it, or raise and say how to install it."""
    found = find_promtool()
    if found is None:
        raise LocalServerError("promtool is not installed.", "Run `python -m tripstore.local.install` as root.")
    return found


def install_promtool() -> None:
    """Download Debian's package of Prometheus, and keep promtool alone."""
    program = _program()
    with tempfile.TemporaryDirectory(prefix="promtool-", dir=cache_folder()) as folder:
        run(["env", f"--chdir={folder}", "apt-get", "--quiet", "download", PACKAGE])
        (archive,) = Path(folder).glob("*.deb")
        run(["dpkg-deb", "--extract", str(archive), folder])
        unpacked = Path(folder) / "usr/bin/promtool"
        run([str(unpacked), "--version"])
        give_to_owner_of(program.parent, unpacked)
        unpacked.rename(program)


def _program() -> Path:
    return cache_folder() / "promtool"
