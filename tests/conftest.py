"""Fixtures: real servers once per run, stores of every engine."""

from __future__ import annotations

import gc
import getpass
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from schemaless_core import CellStore, Datastore
from schemaless_core.failpoints import use_folder
from tests.databases import drop_databases
from tests.legacy_databases import FLAVOURS
from tests.places import are_in_memory, choose_place
from tests.scale import SCALE
from tests.stores import AIO, CELL_STORES, DATASTORE_ENGINES, SERVER_ENGINES, STORE_ENGINES, ServerEngine, Stores
from tripstore.local.errors import LocalServerError
from tripstore.local.servers import LocalServers
from tripstore.local.template import cache_folder
from tripstore.local.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

settings.register_profile(
    "tripstore",
    deadline=None,  # real servers
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    derandomize="CI" in os.environ,
    print_blob=True,
)
settings.register_profile("quick", settings.get_profile("tripstore"), max_examples=20)
settings.load_profile("quick" if SCALE < 1 else "tripstore")

# Hundreds of processes that each compile everything anew would take longer than all the tests; migrations are modules
# that every datastore loads.
BYTECODE = os.environ.get("PYTHONPYCACHEPREFIX") or str(cache_folder() / "bytecode")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYTHONPYCACHEPREFIX"] = BYTECODE
sys.dont_write_bytecode, sys.pycache_prefix = False, BYTECODE

PLACE = choose_place()

# A run in the background of a script has Ctrl-C switched off, and so would have the commands that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


#: Versions of Postgres, the two servers of Schemaless, phases of the facade, and pairs of stores below what mirrors.
_ALIKE = (
    ("wheel", "machine"),
    ("postgres18", "postgres"),
    ("facade dualwrite", "facade shadow"),
    ("facade rampdown", "facade complete"),
    ("facade off", "facade live cohort"),
    ("postgres18-mariadb", "postgres-sqlite"),
    ("postgres18 mariadb", "postgres mysql"),
)
#: MySQL starts, and defines tables, several times as slowly: a sixth of what is alike on both is its own,
#: and half of the contract.
_SLOWER, _QUICKER, OF_SLOWER = "mysql", "mariadb", 6
#: What these show stands above the engine; each engine has half of them, and the contract's tests as a whole.
_ABOVE_ENGINES = tuple(
    f"tests/integration/{place}"
    for name in (
        "closed",
        "control_restored",
        "entry_queries",
        "first_rows",
        "fsck",
        "index_versions",
        "jobs",
        "leases",
        "ledgers",
        "live_rules",
        "mends",
        "places",
        "shadow_reads",
        "shard_authority",
        "store_port",
        "together",
        "trigger_accidents",
        "trigger_authority",
        "trigger_calls",
        "trigger_hangs",
        "trigger_retries",
        "triggers",
        "wrong_input",
    )
    for place in (f"test_{name}.py::", f"{name}/")
)
#: Below these a test has variants that show one thing at several places. The contract's are many things, and quick.
_SAMPLED = tuple(f"tests/{folder}/" for folder in ("acceptance", "chaos", "integration", "property"))
#: Of so many variants of a test one is run; of more variants more.
EVERY_VARIANT = 6
#: Scenes of a protocol differ by who acts and what befalls them: each shows something else, and fewer are left out.
_SCENES, EVERY_SCENE = "tests/explorer/", 3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="run what needs no server and no second, with fewer examples")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes half a minute: begins first, so that both testers end together")
    config.addinivalue_line(
        "markers", "shown(by): the test, or command of CI, of this name shows the same sooner: `make soak` runs both"
    )
    config.addinivalue_line("markers", "slow: takes more than a second of a core; `make quick` leaves it out")
    if config.getoption("--quick"):
        settings.load_profile("quick")


SERVERLESS = ("memory", "sqlite", f"{AIO}sqlite")

