"""Functions as trainables, driven by a worker as classes are."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from placed import without_place

from sweep.backends import Ends, Job, Order, Progress
from sweep.backends.worker import Worker
from sweep.contract import Assignment, Devices, Diverged
from sweep.errors import TrainableError
from sweep.events import EpochReported, Status
from sweep.functions import FunctionTrainable, Reporter
from sweep.hyperparameters import Hyperparameters
from sweep.space.objectives import Objective

JOB = Job("s", "__main__:train", (), Path(), Objective("loss", "minimize"), checkpoint_every_s=0.0)


@pytest.fixture
def worker_of(tmp_path: Path) -> Callable[[Any], Worker]:
    return lambda function: Worker(replace(JOB, results_folder=tmp_path, given=function))


def order(trial: int = 0, epochs: int = 4, decide: tuple[int, ...] = (), **params: Any) -> Order:
    return Order(
        Assignment(trial=trial, params=params, seed=7, epochs=epochs, objective="loss"), decide
    )


def finished(worker: Worker, given: Order) -> Progress:
    worker.take(given)
    return rest(worker)


def rest(worker: Worker) -> Progress:
    """The last step of a trial, with the epochs of all steps until then: on a busy machine there may be several."""
    epochs: list[EpochReported] = []
    while True:
        progress = worker.step()
        epochs += progress.epochs
        if isinstance(progress, Ends):
            return replace(progress, epochs=tuple(epochs))


def step_to(worker: Worker, epoch: int) -> list[int]:
    """Step until this epoch was reported; return the numbers of all epochs until then."""
    numbers: list[int] = []
    while epoch not in numbers:
        numbers += [one.epoch for one in worker.step().epochs]
    return numbers


def counting(told: list[str]) -> Callable[[Hyperparameters, Reporter], None]:
    """A function that notes what becomes of it."""

    def train(hp: Hyperparameters, report: Reporter) -> None:
        done = int((report.restored / "n").read_text()) if report.restored else 0
        told.append(f"from {done}")
        try:
            for epoch in range(done + 1, 100):
                if not report(
                    loss=1 / epoch,
                    checkpoint=lambda folder, n=epoch: (folder / "n").write_text(str(n)),
                ):
                    told.append(f"no after {epoch}")
                    return
        finally:
            told.append("clean")

    return train


def test_a_trial_is_trained_step_by_step_to_its_end(worker_of: Callable[[Any], Worker]) -> None:
    told: list[str] = []
    worker = worker_of(counting(told))
    worker.take(order(decide=(1, 3)))
    assert step_to(worker, 1) == [1]
    assert told == ["from 0"]
    assert step_to(worker, 3) == [2, 3]
    last = rest(worker)
    assert [epoch.metrics for epoch in last.epochs] == [{"loss": 0.25}]
    assert isinstance(last, Ends)
    assert (last.end.status, last.end.facts.checkpoint) == (
        Status.COMPLETED,
        "checkpoints/00000/epoch-000004",
    )
    assert told == ["from 0", "no after 4", "clean"]
    for thread in threading.enumerate():
        if thread.name == "trial-0":  # it has returned, and may be about to end
            thread.join(60)
            assert not thread.is_alive()


def test_a_pruned_function_stops_in_its_report_before_the_next_trial_begins(
    worker_of: Callable[[Any], Worker],
) -> None:
    told: list[str] = []
    worker = worker_of(counting(told))
    worker.take(order(decide=(1,)))
    step_to(worker, 1)
    worker.take(order(trial=1))
    assert told == ["from 0", "no after 1", "clean"]
    assert worker.step().epochs[0].trial == 1


def test_a_worker_that_is_closed_lets_go_of_its_function(
    worker_of: Callable[[Any], Worker],
) -> None:
    told: list[str] = []
    worker = worker_of(counting(told))
    worker.take(order(decide=(2,)))
    step_to(worker, 2)
    worker.close()
    assert told[-1] == "clean"


def test_a_stopped_function_goes_on_from_what_it_saved(
    worker_of: Callable[[Any], Worker], tmp_path: Path
) -> None:
    told: list[str] = []
    worker = worker_of(counting(told))
    worker.take(order(decide=(2,)))
    step_to(worker, 2)
    replace(JOB, results_folder=tmp_path).stop_file.touch()
    stopped = rest(worker).end
    assert stopped is not None
    assert (stopped.status, stopped.facts.checkpoint) == (
        Status.INTERRUPTED,
        "checkpoints/00000/epoch-000003",
    )
    replace(JOB, results_folder=tmp_path).stop_file.unlink()
    progress = finished(worker_of(counting(told)), order())
    assert isinstance(progress, Ends)
    assert progress.end.status is Status.COMPLETED
    assert told[-3:] == ["from 3", "no after 4", "clean"]


def test_a_function_that_saves_nothing_begins_anew_without_a_word(
    worker_of: Callable[[Any], Worker], tmp_path: Path
) -> None:
    def train(hp: Hyperparameters, report: Reporter) -> None:
        while report(loss=1 / (report.epoch + 1)):
            pass

    progress = finished(worker_of(train), order())
    assert isinstance(progress, Ends)
    assert (progress.end.facts.checkpoint, progress.notices) == (None, ())
    assert not list(tmp_path.rglob("epoch-*"))


def test_a_function_that_saves_and_does_not_restore_is_told_so(
    worker_of: Callable[[Any], Worker],
) -> None:
    def train(hp: Hyperparameters, report: Reporter) -> None:
        while report(loss=1.0, checkpoint=lambda folder: (folder / "x").touch()):
            pass

    worker = worker_of(train)
    worker.take(order(decide=(2,)))
    step_to(worker, 2)
    worker.close()
    progress = finished(worker_of(train), order(epochs=5))
    assert isinstance(progress, Ends)
    assert progress.end.status is Status.FAILED
    assert (
        "trial 0 goes on after epoch 2, and its function has not read report.restored"
        in progress.end.reason
    )


@pytest.mark.parametrize("kind", ["folder", "file", "text"])
def test_a_checkpoint_may_be_a_file_or_a_folder(
    worker_of: Callable[[Any], Worker], tmp_path: Path, kind: str
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "weights").write_text("w")
    given: Any = {"folder": own, "file": own / "weights", "text": str(own)}[kind]
    progress = finished(
        worker_of(lambda hp, report: report(loss=1.0, checkpoint=given)), order(epochs=1)
    )
    assert isinstance(progress, Ends)
    kept = tmp_path / str(progress.end.facts.checkpoint)
    assert (kept / "weights").read_text() == "w"


def raises(error: BaseException) -> Callable[[Any, Reporter], None]:
    def train(hp: Any, report: Reporter) -> None:
        report(loss=1.0)
        raise error

    return train


class OutOfMemoryError(RuntimeError):
    """As torch's."""


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (ValueError("no such thing"), Status.FAILED, "ValueError: no such thing"),
        (Diverged("the loss is NaN"), Status.DIVERGED, "the loss is NaN"),
        (MemoryError("no room"), Status.OOM, "MemoryError: no room"),
        (
            OutOfMemoryError("CUDA out of memory"),
            Status.OOM,
            "OutOfMemoryError: CUDA out of memory",
        ),
        (KeyboardInterrupt(), Status.FAILED, "KeyboardInterrupt: "),
        (SystemExit(3), Status.FAILED, "SystemExit: 3"),
    ],
)
def test_what_a_function_raises_ends_its_trial_as_for_classes(
    worker_of: Callable[[Any], Worker], error: BaseException, status: Status, reason: str
) -> None:
    worker = worker_of(raises(error))
    progress = finished(worker, order())
    assert isinstance(progress, Ends)
    assert (progress.end.status, without_place(progress.end.reason)) == (status, reason)
    if status is Status.FAILED:
        assert "in train" in str(progress.end.error)
    assert [epoch.epoch for epoch in progress.epochs] == [1]
    assert finished(worker, order(trial=1, epochs=1)).epochs[0].trial == 1


