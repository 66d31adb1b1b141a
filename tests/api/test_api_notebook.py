"""Sweeps in a notebook: the view in a cell, and a whole notebook with a kernel of its own."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweep.api.running import NotebookView, is_here, make_viewer_here
from sweep.events import EpochReported, SessionStarted, Status, TrialEnded, TrialStarted
from sweep.render.live import LiveView, on_terminal
from sweep.runner import Options
from sweep.spec import parse_spec
from sweep.store.folder import ResultsFolder

SPEC = parse_spec("trainable: m:T\nmethod: grid\nparameters: {x: {values: [1, 2]}}\n", "two.yaml")
EVENTS = (
    SessionStarted(time=1.0, resumed=False, version="1"),
    TrialStarted(trial=0, trial_id="t0", params={"x": 1}, seed=0, repeat=0, time=1.0),
    EpochReported(trial=0, epoch=1, metrics={"val_loss": 0.5}, time=2.0, time_s=1.0),
    TrialEnded(trial=0, status=Status.COMPLETED, reason="", time=3.0),
)


def test_the_view_is_drawn_in_one_place_and_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    drawn: list[str] = []
    view = NotebookView(on_terminal(SPEC, Options(quiet=True)), drawn.append)
    view.say("note: <script>\x1b[31m")
    view.replay(())
    for event in EVENTS:
        view.on(event)
    view.close()
    view.close()
    text = re.sub(r"<[^>]*>", "", drawn[-1])
    assert drawn[0] == '<pre style="opacity:.7">note: &lt;script&gt;</pre>'
    assert "note: &lt;script&gt;" in text
    assert "1 completed" in text
    assert "0.5000" in text
    assert capsys.readouterr() == ("", "")


def test_a_debugger_has_the_terminal_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    eager = replace(SPEC, training={**SPEC.training, "run_eagerly": True})
    draws = []
    for spec, inline in ((SPEC, True), (eager, False), (eager, True)):
        view = make_viewer_here(spec, (), Options(inline=inline))(
            ResultsFolder(tmp_path), sys.stdout
        )
        assert isinstance(view, LiveView)
        draws.append(not view.plain)
    assert draws == [True, True, False]


def test_a_test_is_no_notebook() -> None:
    assert not is_here()


CELLS = [
    """
import os, sys, time, sweep, keras, optuna
from sklearn.datasets import load_wine
from trainables.keras_trainable import KerasTrainable

class Wine(KerasTrainable):
    def data(self, hp):
        x, y = load_wine(return_X_y=True)
        x = ((x - x.mean(0)) / x.std(0)).astype("float32")
        return (x[::2], y[::2].astype("int32")), (x[1::2], y[1::2].astype("int32"))
    def model(self, hp):
        return keras.Sequential([keras.Input((13,)), keras.layers.Dense(hp.integer("units")), keras.layers.Dense(3)])

space = {
    "method": "grid",
    "metric": {"name": "val_accuracy", "goal": "maximize"},
    "parameters": {"units": {"values": [4, 8]}, "batch_size": {"value": 16}},
    "epochs": 2,
}
""",
    "done = sweep.run(space, trainable=Wine, inline=True)",
    "print('out'); print('err', file=sys.stderr); os.write(2, b'raw\\n'); time.sleep(0.5)",
    "done",
    "again = sweep.run(space, trainable=Wine, memo=False, name='on_ray', max_concurrent=1)",
    "bool((again.curves() == done.curves()).all().all()), again.study().best_trial.number, again.curves().shape",
    "again.model().count_params() in (71, 139)",
    """
def train(hp, report):
    while report(loss=hp.x / (report.epoch + 1)):
        pass
space = {"method": "grid", "metric": {"name": "loss"}, "parameters": {"x": {"values": [1, 2]}}}
sweep.run(space, trainable=train, inline=True)
""",
]


def _outputs(cell: Any, kind: str) -> list[Any]:
    return [output for output in cell.outputs if output.output_type == kind]


@pytest.mark.exhaustive
@pytest.mark.ray
@pytest.mark.keras
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the client's own
def test_a_notebook_runs_its_own_class_inline_and_on_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbclient
    import nbformat

    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), _path())))
    )
    # a kernel that sees it does not look at its file descriptors
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(
        notebook, timeout=1500, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    _, inline, output, shown, on_ray, numbers, model, function = notebook.cells
    for cell in (inline, on_ray):
        (view,) = _outputs(cell, "display_data")  # one, drawn anew in place
        text = re.sub(r"<[^>]*>", "", view.data["text/html"])
        assert "2 completed" in text
        assert not _outputs(cell, "error")
    assert sorted("".join(one.text for one in _outputs(output, "stream")).split()) == [
        "err",
        "out",
        "raw",
    ]
    assert (
        "<b>Wine</b>: finished; 2 completed"
        in _outputs(shown, "execute_result")[0].data["text/html"]
    )
    assert _outputs(numbers, "execute_result")[0].data["text/plain"].startswith("(True, ")
    assert _outputs(numbers, "execute_result")[0].data["text/plain"].endswith("(2, 2))")
    assert _outputs(model, "execute_result")[0].data["text/plain"] == "True"
    assert (
        "<b>train</b>: finished; 2 completed"
        in _outputs(function, "execute_result")[0].data["text/html"]
    )


def _path() -> str:
    return os.environ.get("PYTHONPATH", "")
