"""Patience, folds and the block `training` for functions: they act, or it is said that they do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.backends import Ends, Job, Order, Progress
from sweep.backends.worker import Worker
from sweep.contract import Assignment, Fold
from sweep.errors import TrainableError
from sweep.events import Status
from sweep.functions import Reporter
from sweep.hyperparameters import Hyperparameters
from sweep.space.objectives import Objective

JOB = Job("s", "__main__:train", (), Path(), Objective("loss", "minimize"), checkpoint_every_s=0.0)
CURVE = (5.0, 4.0, 3.0, 3.5, 3.0, 3.0, 2.0, 1.0)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Progress]:
    """Return a call that runs one trial of a function to its end in a worker."""

    def trial(
        function: Any, *, restarts_after: int = 0, settings: tuple[str, ...] = (), **given: Any
    ) -> Progress:
        job = replace(JOB, results_folder=tmp_path, given=function, settings=settings)
        asked = {
            "trial": 0,
            "params": {},
            "seed": 7,
            "epochs": len(CURVE),
            "objective": "loss",
            **given,
        }
        order = Order(Assignment(**asked), decision_epochs=(restarts_after,))
        worker = Worker(job)
        worker.take(order)
        epochs: tuple[Any, ...] = ()
        notices: tuple[str, ...] = ()
        while True:
            progress = worker.step()
            epochs, notices = epochs + progress.epochs, notices + progress.notices
            if isinstance(progress, Ends):
                return replace(progress, epochs=epochs, notices=notices)
            if len(epochs) == restarts_after:
                worker, restarts_after = Worker(job), 0
                worker.take(order)

    return trial


def follow_the_curve(hp: Hyperparameters, report: Reporter) -> None:
    first = report.epoch if report.restored else 0
    for loss in CURVE[first:]:
        if not report(
            loss=loss, gain=-loss, checkpoint=lambda folder: (folder / "x").write_text("x")
        ):
            return


@pytest.mark.parametrize(("patience", "epochs"), [(1, 4), (2, 5), (3, 6), (4, 8), (None, 8)])
def test_patience_ends_a_function_as_it_ends_a_keras_model(
    run: Callable[..., Progress], patience: int | None, epochs: int
) -> None:
    progress = run(follow_the_curve, training={"patience": patience})
    assert len(progress.epochs) == epochs
    assert isinstance(progress, Ends)
    assert progress.end.status is Status.COMPLETED
    early = f"the trainable stopped after epoch {epochs}: no better objective in {patience} epochs (training.patience)"
    assert progress.end.reason == (early if epochs < 8 else "")


def test_patience_follows_the_direction_of_the_objective(run: Callable[..., Progress]) -> None:
    progress = run(follow_the_curve, training={"patience": 2}, objective="gain", maximize=True)
    assert len(progress.epochs) == 5


def test_patience_goes_on_counting_after_a_restart(run: Callable[..., Progress]) -> None:
    progress = run(follow_the_curve, training={"patience": 3}, restarts_after=5)
    assert isinstance(progress, Ends)
    assert progress.end.reason.startswith(
        "the trainable stopped after epoch 6: no better objective in 3 epochs"
    )


def test_a_function_hears_that_its_patience_is_over(run: Callable[..., Progress]) -> None:
    answers: list[bool] = []

    def train(hp: Hyperparameters, report: Reporter) -> None:
        while not answers or answers[-1]:
            answers.append(report(loss=1.0))

    run(train, training={"patience": 2})
    assert answers == [True, True, False]


def test_a_function_is_given_its_fold(run: Callable[..., Progress]) -> None:
    def train(hp: Hyperparameters, report: Reporter) -> dict[str, float]:
        assert report.fold is not None
        return {"loss": report.fold, "folds": report.folds or 0}

    progress = run(train, fold=Fold(2, 5, seed=7))
    assert progress.epochs[0].metrics == {"loss": 2.0, "folds": 5.0}


def test_without_folds_there_is_none(run: Callable[..., Progress]) -> None:
    def train(hp: Hyperparameters, report: Reporter) -> float:
        return float(report.fold is None and report.folds is None)

    assert run(train).epochs[0].metrics == {"loss": 1.0}


def test_a_function_that_never_looks_at_its_fold_is_refused(run: Callable[..., Progress]) -> None:
    progress = run(follow_the_curve, fold=Fold(0, 3, seed=7))
    assert isinstance(progress, Ends)
    assert (progress.end.status, progress.end.incompatible) == (Status.FAILED, True)
    assert (
        "the file asks for 3 folds, and the function reports without having read report.fold"
        in progress.end.reason
    )


def test_settings_that_a_function_does_not_read_are_told_once(run: Callable[..., Progress]) -> None:
    def train(hp: Hyperparameters, report: Reporter) -> float:
        return len(str(report.training["precision"]))

    given = {"precision": "float32", "jit_compile": True, "patience": 3}
    progress = run(train, training=given, settings=tuple(given))
    assert progress.notices == (
        "nothing has read training.jit_compile in a whole epoch, so it has no effect",
    )


def test_a_copy_of_the_block_reads_all_of_it(run: Callable[..., Progress]) -> None:
    def train(hp: Hyperparameters, report: Reporter) -> float:
        return len(dict(report.training))

    given = {"precision": "float32", "jit_compile": True}
    assert run(train, training=given, settings=tuple(given)).notices == ()


FILE = {
    "name": "folded",
    "method": "grid",
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"x": {"values": [1.0, 2.0]}},
    "epochs": 1,
    "folds": 3,
}


def test_a_sweep_over_folds_leaves_each_part_out_once(tmp_path: Path) -> None:
    def train(hp: Hyperparameters, report: Reporter) -> dict[str, float]:
        assert report.fold is not None
        assert report.folds is not None
        held_out = list(range(12))[report.fold :: report.folds]
        return {"loss": hp.number("x") + report.fold, "first": held_out[0], "seed": report.seed}

    done = sweep.run(FILE, trainable=train, results=tmp_path, inline=True, quiet=True)
    assert list(done.trials["metric.first"]) == [0, 1, 2, 0, 1, 2]
    assert set(done.trials["metric.seed"]) == {0}  # one cut for all folds of a repeat


def test_a_refusal_that_follows_from_the_file_ends_the_sweep_with_its_first_trial(
    tmp_path: Path,
) -> None:
    def train(hp: Hyperparameters, report: Reporter) -> None:
        list(map(str, [report]))  # hands it to somebody else, who may read anything
        report(loss=hp.number("x"))

    with pytest.raises(TrainableError, match="the file asks for 3 folds, and the function"):
        sweep.run(FILE, trainable=train, results=tmp_path, inline=True, quiet=True)
    assert len(sweep.load(tmp_path / "folded").trials) == 1
