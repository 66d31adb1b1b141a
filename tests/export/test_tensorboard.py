"""Event files: what TensorBoard's own readers find in them, and that they follow the log to the byte."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hostile import BEGAN, STATUSES, story, trial
from waiting import until

from sweep.errors import InputError, StoreError
from sweep.events import (
    EpochReported,
    Event,
    Role,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.export.tensorboard import EventFiles, LiveEventFiles
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

pytest.importorskip("tensorboard", reason="an extra of its own")


@pytest.fixture(autouse=True)
def without_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard's switch for its own small substitute, for its readers take what is there."""
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))


def write(folder: ResultsFolder, target: Path) -> int:
    files = EventFiles(folder, target)
    try:
        return files.update()
    finally:
        files.close()


def content(target: Path) -> dict[str, bytes]:
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("events*")}


def append(folder: ResultsFolder, events: list[Event]) -> None:
    with Log(folder.log) as log:
        log.append(events)


def test_scalars_by_epoch(hostile: ResultsFolder, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert write(hostile, tmp_path) == len(STATUSES)
    run = EventAccumulator(str(tmp_path / "00001"))
    run.Reload()
    assert {
        "val/acc",
        "cost",
        "f1=macro",
        "größe",
        "run/time_s",
        "run/step_s",
        "run/learning_rate",
    } == (set(run.Tags()["scalars"]))
    found = run.Scalars("val/acc")
    assert [(one.step, one.wall_time) for one in found] == [
        (epoch, BEGAN + 10 + epoch) for epoch in (1, 2, 3)
    ]
    assert [one.value for one in found] == pytest.approx([0.11, 0.12, 0.13], abs=1e-7)
    assert math.isinf(run.Scalars("cost")[0].value)  # TensorBoard has 32 bits
    assert math.isnan(run.Scalars("f1=macro")[0].value)
    text = run.Tensors("status")[0].tensor_proto.string_val[0].decode()
    assert text == "" or text.startswith(STATUSES[1].value)


def test_a_measure_does_not_replace_what_is_told_of_every_epoch(
    made: Callable[..., ResultsFolder], tmp_path: Path
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    epoch = EpochReported(
        trial=0, epoch=1, metrics={}, time=BEGAN + 1, time_s=0.5, measures={"time_s": 7.0}
    )
    write(made([trial(0, Status.RUNNING)[0], epoch]), tmp_path)
    run = EventAccumulator(str(tmp_path / "00000"))
    run.Reload()
    assert [run.Scalars(tag)[0].value for tag in ("run/time_s", "run/measure.time_s")] == [0.5, 7.0]


def groups(target: Path) -> tuple[Any, list[Any]]:
    """The experiment and its session groups, as the HParams tab has them."""
    from tensorboard import context
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

    runs = plugin_event_multiplexer.EventMultiplexer()
    runs.AddRunsFromDirectory(str(target))
    runs.Reload()
    provider = data_provider.MultiplexerDataProvider(runs, str(target))
    backend = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    asked = context.RequestContext()
    experiment = backend.experiment_from_metadata(
        asked, "", True, backend.hparams_metadata(asked, ""), None
    )
    request = api_pb2.ListSessionGroupsRequest(
        start_index=0,
        slice_size=100,
        allowed_statuses=[0, 1, 2, 3],
        aggregation_type=api_pb2.AGGREGATION_AVG,
    )
    for metric in experiment.metric_infos:
        request.col_params.add(metric=metric.name)
    return experiment, list(
        list_session_groups.Handler(asked, backend, "", request).run().session_groups
    )


def test_folds_and_repeats_of_a_configuration_are_one_group(tmp_path: Path) -> None:
    info = {
        "objectives": [{"name": "loss", "goal": "minimize"}],
        "spec": {"repeats": 2, "folds": 2},
    }
    folder = ResultsFolder.create(tmp_path / "results", "folded", "", info)
    events: list[Event] = []
    for number in range(8):
        places = {"repeat": number % 4 // 2, "fold": number % 2}
        started = TrialStarted(
            trial=number, trial_id="", params={"lr": number // 4}, seed=0, time=0.0, **places
        )
        reported = EpochReported(trial=number, epoch=1, metrics={"loss": 1.0}, time=1.0, time_s=1.0)
        events += [
            started,
            reported,
            TrialEnded(trial=number, status=Status.COMPLETED, reason="", time=2.0),
        ]
    append(folder, events)
    write(folder, tmp_path / "events")
    _, found = groups(tmp_path / "events")
    assert {group.name: len(group.sessions) for group in found} == {"00000": 4, "00001": 4}


def test_each_finalist_is_a_group_of_its_own(tmp_path: Path) -> None:
    info = {"objectives": [{"name": "loss", "goal": "minimize"}], "spec": {}}
    folder = ResultsFolder.create(tmp_path / "results", "confirmed", "", info)
    runs = [
        *((rate, Role.SEARCH, 0) for rate in (0.1, 0.2)),
        (0.4, Role.BASELINE, 0),
        *((rate, Role.CONFIRM, seed) for seed in (1, 2) for rate in (0.2, 0.1)),
    ]
    for number, (rate, role, seed) in enumerate(runs):
        started = TrialStarted(
            trial=number,
            trial_id="",
            params={"lr": rate},
            seed=seed,
            repeat=seed,
            role=role,
            time=0.0,
        )
        ended = TrialEnded(trial=number, status=Status.COMPLETED, reason="", time=2.0)
        reported = EpochReported(
            trial=number, epoch=1, metrics={"loss": 10 * rate}, time=1.0, time_s=1.0
        )
        append(folder, [started, reported, ended])
        write(folder, tmp_path / "events")  # another process each time
    _, found = groups(tmp_path / "events")
    rows = {}
    for group in found:
        (loss,) = (one.value for one in group.metric_values if one.name.tag == "loss")
        rows[group.name] = (group.hparams["lr"].number_value, len(group.sessions), loss)
    assert rows == {
        "00000": (0.1, 1, 1.0),
        "00001": (0.2, 1, 2.0),
        "baseline": (0.4, 1, 4.0),
        "confirm-00000": (0.2, 2, 2.0),
        "confirm-00001": (0.1, 2, 1.0),
    }


def test_the_hparams_tab(hostile: ResultsFolder, tmp_path: Path) -> None:
    from tensorboard.plugins.hparams import api_pb2

    write(hostile, tmp_path)
    experiment, found = groups(tmp_path)
    kinds = {info.name: api_pb2.DataType.Name(info.type) for info in experiment.hparam_infos}
    assert kinds == {
        "lr": "DATA_TYPE_FLOAT64",
        "opt": "DATA_TYPE_STRING",
        "cnn.head.units": "DATA_TYPE_FLOAT64",
        "size-2": "DATA_TYPE_FLOAT64",
        "twice": "DATA_TYPE_FLOAT64",
    }
    assert [info.name.tag for info in experiment.metric_infos] == [
        "val/acc",
        "cost",
        "f1=macro",
        "größe",
    ]
    names = {group.name: [session.name for session in group.sessions] for group in found}
    assert names == {
        f"{n:05d}": [f"{2 * n + k:05d}" for k in (0, 1) if 2 * n + k < len(STATUSES)]
        for n in range(4)
    }
    statuses = {
        int(session.name): api_pb2.Status.Name(session.status).removeprefix("STATUS_")
        for group in found
        for session in group.sessions
    }
    assert [statuses[number] for number in range(len(STATUSES))] == [
        *("UNKNOWN", "SUCCESS", "SUCCESS", "UNKNOWN", "FAILURE", "FAILURE", "FAILURE", "UNKNOWN")
    ]
    first = next(group for group in found if group.name == "00000")
    assert first.hparams["opt"].string_value == "sgd"
    assert first.hparams["lr"].number_value == pytest.approx(0.1)
    values = {value.name.tag: value for value in first.metric_values}
    # mean of 0.03, 0.13
    assert (values["val/acc"].value, values["val/acc"].training_step) == (
        pytest.approx(0.08),
        3,
    )


def test_tensorflow_is_not_imported(hostile: ResultsFolder, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom sweep.export.tensorboard import EventFiles\n"
        "from sweep.store.folder import ResultsFolder\n"
        "print(EventFiles(ResultsFolder(Path(sys.argv[1])), Path(sys.argv[2])).update())\n"
        "sys.exit('tensorflow' in sys.modules)"
    )
    command = [sys.executable, "-c", code, hostile.path, tmp_path / "other"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{len(STATUSES)}\n"
    write(hostile, tmp_path / "here")
    assert content(tmp_path / "other") == content(tmp_path / "here")  # in another process


def pieces(folder: ResultsFolder) -> Iterator[None]:
    """Lets a log grow a few records at a time."""
    lines = folder.log.read_bytes().splitlines(keepends=True)
    for end in range(1, len(lines) + 5, 5):
        folder.log.write_bytes(b"".join(lines[:end]))
        yield
    folder.log.write_bytes(b"".join(lines))
    yield


def test_it_does_not_matter_how_often_it_was_brought_up(
    hostile: ResultsFolder, tmp_path: Path
) -> None:
    write(hostile, tmp_path / "at once")
    for _ in pieces(hostile):
        write(hostile, tmp_path / "bit by bit")
    assert content(tmp_path / "bit by bit") == content(tmp_path / "at once")
    before = (tmp_path / "at once" / "written.json").stat().st_mtime_ns
    write(hostile, tmp_path / "at once")
    assert (tmp_path / "at once" / "written.json").stat().st_mtime_ns == before


def test_a_changed_space_is_declared_anew(hostile: ResultsFolder, tmp_path: Path) -> None:
    write(hostile, tmp_path / "again")
    kept = EventFiles(hostile, tmp_path / "kept")
    kept.update()
    info = hostile.read_info()
    parameters = {**info.parameters, "opt": {"values": ["sgd", "adam", "lion"]}}
    hostile.write_info(info.changed(spec={**info.spec, "parameters": parameters}))
    kept.update()
    kept.close()
    write(hostile, tmp_path / "again")
    write(hostile, tmp_path / "at once")
    for name in ("kept", "again"):
        assert content(tmp_path / name) == content(tmp_path / "at once")
    experiment, _ = groups(tmp_path / "again")
    domains = {info.name: info.domain_discrete for info in experiment.hparam_infos}
    assert [value.string_value for value in domains["opt"].values] == ["sgd", "adam", "lion"]


def test_what_a_killed_process_has_half_written_is_written_again(
    hostile: ResultsFolder, tmp_path: Path
) -> None:
    write(hostile, tmp_path / "at once")
    for number, _ in enumerate(pieces(hostile)):
        state = tmp_path / "killed" / "written.json"
        known = state.read_bytes() if state.exists() else None
        write(hostile, tmp_path / "killed")
        if number % 2:  # it was killed before it noted how far it had come
            if known is not None:
                state.write_bytes(known)
            for path in (tmp_path / "killed").glob("0000[34]/events*"):
                path.write_bytes(path.read_bytes() + b"torn")
    write(hostile, tmp_path / "killed")
    last = content(tmp_path / "at once")
    assert {
        name: data for name, data in content(tmp_path / "killed").items() if data != last[name]
    } == {}


@pytest.mark.parametrize("harm", ["cut", "gone", "state"])
def test_files_that_were_tampered_with_are_made_anew(
    hostile: ResultsFolder, tmp_path: Path, harm: str
) -> None:
    write(hostile, tmp_path)
    before = content(tmp_path)
    path = next((tmp_path / "00002").iterdir())
    match harm:
        case "cut":
            path.write_bytes(path.read_bytes()[:-1])
        case "gone":
            path.unlink()
        case _:
            (tmp_path / "written.json").write_text("{")
    write(hostile, tmp_path)
    assert content(tmp_path) == before


def test_another_log_of_the_name(made: Callable[..., ResultsFolder], tmp_path: Path) -> None:
    folder = made(story())
    write(folder, tmp_path)
    folder.log.unlink()
    append(
        folder, [SessionStarted(time=5.0, resumed=False, version="1"), *trial(0, Status.COMPLETED)]
    )
    assert write(folder, tmp_path) == 1
    assert sorted(content(tmp_path)) == [
        "00000/events.out.tfevents.0000000001.sweep",
        "events.out.tfevents.0000000000.sweep",
    ]


def test_resumed_trials_are_there_once(made: Callable[..., ResultsFolder], tmp_path: Path) -> None:
    interrupted = trial(0, Status.INTERRUPTED)
    whole = trial(0, Status.COMPLETED)
    folder = made([*interrupted[:3], interrupted[-1]])  # after two epochs
    write(folder, tmp_path / "resumed")
    append(folder, [SessionStarted(time=BEGAN + 50, resumed=True, version="1"), *whole[3:]])
    write(folder, tmp_path / "resumed")
    write(made(whole, "other"), tmp_path / "whole")
    assert content(tmp_path / "resumed") == content(tmp_path / "whole")


def test_a_failed_trial_that_is_tried_again_loses_its_end(
    made: Callable[..., ResultsFolder], tmp_path: Path
) -> None:
    failed, whole = trial(0, Status.FAILED), trial(0, Status.COMPLETED)
    folder = made([*failed[:3], failed[-1]])
    write(folder, tmp_path / "again")
    again = TrialEnded(
        trial=0, status=Status.INTERRUPTED, reason="tried again", time=BEGAN + 60, again=True
    )
    append(folder, [again, *whole[3:]])
    write(folder, tmp_path / "again")
    write(made(whole, "other"), tmp_path / "whole")
    assert content(tmp_path / "again") == content(tmp_path / "whole")


def test_an_empty_sweep(made: Callable[..., ResultsFolder], tmp_path: Path) -> None:
    assert write(made([]), tmp_path) == 0
    assert content(tmp_path) == {}


def test_the_files_stay_if_the_log_is_missing_of_which_they_were_made(
    hostile: ResultsFolder, tmp_path: Path
) -> None:
    """As in a folder that was downloaded from an object store."""
    write(hostile, tmp_path)
    before = content(tmp_path)
    hostile.log.unlink()
    for _ in range(2):  # the lock is released
        with pytest.raises(StoreError, match=r"log\.jsonl: is missing, and event files are made"):
            write(hostile, tmp_path)
    assert before == content(tmp_path) != {}


def test_two_processes_do_not_write_the_same_files(hostile: ResultsFolder, tmp_path: Path) -> None:
    first = EventFiles(hostile, tmp_path)
    with pytest.raises(InputError, match="another process writes these"):
        EventFiles(hostile, tmp_path)
    first.close()
    write(hostile, tmp_path)


def test_a_thread_keeps_them_fresh(made: Callable[..., ResultsFolder], tmp_path: Path) -> None:
    folder = made(trial(0, Status.COMPLETED))
    target = folder.tensorboard
    with LiveEventFiles(folder, period_s=0.02):
        until(lambda: len(content(target)) >= 2)
        append(folder, trial(1, Status.RUNNING)[:2])
        until(lambda: len(content(target)) >= 3)
        append(
            folder,
            [EpochReported(trial=1, epoch=2, metrics={"cost": 1.0}, time=BEGAN + 30, time_s=1.0)],
        )
    write(folder, tmp_path / "after")
    assert len(content(target)) == 3
    assert content(target) == content(tmp_path / "after")


def test_a_log_that_cannot_be_is_refused_also_where_an_earlier_export_has_stopped(
    made: Callable[..., ResultsFolder], tmp_path: Path
) -> None:
    whole = trial(0, Status.COMPLETED)
    folder = made(whole[:2])
    write(folder, tmp_path)
    append(folder, whole[1:])
    with pytest.raises(StoreError, match=r"epoch 1 of trial 0 was reported before; keep .* repair"):
        write(folder, tmp_path)