#: Of new objects, until the youngest are looked through: by Python's 700 that is a tenth of a run's time.
COLLECTED_OBJECTS = 20_000


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Ten thousand tests are no garbage: they are not looked through for it while they are found, nor later."""
    gc.disable()
    yield
    gc.freeze()
    gc.set_threshold(COLLECTED_OBJECTS, *gc.get_threshold()[1:])
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """CI runs on one of two that are alike what runs on both, and some of a test's variants. `make soak` runs all."""
    if config.getoption("--quick"):
        _leave(config, items, {item.nodeid for item in items if is_quick(item)})
    if SCALE < 1:
        _leave(config, items, {item.nodeid for item in items if item.get_closest_marker("shown") is None})
        names = {item.nodeid for item in items}
        for one, other in _ALIKE:
            _leave_one(names, names, one, other)
        contract = {name for name in names if name.startswith("tests/contract/")}
        _leave_one(names, contract, _SLOWER, _QUICKER)
        _leave_one(names, names - contract, _SLOWER, _QUICKER, OF_SLOWER)
        above = {name for name in names if name.startswith(_ABOVE_ENGINES)}
        for server in SERVER_ENGINES:
            _leave_one(names, above, server, "sqlite")
        _leave(config, items, sampled(names))
    # Of those that are left: else what is to begin a part ends up in the midst of one.
    _begin_with_long(items, _testers(config))


def _begin_with_long(items: list[pytest.Item], testers: int) -> None:
    """Each tester begins with its part of the tests, and with the long ones in it.

    What runs on MySQL is one tester's: six servers of it have 2 GB of memory, and start in half a minute.
    """
    items.sort(key=lambda item: not _runs_on(_SLOWER, item))
    long = [item for item in items if item.get_closest_marker("long") is not None]
    others = [item for item in items if item.get_closest_marker("long") is None]
    first = [item for item in long if _runs_on(_SLOWER, item)]
    rest = long[len(first) :]
    part = -(-len(others) // testers)
    parts = [others[tester * part : (tester + 1) * part] for tester in range(testers)]
    for number, item in enumerate(rest):
        parts[-1 - number % testers].insert(0, item)
    items[:] = [*first, *(item for each in parts for item in each)]


def _runs_on(engine: str, item: pytest.Item) -> bool:
    return re.search(rf"(?<![A-Za-z0-9]){engine}(?![A-Za-z0-9])", item.name.partition("[")[2]) is not None


def _testers(config: pytest.Config) -> int:
    """How many share the tests; each of them finds and orders them all."""
    of_worker: dict[str, int] = getattr(config, "workerinput", {})
    return of_worker.get("workercount", 1)


def is_quick(item: pytest.Item) -> bool:
    """Return whether it starts no server and is not marked as slow.

    Servers come from the fixture `servers` alone; stores that ask it for none are named by their parameter.
    """
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    needs_none = any(isinstance(each, str) and each in SERVERLESS for each in parameters)
    starts_server = "servers" in getattr(item, "fixturenames", ()) and not needs_none
    return not starts_server and item.get_closest_marker("slow") is None


def _leave(config: pytest.Config, items: list[pytest.Item], names: set[str]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in names])
    items[:] = [item for item in items if item.nodeid in names]


def _leave_one(names: set[str], some: set[str], one: str, other: str, every: int = 2) -> None:
    """Of two tests that differ by this word alone keep the one each so many times: by chance, and always the same."""
    for name in sorted(some):
        sibling = re.sub(rf"(?<![A-Za-z0-9]){one}(?![A-Za-z0-9])", other, name)
        if sibling != name and {name, sibling} <= names:
            names.discard(name if crc32(sibling.encode()) % every else sibling)


def sampled(names: set[str]) -> set[str]:
    """Some of each test's variants, and one at least: drawn by their names, so always the same; of controls all."""
    variants: dict[str, list[str]] = {}
    for name in names:
        test = name.partition("[")[0]
        is_whole = not name.startswith((*_SAMPLED, _SCENES)) or "control" in name.partition("::")[2]
        variants.setdefault(name if is_whole else test, []).append(name)
    return {name for of_one in variants.values() for name in _some(of_one)}


