"""The backend that Keras computes with, and the rule that a `KerasTrainable` needs TensorFlow.

Keras chooses its backend at import. The service never imports Keras, so it reads the same settings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

NEEDED = "tensorflow"
HINT = (
    "unset KERAS_BACKEND, or set backend to tensorflow in keras.json; to train with another backend, "
    "write a function trainable: docs/other_backends.md"
)


def find_config_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the keras.json that Keras reads with the environment variables ``environ``; it may not exist.

    Without ``KERAS_HOME``, it is in the folder ``.keras`` of this process's home folder or, if that is not writable,
    of /tmp.
    """
    if "KERAS_HOME" in environ:
        return Path(environ["KERAS_HOME"]).expanduser() / "keras.json"
    home = Path("~").expanduser()
    return (home if os.access(home, os.W_OK) else Path("/tmp")) / ".keras" / "keras.json"


def find_backend(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the backend that Keras would choose in a new process, and where it is set.

    ``environ`` has the environment variables of that process. The backend is "tensorflow" if none is set. Where it is
    set is ``KERAS_BACKEND`` (if that is not empty), the path of keras.json (also if that names no backend), or ``the
    default`` if there is no keras.json that can be read as JSON.
    """
    if environ.get("KERAS_BACKEND"):
        return environ["KERAS_BACKEND"], "KERAS_BACKEND"
    file = find_config_file(environ)
    try:
        config = json.loads(file.read_text())
    except (OSError, ValueError):  # Keras falls back to its default, too
        return NEEDED, "the default"
    if isinstance(config, dict):  # the file may be any JSON, such as a list
        named = config.get("backend", NEEDED)
    else:
        named = NEEDED
    return str(named), str(file)


def explain_wrong_backend(backend: str | None) -> str:
    """Return why a backend cannot be used for a `KerasTrainable`, or "" if it is TensorFlow; None is no backend."""
    if backend == NEEDED:
        return ""
    return f"Keras runs on {backend or 'no backend'}, expected {NEEDED}"
