"""The token that a local Ray asks for: whoever can read it can run code as this user."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from contextlib import suppress
from pathlib import Path

_MODE, _OTHERS = 0o600, 0o077


def protect(folder: Path | None = None) -> None:
    """Let Ray find a token that nobody else may read; by itself it writes one that all may.

    Where the home folder cannot be written to, Ray finds its own way or says what is wrong.
    """
    path = (folder or Path.home() / ".ray") / "auth_token"
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            if path.stat().st_mode & _OTHERS:
                path.chmod(_MODE)
            return
        aside = path.with_name(f".auth_token.{secrets.token_hex(8)}")
        try:
            with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "w") as file:
                file.write(secrets.token_hex(32))
            with suppress(FileExistsError):  # another Ray was faster: its token stands
                path.hardlink_to(aside)
        finally:
            aside.unlink(missing_ok=True)


def dashboard(url: str) -> str:
    """The line that tells where the dashboard is, and how to come in."""
    line = f"Ray dashboard: http://{url}"
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        return line
    program = "ray" if shutil.which("ray") else str(Path(sys.executable).with_name("ray"))
    return f"{line} (it asks for a token: {program} get-auth-token)"
