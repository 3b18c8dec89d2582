"""A console that runs, and what a browser finds wrong with its page."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, ViewportSize

from tests.acceptance.conftest import Shell

DESK, PHONE = ViewportSize(width=1280, height=900), ViewportSize(width=400, height=844)
WAIT_MILLISECONDS = 20_000


@contextmanager
def opened(browser: Browser, client: ConsoleClient, **options: Any) -> Iterator[Page]:
    """A page that asks its console alone and complains of nothing, from beginning to end."""
    context = browser.new_context(**({"viewport": DESK} | options))
    page = context.new_page()
    page.set_default_timeout(WAIT_MILLISECONDS)
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(str(client.base_url))
    yield page
    context.close()
    assert complaints == [], "a page complains of nothing"
    others = [each for each in asked if not each.startswith((str(client.base_url), "data:,"))]
    assert others == [], "a page asks its own console alone"


@contextmanager
def left_alone(browser: Browser, client: ConsoleClient) -> Iterator[Page]:
    """A page whose console may end under it."""
    context = browser.new_context(viewport=DESK)
    page = context.new_page()
    page.set_default_timeout(WAIT_MILLISECONDS)
    page.goto(str(client.base_url))
    yield page
    context.close()


def axe_violations(page: Page, *rules: str) -> dict[str, list[str]]:
    """What axe finds, by all rules or these: each with its elements. The page's policy does not reach this script."""
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found: dict[str, Any] = page.evaluate("(options) => axe.run(options)", options)
    return {each["id"]: [node["html"] for node in each["nodes"]] for each in found["violations"]}


class ConsoleClient(httpx.Client):
    """Asks one console."""

    #: Printed when it starts.
    token = ""
    process: subprocess.Popen[str]


@contextmanager
def console_of(
    shell: Shell,
    *arguments: str,
    trusted: ssl.SSLContext | None = None,
    environment: dict[str, str] | None = None,
) -> Iterator[ConsoleClient]:
    """The command, once it says where it listens, until SIGTERM ends it in order; unless the test killed it."""
    process = shell.start("console", "--port", "0", "--json", *arguments, environment=environment)
    try:
        assert process.stdout is not None, "it is a pipe"
        assert process.stderr is not None, "it is a pipe"
        assert process.stderr.readline().startswith("Starting: ")
        line = process.stderr.readline()
        assert line.startswith("Listening at "), line
        url = line.split()[-1].replace("0.0.0.0", "127.0.0.1")
        with ConsoleClient(base_url=url, verify=trusted or True, timeout=10) as client:
            client.process = process
            client.token = process.stderr.readline().split()[-1]
            told = {"url": line.split()[-1], "token": client.token}
            assert json.loads(process.stdout.readline()) == told, "what it says, as a document"
            yield client
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0, process.stderr.read()
    finally:
        process.kill()
        process.communicate()
