"""``init`` and ``examples``: what they write can be run as it is, and nothing is overwritten."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

import sweep
from sweep.cli import main
from sweep.cli.examples import list_examples
from sweep.runner import checking
from sweep.spec import load_spec

ROOT = Path(__file__).parents[2]


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, empty; what is imported from it is forgotten."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in set(sys.modules) - before if (tmp_path / f"{name}.py").exists()]:
        del sys.modules[name]


def _checked(file: Path) -> None:
    checking.check_trainable(load_spec(file, environment={}), str(file), [file.parent])


@pytest.mark.parametrize(
    ("arguments", "name"), [([], "my_model"), (["churn"], "churn"), (["--function"], "my_function")]
)
def test_init_writes_a_file_and_a_trainable_that_go_together(
    folder: Path, arguments: list[str], name: str
) -> None:
    code, output = call("init", *arguments)
    assert code == 0, output
    assert {path.name for path in folder.iterdir()} == {f"{name}.yaml", f"{name}.py"}
    assert f"python -m sweep run {name}.yaml" in output
    assert load_spec(folder / f"{name}.yaml", environment={}).name == name
    _checked(folder / f"{name}.yaml")


def test_init_for_pytorch(folder: Path) -> None:
    code, output = call("init", "--torch")
    assert code == 0, output
    if find_spec("torch") is not None:
        _checked(folder / "my_torch.yaml")
    else:
        compile((folder / "my_torch.py").read_text(), "my_torch.py", "exec")


def test_init_from_an_example_brings_the_models_source(folder: Path) -> None:
    code, output = call("init", "mine", "--from", "verdict", "--to", "deep/er")
    assert code == 0, output
    text = (folder / "deep" / "er" / "mine.yaml").read_text()
    assert "trainable: mine:DigitsCNN" in text
    assert "$schema" not in text
    assert (folder / "deep/er/mine.py").read_text() == (
        ROOT / "trainables" / "digits_cnn.py"
    ).read_text()
    _checked(folder / "deep" / "er" / "mine.yaml")


def test_every_example_can_be_a_start_and_be_copied(folder: Path) -> None:
    for name in list_examples():
        assert call("init", f"mine_{name}", "--from", name)[0] == 0
        assert load_spec(folder / f"mine_{name}.yaml", environment={}).trainable.startswith(
            f"mine_{name}:"
        )
        assert call("examples", name, "--to", "copies")[0] == 0
    for name, one in list_examples().items():
        copied = load_spec(folder / "copies" / f"{name}.yaml", environment={})
        assert copied == load_spec(one.file, environment={})
    assert (folder / "copies" / "nested_cnn.py").is_file()


def test_an_example_is_copied_with_json_too(folder: Path) -> None:
    code, output = call("examples", "nested", "--json")
    assert code == 0
    files = json.loads(output)["files"]
    assert files == ["nested.yaml", "nested_cnn.py"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(files)


def test_examples_lists_what_each_asks_and_costs() -> None:
    code, output = call("examples")
    assert code == 0
    for file in (ROOT / "search_spaces").rglob("*.yaml"):
        if file.parent.name != "starters":
            question, cost = file.read_text().splitlines()[:2]
            assert f"{file.stem:20} {question[2:]}\n" in output
            assert cost[2:] in output


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["init", "--function", "--torch"], 2, "these exclude each other"),
        (["init", "--from", "verdit"], 3, "did you mean 'verdict'?"),
        (["init", "two words"], 2, "not the name of a Python module"),
        (["init", "click"], 2, "an installed module has this name"),
        (["init", "taken"], 4, "taken.py: already in"),
        (["examples", "nested_cn"], 3, "no such example"),
    ],
)
def test_mistakes_write_nothing(
    folder: Path, arguments: list[str], exit_code: int, message: str
) -> None:
    (folder / "taken.py").write_text("mine")
    code, output = call(*arguments)
    assert code == exit_code
    assert message in output
    assert "Traceback" not in output
    assert [path.name for path in folder.iterdir()] == ["taken.py"]
    assert (folder / "taken.py").read_text() == "mine"


@pytest.mark.parametrize(
    "kind", [pytest.param("", marks=[pytest.mark.keras, pytest.mark.slow]), "--function"]
)
def test_a_start_trains(kind: str) -> None:
    assert call("init", "start", *filter(None, [kind]))[0] == 0
    code, output = call(
        "run", "start.yaml", "--inline", "-q", "--set", "run_cap=2", "--set", "epochs=4"
    )
    assert code == 0, output
    assert len(sweep.load("start").trials) == 2