def _some(variants: list[str]) -> list[str]:
    every = EVERY_SCENE if variants[0].startswith(_SCENES) else EVERY_VARIANT
    return sorted(variants, key=lambda name: (crc32(name.encode()), name))[: -(-len(variants) // every)]


def pytest_report_header() -> str:
    return PLACE


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Where all passed pytest leaves a dead link in a folder of the user's name. Another run may be in that folder."""
    remains = Path(tempfile.gettempdir(), f"pytest-of-{getpass.getuser()}")
    with suppress(OSError):
        for link in remains.iterdir():
            if link.is_symlink() and not link.exists():
                link.unlink()
        remains.rmdir()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """After the last test of a file nothing needs its databases. On a disk, dropping takes longer than keeping."""
    yield
    if nextitem is not None and nextitem.path != item.path and are_in_memory():
        drop_databases()


@pytest.fixture(scope="session")
def servers() -> Iterator[LocalServers]:
    running = LocalServers()
    yield running
    running.close(waits=False)  # thousands of databases are removed while the caller goes on


@pytest.fixture(scope="session")
def stores(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    made = Stores(servers, tmp_path_factory.mktemp("stores"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def zookeeper(servers: LocalServers) -> ZooKeeperServer:
    """One for the whole run: each datastore has a path of its own in it."""
    return servers.zookeeper()


@pytest.fixture(params=STORE_ENGINES)
def store_engine(request: pytest.FixtureRequest, stores: Stores) -> str:
    """Every store of the core, the oracle included."""
    return _present(request.param, stores)


@pytest.fixture(params=CELL_STORES)
def cell_store(request: pytest.FixtureRequest, stores: Stores) -> str:
    """Every store there is, the legacy store with free columns included."""
    return _present(request.param, stores)


@pytest.fixture(params=DATASTORE_ENGINES)
def datastore_engine(request: pytest.FixtureRequest, stores: Stores) -> str:
    """Every engine of `Datastore`."""
    return _present(request.param, stores)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The tests of a file share it."""
    from tests.browsers import chromium  # what drives it takes a moment to import, and few tests want it

    with chromium() as launched:
        yield launched


@pytest.fixture(params=SERVER_ENGINES)
def server_engine(request: pytest.FixtureRequest, stores: Stores) -> ServerEngine:
    """Every engine with a server that can be killed."""
    engine: ServerEngine = request.param
    _present(engine, stores)
    return engine


@pytest.fixture
def store(cell_store: str, shared_stores: dict[str, CellStore]) -> CellStore:
    """A store that other tests use too: keys must be new."""
    return shared_stores[cell_store]


@pytest.fixture
def fresh_store(cell_store: str, stores: Stores) -> CellStore:
    """A store of this test's own."""
    return stores.fresh_store(cell_store)


@pytest.fixture
def datastore(datastore_engine: str, stores: Stores) -> Datastore:
    """A datastore of this test's own."""
    return stores.fresh(datastore_engine)


@pytest.fixture(scope="session")
def shared_stores(stores: Stores) -> dict[str, CellStore]:
    class OnDemand(dict[str, CellStore]):
        def __missing__(self, engine: str) -> CellStore:
            self[engine] = stores.fresh_store(engine)
            return self[engine]

    return OnDemand()


@pytest.fixture
def failpoints(tmp_path: Path) -> Path:
    """A folder for the failpoints of processes that this test starts."""
    folder = tmp_path / "failpoints"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def failpoints_end_with_their_test() -> Iterator[None]:
    """What a test turned on inside its own process would meet whichever test comes next there."""
    yield
    use_folder(None)


def _present(name: str, stores: Stores) -> str:
    """A missing server fails in CI; elsewhere its tests are skipped with the reason."""
    engine = name.removeprefix(AIO)
    if engine in SERVER_ENGINES or engine in FLAVOURS:
        try:
            if engine in FLAVOURS:
                stores.start_postgres(engine)
            else:
                stores.clusters(cast(ServerEngine, engine))
        except LocalServerError as error:
            if "CI" in os.environ:
                raise
            pytest.skip(str(error))
    return name


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests counted, from all processes of a run: CI's log has it."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "counts":
                terminalreporter.write_line(f"{report.nodeid}: {value}")
