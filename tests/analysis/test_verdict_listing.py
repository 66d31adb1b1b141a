import dataclasses
import json

from sweep.analysis.verdict import list_summaries
from sweep.events import Status
from sweep.store.folder import ResultsFolder

DONE = (Status.COMPLETED, [{"acc": 0.5}])


def test_each_sweep_is_told_at_a_glance(sweep_of, tmp_path):
    results = tmp_path / "results"
    done = sweep_of([({"x": 0}, *DONE), ({"x": 1}, Status.COMPLETED, [{"acc": 0.7}])], "done")
    sweep_of([({"x": 0}, Status.PRUNED, [{"acc": 0.9}])], "stopped", ended="budget")
    sweep_of([({"x": 0}, *DONE), ({"x": 1}, Status.RUNNING, [])], "killed", ended=None)
    ResultsFolder.create(results, "empty", "", {"objectives": []})
    running = sweep_of([], "watched", ended=None)
    (results / "broken").mkdir()
    (results / "broken" / "log.jsonl").touch()
    with running.lock():
        listed = {one.name: one for one in list_summaries(results)}
    assert {name: one.state for name, one in listed.items()} == {
        "done": "finished",
        "stopped": "budget",
        "killed": "unfinished",
        "empty": "unfinished",
        "watched": "running",
        "broken": "damaged",
    }
    assert list(listed)[-2:] == ["broken", "empty"]  # those that never began
    first = listed["done"]
    assert (first.best, first.best_trial, first.metric, first.goal) == (0.7, 1, "acc", "maximize")
    assert (first.trials, first.duration_s) == ({"completed": 2}, 100.0)
    assert first.path == str(done.path)
    assert json.loads(json.dumps(dataclasses.asdict(first)))["trials"] == {"completed": 2}
    assert listed["stopped"].best is None
    assert listed["killed"].trials == {"completed": 1, "interrupted": 1}
    assert "sweep.json: No such file" in listed["broken"].reason


def test_a_folder_without_sweeps_lists_none(tmp_path):
    assert list_summaries(tmp_path) == list_summaries(tmp_path / "absent") == []
