"""An operator's hands on the page of a console: buttons, dialogs, what is typed into them, and what they say."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Locator, Page

#: Plans look at both stores, by a command of its own.
PLAN_MILLISECONDS = 60_000


class Hands:
    """Acts on one page, with the mouse and a keyboard for texts."""

    def __init__(self, page: Page, token: str) -> None:
        self.page = page
        self._token = token

    @property
    def dialog(self) -> Locator:
        return self.page.locator("dialog.act")

    def open(self, name: str, chosen: str | None = None) -> None:
        """Open an action, give the token where it is asked for, choose, and wait for the plan."""
        self.page.locator(f'button[data-action="{name}"]').click()
        started = self.dialog.locator("#act-choose, .token-form")
        started.first.wait_for()
        if self.dialog.locator(".token-form").count():
            self.dialog.get_by_label("Changes need the token").fill(self._token)
            self.dialog.get_by_role("button", name="Go on").click()
        if chosen is not None:
            self.dialog.locator("select").select_option(chosen)
            self.dialog.get_by_role("button", name="Show the plan").click()
        self.planned()

    def planned(self) -> bool:
        """Wait until the plan is there; whether it can be confirmed."""
        self.dialog.locator("#act-do, #act-again, #act-plan > .trouble").first.wait_for(timeout=PLAN_MILLISECONDS)
        return self.dialog.locator("#act-do").count() == 1

    def look_again_until_it_passes(self, meanwhile: Callable[[], object]) -> None:
        """Traffic goes on while gates refuse."""
        while not self.planned():
            meanwhile()
            self.dialog.locator("#act-again").click()

    def confirm(self, typed: str, why: str = "") -> None:
        """Type what the dialog asks for, and click; returns when the command has begun."""
        if why:
            self.dialog.locator("input[name=why]").fill(why)
        self.dialog.locator("input[name=typed]").fill(typed)
        self.dialog.locator("#act-do button").click()
        self.dialog.locator("#act-run").wait_for()

    def verdict(self) -> str:
        """What came of it, once the command has ended."""
        self.dialog.locator('#act-run[data-ended="yes"]').wait_for(timeout=PLAN_MILLISECONDS)
        return self.dialog.locator("#act-run .tag").first.inner_text()

    def close(self) -> None:
        self.dialog.get_by_role("button", name="Close").click()
        self.dialog.wait_for(state="hidden")

    def do(self, name: str, typed: str, *, chosen: str | None = None, why: str = "") -> str:
        """From the button to the end; returns the verdict."""
        self.open(name, chosen)
        self.confirm(typed, why)
        verdict = self.verdict()
        self.close()
        return verdict
