"""The guides for those who come from elsewhere: both sides of each run, and names that go together mean the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.space.domains import Categorical, contains, get_domain_bounds, list_choices
from sweep.spec import parse_spec

DOCS = Path(__file__).parents[1] / "docs"
GUIDES = {
    name: (DOCS / f"from_{name}.md").read_text()
    for name in ("kerastuner", "ray_tune", "optuna", "wandb")
}
SMALLER = [  # of both sides, for the sake of time
    (r"\b(max_trials|n_trials|num_samples)=12", r"\1=2"),
    (r'"run_cap": 12', '"run_cap": 2'),
    (r'"epochs": 20', '"epochs": 4'),
    (r"\bepochs=20", "epochs=4"),
    (r"(sweep\.run\(.*?|,\n    )trainable=(\w+),?\n?\)", r"\1trainable=\2, inline=True)"),
]
PEERS = pytest.mark.filterwarnings("ignore")  # of the other tools' own


def _blocks(guide: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDES[guide], re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty."""
    monkeypatch.chdir(tmp_path)
    for name in ("RAY_ADDRESS", "SWEEP_SET"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def _run(guide: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """All blocks of a guide as cells of one notebook."""
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    for number, block in enumerate(_blocks(guide, "python")):
        for pattern, smaller in SMALLER:
            block = re.sub(pattern, smaller, block, flags=re.DOTALL)
        assert "sweep.run(" not in block or "inline=True" in block
        path = Path(f"cell_{number}.py").absolute()
        path.write_text(block)
        exec(compile(block, str(path), "exec"), module.__dict__)
    return module.__dict__


def _began_with(again: Any, found: list[dict[str, Any]]) -> bool:
    """Whether these were the first configurations of a sweep."""
    first = again.trials.sort_values("trial").head(len(found))
    return bool(found) and all(
        row[f"param.{name}"] == value
        for (_, row), params in zip(first.iterrows(), found, strict=True)
        for name, value in params.items()
    )


@pytest.mark.exhaustive
@PEERS
@pytest.mark.keras
@pytest.mark.slow
def test_from_kerastuner(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = _run("kerastuner", monkeypatch)
    assert len(cells["tuner"].oracle.trials) == 2
    assert set(cells["found"][0]) == {"units", "dropout", "learning_rate"}
    assert cells["model"].count_params() in {units * 17 + 3 for units in (8, 16, 24, 32)}
    assert len(cells["done"].trials) == 2
    assert _began_with(cells["again"], cells["found"])


@pytest.mark.exhaustive
@PEERS
@pytest.mark.keras
@pytest.mark.slow
def test_from_optuna(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = _run("optuna", monkeypatch)
    assert len(cells["study"].trials) == 2
    params = cells["done"].trials
    assert params["param.momentum"].notna().equals(params["param.optimizer"] == "sgd")
    assert _began_with(cells["again"], cells["start_with"])
    assert [trial.params for trial in cells["new"].trials] == [
        t.params for t in cells["again"].study().trials
    ]


@pytest.mark.exhaustive
@PEERS
@pytest.mark.ray
@pytest.mark.keras
@pytest.mark.slow
def test_from_ray_tune(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
    )
    try:
        cells = _run("ray_tune", monkeypatch)
    finally:
        ray.shutdown()
    assert len(cells["grid"]) == 2
    assert cells["grid"].num_errors == 0
    assert set(cells["done"].trials["status"]) <= {"completed", "pruned"}
    assert _began_with(cells["again"], cells["start_with"])


@pytest.mark.exhaustive
@pytest.mark.keras
@pytest.mark.slow
def test_from_wandb_there(folder: Path) -> None:
    """As an agent starts it, but for the server: with the parameters of one run in a file."""
    (folder / "train.py").write_text(_blocks("wandb", "python")[0])
    (folder / "config-defaults.yaml").write_text(
        "wandb_version: 1\n"
        + "".join(
            f"{name}: {{value: {value}}}\n"
            for name, value in {
                "learning_rate": 0.01,
                "units": 8,
                "batch_size": 16,
                "epochs": 2,
            }.items()
        )
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    done = subprocess.run(
        [sys.executable, "train.py"],
        env=clean | {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert list(folder.glob("wandb/offline-run-*/*.wandb"))
    assert "val_accuracy" in done.stderr


@PEERS
@pytest.mark.keras
@pytest.mark.slow
def test_from_wandb_here(folder: Path) -> None:
    import pandas as pd
    from click.testing import CliRunner
    from wandb.sdk.launch.sweeps.utils import load_sweep_config

    from sweep.cli import main

    _, model, again = _blocks("wandb", "python")
    (folder / "sweep.yaml").write_text(_blocks("wandb", "yaml")[0])
    (folder / "my_model.py").write_text(model)
    theirs = load_sweep_config("sweep.yaml")
    assert theirs is not None
    Path("yaml_1_1.yaml").write_text("a: 1e-3\nb: off\n")
    assert load_sweep_config("yaml_1_1.yaml") == {"a": "1e-3", "b": False}  # as the guide says
    command = re.findall(r"^    python -m sweep (.*)$", GUIDES["wandb"], re.MULTILINE)[0].split()
    small = ["--set", "parameters.epochs.value=4", "--run-cap", "2", "--inline"]
    result = CliRunner().invoke(main, [*command, *small])
    assert result.exit_code == 0, result.output
    ours = sweep.load("sweep")
    assert len(ours.trials) == 2
    assert {
        name.removeprefix("param.") for name in ours.trials if name.startswith("param.")
    } == set(theirs["parameters"])
    found = [{"learning_rate": 0.01, "units": 8}, {"learning_rate": 0.02, "units": 16}]
    pd.DataFrame(found).assign(val_accuracy=[0.9, 0.95], Name=["a-1", "b-2"]).to_csv(
        "wandb_export.csv", index=False
    )
    again = again.replace("sweep.run(", "sweep.run(run_cap=2, inline=True, what=")
    cells: dict[str, Any] = {}
    exec(compile(again, "again", "exec"), cells)
    assert _began_with(cells["again"], found[::-1])


def _kerastuner(expression: str) -> Callable[[], Any]:
    import keras_tuner

    hp = keras_tuner.HyperParameters()
    eval(expression, {"hp": hp})
    return hp.space[0].random_sample


def _ray_tune(expression: str) -> Callable[[], Any]:
    from ray import tune

    draw: Callable[[], Any] = eval(expression, {"tune": tune}).sample
    return draw


def _optuna(expression: str) -> Callable[[], Any]:
    import optuna

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    return lambda: eval(expression, {"trial": study.ask()})


TOOLS = {"kerastuner": _kerastuner, "ray_tune": _ray_tune, "optuna": _optuna}


def _rows() -> Iterator[Any]:
    for guide in TOOLS:
        for there, here in re.findall(
            r"^\| `(\w[^`]*)` \| `(p: [^`]*)` \|$", GUIDES[guide], re.MULTILINE
        ):
            yield pytest.param(
                guide, there, here, marks=pytest.mark.keras if guide == "kerastuner" else ()
            )


@PEERS
@pytest.mark.parametrize(("guide", "there", "here"), list(_rows()))
def test_names_that_go_together_draw_the_same(guide: str, there: str, here: str) -> None:
    file = f"trainable: m:M\nmethod: random\nrun_cap: 1\nparameters:\n  {here}\n"
    domain = parse_spec(file, "guide").space.parameters[0].domain
    draw = TOOLS[guide](there)
    drawn = [draw() for _ in range(1000)]
    values = list_choices(domain)
    if values is not None:
        assert set(drawn) == set(values)  # all of these, and no others
        return
    assert not isinstance(domain, Categorical)
    low, high = get_domain_bounds(domain)
    assert all(contains(domain, value) for value in map(float, drawn)), min(drawn)
    if high < float("inf"):
        middle = sorted(drawn)[500]
        ours = (low * high) ** 0.5 if "log" in here else (low + high) / 2
        assert middle == pytest.approx(ours, rel=0.5)  # the scale is the same: logarithmic or not


def test_all_guides_name_each_other_and_the_readme_names_all() -> None:
    readme = (DOCS.parent / "README.md").read_text()
    for name in GUIDES:
        assert f"(docs/from_{name}.md)" in readme
        assert all(f"](from_{name}.md)" in text for other, text in GUIDES.items() if other != name)


@pytest.mark.parametrize("guide", GUIDES)
def test_pieces_of_sweep_files_in_the_tables_are_read(guide: str) -> None:
    """Every `key: value` of the right column is a key that the file knows, with a value that it takes."""
    from sweep.errors import InputError

    plain = (
        "trainable: m:M\nmethod: tpe\nrun_cap: 1\nmetric: {name: v, goal: maximize}\n"
        "parameters:\n  optimizer: {values: [sgd]}\n  learning_rate: {value: 1.0}\n  batch_size: {value: 4096}\n"
    )
    keys = "metric|early_terminate|resources|budget|training|stop_when|repeats|constraints|epochs|method|warm_start"
    pieces = [
        cell
        for row in re.findall(r"^\| .* \| (.*) \|$", GUIDES[guide], re.MULTILINE)
        for cell in re.findall(rf"`((?:{keys}): [^`]*)`", row)
    ]
    assert pieces
    for piece in pieces:
        key = piece.split(":")[0]
        text = re.sub(rf"^{key}: .*\n", "", plain, flags=re.MULTILINE)
        try:
            parse_spec(f"{text}{piece}\n", "guide")
        except InputError as error:
            raise AssertionError(f"{piece}: {error}") from None