def test_a_function_that_splits_its_batches_is_tried_again_with_smaller_parts(
    worker_of: Callable[[Any], Worker],
) -> None:
    def train(hp: Hyperparameters, report: Reporter) -> None:
        if report.accumulate < 4:
            raise MemoryError("no room")
        while report(loss=1 / report.accumulate):
            pass

    progress = finished(worker_of(train), order(batch_size=8))
    assert isinstance(progress, Ends)
    assert (progress.end.status, progress.end.facts.accumulate) == (Status.COMPLETED, 4)
    assert progress.epochs[0].metrics == {"loss": 0.25}


def test_nan_ends_a_trial_as_diverged(worker_of: Callable[[Any], Worker]) -> None:
    told: list[bool] = []

    def train(hp: Hyperparameters, report: Reporter) -> None:
        told.append(report(loss=np.float32(2)))
        told.append(report(loss=float("nan")))

    progress = finished(worker_of(train), order())
    assert isinstance(progress, Ends)
    assert (progress.end.status, progress.end.reason) == (Status.DIVERGED, "loss is nan in epoch 2")
    assert told == [True, False]


def test_a_function_that_reports_on_though_it_was_told_to_stop_is_ended(
    worker_of: Callable[[Any], Worker],
) -> None:
    told: list[str] = []

    def train(hp: Hyperparameters, report: Reporter) -> None:
        try:
            while True:
                report(loss=1.0)
        except Exception:
            told.append("caught")
        finally:
            told.append("clean")

    progress = finished(worker_of(train), order())
    assert len(progress.epochs) == 4
    assert (told, progress.notices) == (["clean"], ())


