"""The tutorial and the notebook do what they say, from nothing to a saved model."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import sweep
from sweep.runner import checking
from sweep.spec import load_spec

ROOT = Path(__file__).parents[1]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()


def _commands() -> list[list[str]]:
    lines = "".join(re.findall(r"```bash\n(.*?)```", TUTORIAL, re.DOTALL)).splitlines()
    return [
        shlex.split(line.removeprefix("python -m sweep "))
        for line in lines
        if line.startswith("python -m sweep ")
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty, with the second file of the tutorial."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wine_seeds.yaml").write_text(
        re.findall(r"```yaml\n(.*?)```", TUTORIAL, re.DOTALL)[0]
    )
    return tmp_path


@pytest.mark.keras
@pytest.mark.slow
def test_the_tutorial_from_nothing_to_the_winner(folder: Path) -> None:
    from click.testing import CliRunner

    from sweep.cli import main

    for command in _commands():
        small = ["--inline", "--set", "epochs=5", "-q"] if command[0] == "run" else []
        result = CliRunner().invoke(main, [*command, *small])
        assert result.exit_code == 0, (command, result.output)
    assert (folder / "winner" / "model.keras").is_file()
    assert (folder / "results" / "wine" / "report.html").is_file()
    assert set(sweep.load("wine_seeds").configurations()["verdict"]) <= {
        "best",
        "ties",
        "worse",
        "undecided",
    }
    (python,) = re.findall(r"```python\n(.*?)```", TUTORIAL, re.DOTALL)
    exec(compile(python, "tutorial", "exec"), {})


def test_the_second_file_goes_with_the_model_of_init(folder: Path) -> None:
    text = (ROOT / "search_spaces" / "starters" / "my_model.py").read_text()
    (folder / "wine.py").write_text(text)
    checking.check_trainable(
        load_spec(folder / "wine_seeds.yaml", environment={}), "wine_seeds.yaml", [folder]
    )


@pytest.mark.exhaustive
@pytest.mark.keras
@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(ROOT / "examples" / "digits.ipynb", as_version=4)
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert float(book.cells[-1].outputs[0]["data"]["text/plain"]) > 0.9
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == [
        "digits_search",
        "digits_verdict",
    ]
    assert (tmp_path / "digits.keras").is_file()


def test_the_notebook_is_kept_without_output() -> None:
    import nbformat

    book = nbformat.read(ROOT / "examples" / "digits.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells)
