"""Every example trains: a few trials of few epochs each, for real, all in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from sampling import sampled

import sweep
from sweep.cli import main
from sweep.space.domains import contains
from sweep.spec import load_spec

FOLDER = Path(__file__).parents[1] / "search_spaces" / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))

SMALL = {
    "asha": ["epochs=2", "run_cap=3"],
    "asha_promotion": ["epochs=2", "run_cap=3"],
    "budget": ["budget.epochs=2"],
    "click_through": ["resources.servers=0", "resources.workers=1", "training.strategy=auto"],
    "conditions": ["run_cap=3"],
    "confirm": ["run_cap=2", "confirm.seeds=2", "confirm.finalists=2"],
    "epochs": ["parameters.epochs.values=[1, 2]", "parameters.warmup_epochs.value=0"],
    "folds": ["folds=3", "run_cap=1"],
    "freeze_thaw": ["epochs=2", "run_cap=3"],
    "gpus": ["resources.gpus=0", "training.strategy=auto"],
    "hyperband": ["epochs=2", "early_terminate.max_iter=3", "early_terminate.s=1", "run_cap=3"],
    "long_epochs": ["epochs=2"],
    "median": ["epochs=2", "early_terminate.min_iter=1", "early_terminate.min_trials=1"],
    "pasha": ["epochs=2", "run_cap=3"],
    "repeats": ["repeats=2", "run_cap=1"],
    "wandb": ["epochs=2", "early_terminate.min_iter=1"],
}
"""What makes a file small, beside one epoch and two configurations where nothing else is said."""

# no more of ours runs in them than in the others
ALIKE = (
    "folds",
    "log_uniform_tpe",
    "regularization",
)

pytestmark = [pytest.mark.keras, pytest.mark.slow]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


def overrides(name: str) -> list[str]:
    own = SMALL.get(name, [])
    given = {assignment.partition("=")[0] for assignment in own}
    return own + [
        default for default in ("epochs=1", "run_cap=2") if default.partition("=")[0] not in given
    ]


def train(name: str, results: Path) -> None:
    if (results / name).exists():
        return
    settings = [part for assignment in overrides(name) for part in ("--set", assignment)]
    arguments = [
        "run",
        str(FOLDER / f"{name}.yaml"),
        "--inline",
        "--results",
        str(results),
        *settings,
    ]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(*name.values, marks=pytest.mark.exhaustive)
        if name.values[0] in ALIKE
        else name
        for name in sampled(NAMES, 6)
    ],
)
def test_an_example_trains(name: str, results: Path) -> None:
    spec = load_spec(FOLDER / f"{name}.yaml", overrides(name), environment={})
    for earlier in spec.warm_start:
        train(earlier, results)
    train(name, results)
    trials = sweep.load(results / name).trials
    assert set(trials["status"]) <= {"completed", "pruned", "interrupted"}
    assert "completed" in set(trials["status"])
    expected = spec.trials
    searched = trials[trials["role"] == "search"]
    assert (
        expected is None
        or spec.metrics[0].target is not None
        or len(searched) == expected * spec.trials_each
    )
    for row in trials.to_dict("records"):
        columns = {name: row.get(f"param.{name}") for name in spec.space.names}
        params = {
            name: value for name, value in columns.items() if value is not None and value == value
        }
        assert spec.space.list_violated(params) == []
        for parameter in spec.space.parameters:
            assert (parameter.name in params) == parameter.applies(params), parameter.name
            if parameter.name in params:
                assert contains(parameter.domain, params[parameter.name]), parameter.name
        assert row["status"] != "completed" or row["epochs"] == spec.trial_epochs(params)
