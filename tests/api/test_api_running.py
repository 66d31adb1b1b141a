"""Sweeps run from Python, in this process: what comes back, what goes wrong, and what the process keeps."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import sweep
from sweep.backends import STOP_FILE
from sweep.cli import main
from sweep.contract import Assignment
from sweep.errors import SweepError
from sweep.events import EpochReported, Facts
from sweep.hyperparameters import Hyperparameters

SPACE = {
    "method": "grid",
    "metric": {"name": "loss"},
    "parameters": {"x": {"values": [3, 1, 2]}},
    "epochs": 2,
}
FILE = """
trainable: nowhere:train
method: grid
metric: {name: loss}
parameters: {x: {values: [3, 1, 2]}}
epochs: 2
"""


def train(hp: Hyperparameters, report: Any) -> None:
    while report(loss=hp.number("x") / (report.epoch + 1)):
        pass


def run(what: Any = SPACE, trainable: Any = train, **more: Any) -> sweep.LoadedSweep:
    return sweep.run(what, trainable=trainable, **{"inline": True, "quiet": True, **more})


def test_a_mapping_and_a_function_give_what_load_gives(project: Path) -> None:
    done = run()
    assert done.trials["status"].tolist() == ["completed"] * 3
    assert done.best()["param.x"].tolist() == [1]
    assert done.trials.equals(sweep.load("train").trials)
    assert done.info["spec"]["trainable"] == "test_api_running:train"
    assert (project / "results" / "train" / "spec.yaml").exists()


def with_some_not_finite(hp: Hyperparameters, report: Any) -> None:
    size = {3: float("nan"), 4: -float("inf")}.get(hp.integer("x"), hp.number("x"))
    while report(acc=hp.number("x"), size=size):
        pass


@pytest.mark.parametrize("names", [("acc", "size"), ("size", "acc")])
@pytest.mark.parametrize("constraints", [[], ["size <= 9"]])
def test_a_trial_diverges_in_its_first_epoch_whichever_objective_is_not_finite(
    project: Path, names: tuple[str, str], constraints: list[str]
) -> None:
    space = {
        "method": "grid",
        "metrics": [{"name": name, "goal": "minimize"} for name in names],
        "parameters": {"x": {"values": [1, 2, 3, 4]}},
        "epochs": 3,
        "constraints": constraints,
    }
    done = run(space, with_some_not_finite)
    assert done.trials["status"].tolist() == ["completed", "completed", "diverged", "diverged"]
    assert done.trials["status_reason"].tolist()[2:] == [
        "size is nan in epoch 1",
        "size is -inf in epoch 1",
    ]
    assert done.trials["epochs"].tolist() == [3, 3, 1, 1]


def with_a_large_number(hp: Hyperparameters, report: Any) -> None:
    report(loss=hp.number("x"), params=10**5000)


class LargeNumber:
    """A trainable whose metric no float can hold."""

    def begin(self, assignment: Assignment) -> None: ...

    def train(self, report: Any) -> None:
        metrics = {"loss": 1.0, "params": 10**400}
        report(EpochReported(trial=0, epoch=1, metrics=metrics, time=0.0, time_s=0.0))

    def save(self, folder: Path) -> None: ...

    def restore(self, folder: Path) -> int:
        return 0

    def facts(self) -> Facts:
        return Facts()


@pytest.mark.parametrize("trainable", [with_a_large_number, LargeNumber])
def test_a_number_too_large_for_a_float_names_its_metric(project: Path, trainable: Any) -> None:
    with pytest.raises(SweepError, match=r"trial 0 failed, .*params is too large for a float"):
        run(trainable=trainable)


def test_a_file_is_run_with_another_trainable(project: Path) -> None:
    (project / "grid.yaml").write_text(FILE)
    assert run("grid.yaml", name="other").name == "other"
    assert run(project / "grid.yaml", set=["epochs=1"]).metrics["epoch"].max() == 1


def test_what_only_a_cluster_can_import_is_no_mistake_where_that_runs_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "there.py").write_text(
        "import only_of_the_cluster\n\ndef train(hp, report):\n    report(loss=hp['x'])\n"
    )
    with pytest.raises(sweep.InputError, match="only_of_the_cluster"):
        run(trainable="there:train")

    class Reached(Exception):
        pass

    def joined(*given: Any) -> None:
        raise Reached

    monkeypatch.setattr("sweep.api.running.session.run_sweep", joined)
    with pytest.raises(Reached):
        run(trainable="there:train", inline=False, address="head:6379")


def test_a_mapping_without_a_name_takes_the_trainable_s_and_counts_on(project: Path) -> None:
    names = [
        run().name,
        run().name,
        run({**SPACE, "trainable": train}, None).name,
        run(name="mine").name,
    ]
    assert names == ["train", "train-2", "train-3", "mine"]
    with pytest.raises(sweep.InputError, match="holds a sweep already"):
        run(name="mine")


def test_options_are_those_of_the_command_line(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(
        set={"epochs": 1, "metric.goal": "maximize"},
        run_cap=2,
        results=project / "elsewhere",
        memo=False,
    )
    assert (len(done.trials), done.metrics["epoch"].max(), done.best()["param.x"].item()) == (
        2,
        1,
        3,
    )
    assert (project / "elsewhere" / "train").is_dir()
    assert not (project / "results").exists()
    monkeypatch.setenv("SWEEP_SET", "epochs=3")
    assert run(results="elsewhere").metrics["epoch"].max() == 3


def test_an_option_that_there_is_not_is_refused_as_python_does() -> None:
    with pytest.raises(
        TypeError,
        match=r"run\(\) got an unexpected keyword argument 'inlin'; did you mean 'inline'\?",
    ):
        sweep.run({}, inlin=True)


def test_values_of_numpy_and_python_are_values_of_a_file(project: Path) -> None:
    values = {
        "x": {"values": np.array([1.0, 2.0])},
        "y": {"value": Path("a/b")},
        "z": {"values": range(2)},
    }

    def many(hp: Hyperparameters) -> float:
        return hp.number("x") + len(hp.text("y")) + hp.integer("z")

    done = run({**SPACE, "parameters": values, "epochs": np.int64(1)}, many)
    assert len(done.trials) == 4


class Half:
    def begin(self) -> None:
        pass


@pytest.mark.parametrize(
    ("changes", "options", "messages"),
    [
        (
            {"method": "gird", "epochs": 0},
            {},
            ["sweep.run: method: text 'gird'", "sweep.run: epochs: number 0"],
        ),
        (
            {},
            {"max_concurrent": 0, "run_cap": -1},
            ["max_concurrent: 0, expected a whole", "run_cap: number -1"],
        ),
        (
            {"parameters": {"x": {"values": [1, object()]}}},
            {},
            ["sweep.run: parameters.x.values[1]: a object"],
        ),
        (
            {"parameters": {"q" * 3: {"value": 1}}},
            {},
            [f"parameters.{'q' * 3}: nothing in ", "reads it"],
        ),
        ({}, {"set": "epochs=1"}, ["set: 'epochs=1' is a text"]),
        ({}, {"set": {"epochs": object()}}, ["set: Object of type object is not JSON"]),
        ({}, {"set": ["epoch=1"]}, ["--set epoch=1: epoch: unknown key; did you mean 'epochs'?"]),
        ({}, {"trainable": 5}, ["trainable: int is 5, expected a class or a function"]),
        (
            {},
            {"trainable": Half},
            ["trainable: Half lacks the methods train, save, restore, facts"],
        ),
        ({}, {"trainable": "nowhere:No"}, ["sweep.run: trainable: no module 'nowhere'"]),
        (
            {},
            {"trainable": "__main__:No"},
            ["No was defined in a notebook or script, and is not defined in this one"],
        ),
        ({}, {"trainable": None}, ["sweep.run: trainable: missing"]),
        ({}, {"what": 5}, ["sweep.run: got 5; expected a sweep file or a mapping"]),
        ({}, {"what": "nowhere.yaml"}, ["nowhere.yaml: no such file"]),
    ],
)
def test_mistakes_are_all_told_before_anything_starts(
    project: Path, changes: dict[str, Any], options: dict[str, Any], messages: list[str]
) -> None:
    with pytest.raises(sweep.InputError) as caught:
        run(**{"what": {**SPACE, **changes}, **options})
    for message in messages:
        assert message in str(caught.value)
    assert not (project / "results").exists()


def test_a_sweep_without_a_completed_trial_raises_with_the_first_reason(project: Path) -> None:
    def broken(hp: Hyperparameters) -> None:
        raise ValueError(f"no such x: {hp.x}")

    with pytest.raises(
        sweep.SweepError,
        match=r"no trial has completed: trial 0 failed, ValueError: test_api_running.py:.* no such x: 3; see",
    ):
        run(trainable=broken)
    assert sweep.load("broken").trials["status"].tolist() == ["failed"] * 3


def test_what_no_module_has_is_known_by_its_text(project: Path) -> None:
    def make(width: int) -> Any:
        def local(hp: Hyperparameters) -> float:
            return hp.number("x") * width

        local.data = "none"
        return local

    run(trainable=make(2), name="first")
    same, other = run(trainable=make(2), name="same"), run(trainable=make(3), name="other")
    assert same.info["spec"]["trainable"] == "__main__:local"
    assert same.trials["memo"].notna().all()
    assert other.trials["memo"].isna().all()
    with pytest.raises(
        sweep.InputError, match=r"parameters\.y: nothing in __main__:local reads it"
    ):
        run({**SPACE, "parameters": {"x": {"value": 1}, "y": {"value": 1}}}, make(2))


def interrupting(times: int, left: threading.Event) -> Any:
    """A function that behaves as if a user pressed Ctrl-C in the second epoch of the second trial."""

    def train(hp: Hyperparameters, report: Any) -> None:
        while True:
            if (report.trial, report.epoch) == (1, 1) and not Path("pressed").exists():
                Path("pressed").touch()
                os.kill(os.getpid(), signal.SIGINT)
                while not any(Path("results/it").glob(f"{STOP_FILE}*")):
                    threading.Event().wait(0.01)
                if times == 2:  # only now: two signals before the first is noticed are one
                    os.kill(os.getpid(), signal.SIGINT)
                    left.wait(60)
            if not report(loss=hp.number("x")):
                return

    return train


@pytest.mark.parametrize(
    ("times", "message", "state"),
    [(1, "the sweep was interrupted", "interrupted"), (2, "stopped at once", "running")],
)
def test_an_interrupted_sweep_says_how_to_go_on_and_goes_on(
    project: Path, times: int, message: str, state: str
) -> None:
    before, left = signal.getsignal(signal.SIGINT), threading.Event()
    with pytest.raises(
        KeyboardInterrupt,
        match=rf"{message}; see sweep\.load\('it'\), go on with sweep\.resume\('it'\)",
    ):
        run({**SPACE, "epochs": 3}, trainable=interrupting(times, left), name="it")
    left.set()
    assert signal.getsignal(signal.SIGINT) is before
    assert state in sweep.load("it").trials["status"].tolist()
    with pytest.raises(
        sweep.InputError,
        match="train was defined in a notebook or script, and is not defined in this",
    ):
        sweep.resume("it", inline=True)
    done = sweep.resume("it", trainable=interrupting(times, left), inline=True, quiet=True)
    assert done.trials["status"].tolist() == ["completed"] * 3
    assert done.metrics.groupby("trial").size().tolist() == [3, 3, 3]


def test_resume_extends_a_sweep(project: Path) -> None:
    run(run_cap=1, name="it")
    assert len(sweep.resume("it", run_cap=2, inline=True, quiet=True).trials) == 2
    with pytest.raises(sweep.InputError, match="a sweep that has begun can change run_cap"):
        sweep.resume("it", set={"epochs": 5}, inline=True)


def test_finalists_are_confirmed(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def noisy(hp: Hyperparameters, report: Any) -> None:
        noise = np.random.default_rng(report.seed).normal()
        while report(loss=hp.number("x") + 0.01 * noise):
            pass

    first = run(trainable=noisy, name="it")
    assert set(first.trials["role"]) == {"search"}
    found = sweep.confirm(
        "it", seeds=3, finalists=2, budget="none", trainable=noisy, inline=True, quiet=True
    )
    fresh = found.trials[found.trials["role"] == "confirm"]
    # all: equal differences need seven
    assert sorted(fresh.groupby("param.x").size().items()) == [
        (1, 3),
        (2, 3),
    ]
    assert fresh["status"].eq("completed").all()
    again = sweep.confirm("it", trainable=noisy, inline=True, quiet=True)  # of what is said before
    assert len(again.trials) == len(found.trials)
    assert capfd.readouterr().err == ""  # a function has no test
    with pytest.raises(sweep.InputError, match="seeds: 0, expected a whole number from 1"):
        sweep.confirm("it", seeds=0)
    with pytest.raises(sweep.InputError, match=r"confirm\.budget: text 'half'"):
        sweep.confirm("it", budget="half")


def test_the_process_keeps_its_environment_search_path_and_output(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    environment, path = dict(os.environ), list(sys.path)
    run()
    assert (dict(os.environ), sys.path) == (environment, path)
    os.write(2, b"still here")
    assert capfd.readouterr() == ("", "still here")
    run(quiet=False, verbose=True)
    out, err = capfd.readouterr()
    assert "[3/3]" in out
    assert "debug.log" in out
    assert err == ""


def test_a_sweep_runs_in_another_thread_and_no_second_one_beside_it(project: Path) -> None:
    caught: list[BaseException] = []
    found: list[sweep.LoadedSweep] = []

    def nested(hp: Hyperparameters) -> float:
        try:
            run(name="second")
        except sweep.InputError as error:
            caught.append(error)
        return 1.0

    thread = threading.Thread(target=lambda: found.append(run(trainable=nested, run_cap=1)))
    thread.start()
    thread.join()
    assert found[0].trials["status"].tolist() == ["completed"]
    assert "a sweep is running in this process" in str(caught[0])


def test_the_package_says_what_it_has() -> None:
    assert {"run", "resume", "confirm", "load", "InputError", "SweepError", "LoadedSweep"} <= set(
        dir(sweep)
    )


def test_the_command_line_cannot_go_on_with_a_class_of_a_notebook_and_says_what_can(
    project: Path,
) -> None:
    def local(hp: Hyperparameters) -> float:
        return hp.number("x")

    run(trainable=local)
    for command in (["resume", "local", "--inline"], ["plan", "results/local/spec.yaml"]):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 2
        assert (
            "trainable: local was defined in a notebook or script, and no module has it; give it in Python, as in "
            in (result.output)
        )


def test_a_function_in_a_file_is_planned_and_run_by_the_command_line(project: Path) -> None:
    (project / "my_train.py").write_text(
        "def train(cfg, report):\n    while report(loss=cfg['x'] / (report.epoch + 1)):\n        pass\n"
    )
    (project / "fn.yaml").write_text(FILE.replace("nowhere", "my_train"))
    timed = CliRunner().invoke(main, ["plan", "fn.yaml", "--time"])
    assert (timed.exit_code, "s an epoch" in timed.output) == (0, True), timed.output
    assert CliRunner().invoke(main, ["run", "fn.yaml", "--inline"]).exit_code == 0
    wrong = CliRunner().invoke(main, ["plan", "fn.yaml", "--set", "parameters.lr.value=1"])
    assert (
        wrong.exit_code,
        "parameters.lr: nothing in my_train:train reads it" in wrong.output,
    ) == (2, True)


def test_a_given_function_is_not_mixed_up_with_one_of_a_module_of_the_same_name(
    project: Path,
) -> None:
    # It would be trained by workers that import it by its name.
    (project / "test_api_running.py").write_text("def train(hp, report):\n    report(loss=0)\n")
    done = run()  # the other one reads no x, which would be refused
    assert done.info["import_folders"][0] == str(Path(__file__).parent)


def test_what_was_run_knows_its_trainable_wherever_that_was_defined(project: Path) -> None:
    """Each of two classes of one name, made in a loop of a function, is trained, loaded and retrained as itself."""
    found = []
    for factor in (1.0, 10.0):

        class Walk:
            def begin(self, assignment: Assignment) -> None:
                self.given, self.done = assignment, 0

            def train(self, report: Any, factor: float = factor) -> None:
                while self.done < self.given.epochs:
                    self.done += 1
                    loss = float(self.given.params["x"]) * factor / self.done
                    epoch = EpochReported(
                        trial=0, epoch=self.done, metrics={"loss": loss}, time=0.0, time_s=0.1
                    )
                    if not report(epoch):
                        return

            def save(self, folder: Path) -> None:
                (folder / "done").write_text(str(self.done))

            def restore(self, folder: Path) -> int:
                self.done = int((folder / "done").read_text())
                return self.done

            def facts(self) -> Facts:
                return Facts()

            def trained_model(self, factor: float = factor) -> tuple[object, float]:
                return self.given.params["x"], factor

        found.append(run(trainable=Walk, memo=False))
    for factor, done in zip((1.0, 10.0), found, strict=True):
        assert done.model() == (1, factor)
        confirmed = done.confirm(seeds=2, budget="none", inline=True, quiet=True)
        assert set(confirmed.trials["role"]) == {"search", "confirm"}
        assert confirmed.model(0) == (3, factor)
        again = done.retrain(epochs=4, seeds=2, inline=True, quiet=True)
        assert again.name == f"{done.name}-retrain"
        assert again.trials["objective"].tolist() == [factor / 4] * 2
        assert again.model() == (1, factor)
    with pytest.raises(sweep.InputError, match="Walk was defined in a notebook or script"):
        sweep.load(found[0].name).model()


def test_the_options_of_retrain_are_checked(project: Path) -> None:
    run()
    with pytest.raises(sweep.InputError, match=r"seeds: 0, expected a whole number from 1"):
        sweep.retrain("train", seeds=0, inline=True)
    again = sweep.retrain(
        "train", trial=0, into="longer", set={"epochs": 3}, inline=True, quiet=True
    )
    assert (again.name, again.metrics["epoch"].max(), again.trials["param.x"].tolist()) == (
        "longer",
        3,
        [3],
    )
