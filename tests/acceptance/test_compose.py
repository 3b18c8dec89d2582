"""The compose file: of its specification, and each of its commands does its work on a real datastore."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from compose_spec import PyOptions

from tests.acceptance.conftest import Shell
from tests.chaos.actors import wait_until
from tripstore.local.ports import free_port, release

FILE = Path(__file__).parents[2] / "docs" / "operations" / "compose.yaml"
IMAGE = re.compile(r"\$\{TRIPSTORE_IMAGE:\?[^}]*\}")


def services(text: str) -> dict[str, Any]:
    """As the specification reads them, whatever they merge; raises where it is not kept."""
    read = PyOptions(apply_merge=True).from_yaml(IMAGE.sub("registry.example/tripstore:0.1.0", text))
    read.validate()
    found: dict[str, Any] = read.to_dict()["services"]
    for name, service in found.items():
        unknown = service.get("depends_on", {}).keys() - found.keys()
        if unknown:
            raise ValueError(f"{name} depends on {unknown}")
    return found


def test_every_process_waits_for_a_doctor_that_calls_the_datastore_ready() -> None:
    found = services(FILE.read_text())
    doctor = found.pop("ready")

    assert doctor["command"][:2] == ["tripstore", "doctor"]
    assert doctor["restart"] == "no"
    assert "--ready" in doctor["command"]
    assert found.keys() == {"worker", "front", "console"}
    for service in found.values():
        assert service["depends_on"] == {"ready": {"condition": "service_completed_successfully"}}
        assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize(
    ("right", "wrong", "complaint"),
    [
        ("stop_grace_period", "stop_grace", "stop_grace"),
        ("service_completed_successfully", "service_done", "service_done"),
        ("30s", "30 sex", "duration"),
        ("secrets: [db_password", "secrets: [other", "other"),
        ("    ready: {", "    reddy: {", "reddy"),
    ],
)
def test_control_what_the_specification_does_not_allow_is_found(right: str, wrong: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        services(FILE.read_text().replace(right, wrong))


@contextmanager
def running(shell: Shell, service: Mapping[str, Any], ports: Mapping[str, int]) -> Iterator[subprocess.Popen[str]]:
    """A service's own command, at ports of the test. At the end it gets the signal that Compose sends."""
    program, *arguments = service["command"]
    assert program == "tripstore"
    environment = {name: value for name, value in service["environment"].items() if name != "TRIPSTORE_CONFIG"}
    process = shell.start(*[str(ports.get(each, each)) for each in arguments], environment=environment)
    yield process
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_each_command_of_it_does_its_work(store: Shell) -> None:
    found = services(FILE.read_text())
    port = free_port()
    settings = store.folder / "tripstore.yaml"
    settings.write_text(settings.read_text() + f"\nhttp: {{port: {port}}}\n")

    ready = store.run(*found["ready"]["command"][1:])
    assert (ready.code, ready.document["is_ready"]) == (0, True)
    with running(store, found["front"], {}):
        kind, program, *arguments = found["front"]["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "python")
        check = [sys.executable, *(each.replace("8080", str(port)) for each in arguments)]
        wait_until("it is healthy", lambda: not subprocess.run(check, capture_output=True, check=False).returncode)
    assert subprocess.run(check, capture_output=True, check=False).returncode != 0, "the control: it has ended"
    with running(store, found["worker"], {"9100": port, "2": 1}):
        wait_until("it tells Prometheus", lambda: answers(f"http://127.0.0.1:{port}/metrics"))
    with running(store, found["console"], {"8090": port}):
        wait_until("it shows its page", lambda: answers(f"http://127.0.0.1:{port}/"))
    release(port)