def test_a_report_that_is_refused_counts_no_epoch(worker_of: Callable[[Any], Worker]) -> None:
    def train(hp: Hyperparameters, report: Reporter) -> None:
        with pytest.raises(TypeError, match="learning_rate is"):
            report(loss=1.0, learning_rate="0.1")
        report(loss=1.0, learning_rate=0.1)

    progress = finished(worker_of(train), order(epochs=1))
    assert [(report.epoch, report.learning_rate) for report in progress.epochs] == [(1, 0.1)]


def test_what_it_raises_when_it_is_told_to_end_is_a_notice(
    worker_of: Callable[[Any], Worker],
) -> None:
    def train(hp: Hyperparameters, report: Reporter) -> None:
        while report(loss=1.0):
            pass
        raise OSError("cannot clean up")

    progress = finished(worker_of(train), order(epochs=1))
    assert isinstance(progress, Ends)
    assert progress.end.status is Status.COMPLETED
    assert progress.notices == (
        "trial 0: its function raised OSError when it was told to end: cannot clean up",
    )


@pytest.mark.parametrize(
    ("function", "metrics"),
    [
        (lambda hp: 0.25, {"loss": 0.25}),
        (lambda hp: np.float64(0.25), {"loss": 0.25}),
        (lambda hp, report: {"loss": 0.25, "accuracy": 1}, {"loss": 0.25, "accuracy": 1.0}),
        (lambda hp, report: report({"loss": 0.25, "of/x": 2}), {"loss": 0.25, "of/x": 2.0}),
    ],
)
def test_a_function_may_return_what_it_would_report(
    worker_of: Callable[[Any], Worker], function: Callable[..., object], metrics: dict[str, float]
) -> None:
    progress = finished(worker_of(function), order())
    assert [epoch.metrics for epoch in progress.epochs] == [metrics]
    assert isinstance(progress, Ends)
    assert (progress.end.status, progress.end.reason) == (
        Status.COMPLETED,
        "the trainable stopped after epoch 1",
    )


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda hp, report: None, "returned without having reported an epoch"),
        (lambda hp, report: report(), "report() got no metric"),
        (lambda hp, report: report(loss=None), "report(): loss is None, expected a number"),
        (lambda hp, report: report(loss="0.5"), "report(): loss is '0.5', expected a number"),
        (lambda hp, report: report(loss=np.zeros(3)), "expected a number"),
        (
            lambda hp, report: report(loss=1, checkpoint="nowhere"),
            "report(checkpoint='nowhere'): no such file",
        ),
        (lambda hp, report: hp["x"], "the trial has no parameter 'x'; it has: batch_size"),
    ],
)
def test_mistakes_of_a_function_fail_its_trial_with_the_reason(
    worker_of: Callable[[Any], Worker], function: Callable[..., object], message: str
) -> None:
    end = finished(worker_of(function), order(batch_size=8)).end
    assert end is not None
    assert end.status is Status.FAILED
    assert message in end.reason


