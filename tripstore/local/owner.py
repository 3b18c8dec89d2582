"""The owner's side of the janitor: token, root folder, and the pipe whose end says "the owner is gone"."""

import os
import secrets
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

from tripstore.local.errors import LocalServerError
from tripstore.local.processes import SERVER_VARIABLE, TOKEN_VARIABLE, Mark

JANITOR = "tripstore.local.janitor"
#: Servers with thousands of tables leave a hundred thousand files, and a busy disk takes minutes to forget them.
SWEEP_SECONDS = 240.0


class FolderOwner:
    """Holds the temporary root folder and the janitor that clears it, whatever happens to this process."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self.folder = Path(tempfile.mkdtemp(prefix="tripstore-local-"))
        # Postgres runs as another user and has to walk through; names below are not listed to it.
        self.folder.chmod(0o711)
        self.pid = os.getpid()
        read_end, self._write_end = os.pipe()
        self._janitor = self._start_janitor(read_end)
        os.close(read_end)
        os.register_at_fork(after_in_child=_forgetting(weakref.ref(self)))

    @property
    def is_here(self) -> bool:
        """Return whether this is the owning process (not a fork of it) and nothing has been closed."""
        return self.pid == os.getpid() and self._write_end >= 0

    @property
    def janitor_pid(self) -> int:
        """Return the pid of the process that clears up."""
        return self._janitor.pid

    def environment(self, server: str) -> dict[str, str]:
        """Return the environment to start a server with: ours, and its marks."""
        return {**os.environ, TOKEN_VARIABLE: self.token, SERVER_VARIABLE: self.mark(server).value}

    def mark(self, server: str) -> Mark:
        """Return what every process of this server carries."""
        return Mark(SERVER_VARIABLE, f"{self.token}.{server}", self.folder / server)

    def close(self) -> None:
        """Have the janitor sweep, and wait until it has. In a forked child, and the second time: nothing."""
        if not self.is_here:
            return
        self.forget()
        try:
            self._janitor.wait(SWEEP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise LocalServerError(
                f"The janitor (pid {self._janitor.pid}) did not finish clearing {self.folder}.",
                "Look for processes that write there.",
            ) from error

    def leave(self) -> None:
        """Have the janitor sweep while this process goes on, or ends: a thread waits for it, as far as it gets."""
        if self.is_here:
            self.forget()
            # The thread keeps the janitor: Python would complain of a process that it loses sight of while it runs.
            threading.Thread(target=self._janitor.wait, name="janitor", daemon=True).start()

    def forget(self) -> None:
        """Close this process's end of the pipe: all that a forked child has to do."""
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1

    def _start_janitor(self, read_end: int) -> subprocess.Popen[bytes]:
        # Started from wherever this package is, also when the caller changed sys.path to find it.
        package_parent = str(Path(__file__).resolve().parents[2])
        search_path = os.pathsep.join(filter(None, [package_parent, os.environ.get("PYTHONPATH")]))
        return subprocess.Popen(
            [sys.executable, "-m", JANITOR, self.token, str(self.folder)],
            stdin=read_end,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={**os.environ, "PYTHONPATH": search_path},
            start_new_session=True,  # a Ctrl-C for the owner's group is not for the janitor
        )


def _forgetting(owner: "weakref.ref[FolderOwner]") -> Callable[[], None]:
    """A hook cannot be unregistered, so it must not keep the owner alive."""

    def forget() -> None:
        held = owner()
        if held is not None:
            held.forget()

    return forget
