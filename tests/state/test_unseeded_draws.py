"""Which draws of the author's code are noticed."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from sweep.state.draws import seeding_entropy


@pytest.mark.parametrize("name", ["other", "draws", "uuid_of_mine", "secrets_"])
def test_a_draw_of_the_authors_module_is_noticed_whatever_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{name}.py").write_text("import os\n\nSEED = os.urandom(4)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with seeding_entropy(0) as entropy:
        importlib.import_module(name)
    assert entropy.line == f"{name}.py:3"


@pytest.mark.parametrize("call", ["random.seed()", "secrets.token_bytes(4)", "uuid.uuid4()"])
def test_the_line_that_calls_a_module_of_python_is_named(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"calls_{call.partition('.')[0]}"
    (tmp_path / f"{name}.py").write_text(f"import random, secrets, uuid\n\n\n{call}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with seeding_entropy(0) as entropy:
        importlib.import_module(name)
    assert entropy.line == f"{name}.py:4"