def test_the_report_knows_the_trial_and_takes_what_has_a_column_of_its_own(
    worker_of: Callable[[Any], Worker],
) -> None:
    seen: list[object] = []

    def train(hp: Hyperparameters, report: Reporter) -> None:
        seen.extend(
            [
                report.trial,
                report.seed,
                report.epochs,
                report.epoch,
                report.restored,
                report.devices.cpus,
            ]
        )
        report(loss=1.0, learning_rate=0.1, examples_per_s=5)
        seen.append(report.epoch)

    (epoch,) = finished(worker_of(train), order(trial=3)).epochs
    assert seen == [3, 7, 4, 0, None, 1, 1]
    assert (epoch.learning_rate, epoch.examples_per_s, epoch.metrics) == (0.1, 5.0, {"loss": 1.0})


def test_the_generators_of_a_process_begin_each_trial_with_its_seed(
    worker_of: Callable[[Any], Worker],
) -> None:
    worker = worker_of(lambda hp: float(np.random.random()))
    first, second = (finished(worker, order(trial=trial)).epochs[0].metrics for trial in (0, 1))
    assert first == second


def test_data_named_by_an_attribute_is_known_before_it_begins() -> None:
    def train(hp: Hyperparameters, report: Reporter) -> None:
        pass

    train.data = "digits 2024"
    trainable = FunctionTrainable(train)
    trainable.begin(Assignment(trial=0, params={}, seed=0, epochs=1))
    assert trainable.facts().data == "digits 2024"


def test_a_rehearsal_of_a_function_says_that_it_ran_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainable = FunctionTrainable(lambda hp, report: None)
    for seen, devices, said in (
        ("-1", Devices(gpus=1, simulated=True), "cpu"),
        ("0,1", Devices(gpus=2), "gpu:0,gpu:1"),
    ):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
        trainable.begin(Assignment(trial=0, params={}, seed=0, epochs=1, devices=devices))
        assert trainable.facts().devices == said


def test_a_function_that_cannot_be_called_so_is_refused() -> None:
    with pytest.raises(
        TrainableError, match=r"three\(a, b, c\) cannot be called as three\(hp, report\)"
    ):
        FunctionTrainable(three)


def three(a: object, b: object, c: object) -> None:
    pass


def test_a_function_that_makes_a_model_says_what_to_do(worker_of: Callable[[Any], Worker]) -> None:
    class Sequential:
        def compile(self) -> None: ...

        def fit(self) -> None: ...

    def build_model(hp: Hyperparameters) -> Sequential:
        return Sequential()

    progress = finished(worker_of(build_model), order())
    assert isinstance(progress, Ends)
    assert "returned a model (Sequential), expected its metrics" in progress.end.reason
    assert "init --from-hypermodel" in progress.end.reason


def test_a_checkpoint_knows_that_the_function_has_read_the_number_of_its_trial(
    worker_of: Callable[[Any], Worker], tmp_path: Path
) -> None:
    def train(hp: Hyperparameters, report: Reporter) -> None:
        (tmp_path / "state").touch()
        if report.restored is None:
            assert report.trial == 3
        while report(loss=1.0, checkpoint=tmp_path / "state"):
            pass

    worker = worker_of(train)
    worker.take(order(trial=3, decide=(2,)))
    step_to(worker, 2)
    replace(JOB, results_folder=tmp_path).stop_file.touch()
    rest(worker)
    replace(JOB, results_folder=tmp_path).stop_file.unlink()
    end = finished(worker_of(train), order(trial=3)).end
    assert end is not None
    assert end.facts.by_number


def fork_once(hp: Hyperparameters, report: Reporter) -> float | None:
    """Fork a process that ends in the way ``how``, and report its exit code."""
    process = os.fork()
    if process:
        report(loss=os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
        return None
    match hp["how"]:
        case "returns":
            return 0.5
        case "exits":
            sys.exit(3)
        case "says why":
            sys.exit("no data")
        case "reports":
            report(loss=0.5)
    raise ValueError("no such way")


@pytest.mark.parametrize(
    ("how", "code"),
    [("returns", 0), ("exits", 3), ("says why", 1), ("raises", 1), ("reports", 1)],
)
def test_processes_that_a_function_forks_end_by_themselves(
    worker_of: Callable[[Any], Worker], how: str, code: int
) -> None:
    end = finished(worker_of(fork_once), order(how=how, epochs=1))
    assert isinstance(end, Ends)
    assert [one.metrics for one in end.epochs] == [{"loss": code}]
