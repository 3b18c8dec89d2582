"""`make packages`: wheel and sdist, each made twice to the same bytes, work in empty environments of every Python.

An environment has what our users' have: the package, what it needs, and no checkout. The same in a minimal Debian, for
the Python that it has: `make fresh SUITE=sid COMMANDS=packages PYTHONS=3.14`.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
#: Seconds of a core that `import tripstore` may take.
IMPORT_SECONDS = 0.25
EXTRAS = "audit,demo,http,otel"
#: The smallest of three: the first one fills the disk's cache, and others work on this machine, too.
IMPORT = "import time; begun = time.process_time(); import tripstore; print(time.process_time() - begun)"
#: What a service waits for as it connects: SQLAlchemy, the drivers, and what we need of both stores.
CONNECT = IMPORT.replace("import tripstore;", "import tripstore; tripstore.connect;")
#: A cell in memory: what a service's first test does.
CELL = (
    "import uuid; from schemaless_core import MemoryStore; store, row = MemoryStore(), uuid.uuid4();"
    "store.put_cell(row, 'BASE', 1, {'fare': 7}); print(store.get_cell_latest(row, 'BASE').body['fare'])"
)
BUILD = "from setuptools import build_meta; build_meta.build_{kind}({folder!r})"


def run(*command: str | Path, folder: Path, seconds: float = 900, **environment: str) -> str:
    """What it printed. It finds nothing of ours by the environment."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TRIPSTORE"))}
    done = subprocess.run(
        command, cwd=folder, env=known | environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode:
        raise click.ClickException(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def made(folder: Path) -> dict[str, Path]:
    """Wheel and sdist of what is committed, made in a folder of its own."""
    source, packages = folder / "source", folder / "packages"
    source.mkdir(parents=True)
    packages.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "--extract"], cwd=source, input=archive, check=True)
    committed_at = run("git", "log", "-1", "--format=%ct", folder=ROOT)
    for kind in ("wheel", "sdist"):
        command = BUILD.format(kind=kind, folder=str(packages))
        run(sys.executable, "-c", command, folder=source, SOURCE_DATE_EPOCH=committed_at)
    (wheel,), (sdist,) = packages.glob("*.whl"), packages.glob("*.tar.gz")
    evened(sdist, int(committed_at))
    return {"wheel": wheel, "sdist": sdist}


def evened(sdist: Path, second: int) -> None:
    """setuptools writes the time of the build, and who built it, into an sdist."""
    with tarfile.open(sdist) as old:
        members = [(each, old.extractfile(each)) for each in sorted(old.getmembers(), key=lambda each: each.name)]
        aside = sdist.with_suffix(".even")
        with (
            aside.open("wb") as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=second) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
        ):
            for member, content in members:
                member.mtime, member.uid, member.gid, member.uname, member.gname = second, 0, 0, "", ""
                member.pax_headers = {}  # a time with fractions of a second
                new.addfile(member, content)
    aside.replace(sdist)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def found(version: str) -> Path | None:
    """An interpreter that runs: a shim of a version manager may be there for none."""
    own = [sys.executable] if version == f"{sys.version_info.major}.{sys.version_info.minor}" else []
    managed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for candidate in (*own, *managed, shutil.which(f"python{version}")):
        if candidate is not None and _is(candidate, version):
            return Path(candidate)
    return None


def _is(candidate: str | Path, version: str) -> bool:
    say = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([candidate, "-c", say], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip() == version


class Environment:
    """An empty one, with one package of ours."""

    def __init__(self, python: Path, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        run(python, "-m", "venv", folder / "env", folder=folder)
        self._programs = folder / "env" / "bin"

    def install(self, package: Path, extras: str = "") -> None:
        wanted = f"{package}[{extras}]" if extras else str(package)
        pins = ("--constraint", ROOT / "constraints.txt")
        options = ("--quiet", "--disable-pip-version-check", "--no-input")
        run(self._programs / "pip", "install", *options, *pins, wanted, folder=self._folder)

    def python(self, program: str) -> str:
        return run(self._programs / "python", "-c", program, folder=self._folder)

    def tripstore(self, *arguments: str) -> str:
        return run(self._programs / "tripstore", *arguments, folder=self._folder)


def walked(python: Path, packages: dict[str, Path], folder: Path) -> Iterator[str]:
    """What was done with it, as a line each."""
    folder.mkdir()
    wheel = Environment(python, folder / "wheel")
    wheel.install(packages["wheel"])
    version = wheel.tripstore("--version")
    yield f"wheel: {version}"
    seconds = min(float(wheel.python(IMPORT)) for _ in range(3))
    if seconds > IMPORT_SECONDS:
        raise click.ClickException(f"import tripstore takes {seconds:.3f} s of a core, more than {IMPORT_SECONDS} s")
    connect = min(float(wheel.python(CONNECT)) for _ in range(3))
    yield f"import tripstore: {seconds:.3f} s of a core; with all that connect() needs {connect:.3f} s"
    if wheel.python(CELL) != "7":
        raise click.ClickException("a cell that was put into memory does not come back")
    yield "a cell in memory: put and read"
    wheel.install(packages["wheel"], EXTRAS)
    begun = time.monotonic()
    wheel.tripstore("demo")  # what it shows it holds to, by its exit code
    yield f"[{EXTRAS}], tripstore demo: {time.monotonic() - begun:.0f} s"
    sdist = Environment(python, folder / "sdist")
    sdist.install(packages["sdist"])
    if sdist.tripstore("--version") != version:
        raise click.ClickException("sdist and wheel are of different versions")
    yield "sdist: the same version"


@click.command()
@click.option("--python", "versions", multiple=True, help="A version, such as 3.13; by default, all that we support.")
def main(versions: tuple[str, ...]) -> None:
    """Make the packages, and use them in empty environments."""
    failed = False
    with tempfile.TemporaryDirectory(prefix="tripstore-packages-") as name:
        folder = Path(name)
        packages, again = made(folder / "once"), made(folder / "twice")
        for kind, path in packages.items():
            is_same = digest(path) == digest(again[kind])
            failed |= not is_same
            click.echo(f"{kind}: {path.name}, {digest(path)[:16]}, {'the same' if is_same else 'OTHER BYTES'} again")
        for version in versions or PYTHONS:
            python = found(version)
            if python is None:
                failed = True
                click.echo(f"Python {version}: NOT HERE")
                continue
            try:
                for line in walked(python, packages, folder / version):
                    click.echo(f"Python {version}: {line}")
            except click.ClickException as error:
                failed = True
                click.echo(f"Python {version}: FAILED: {error.message}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
