"""A worker and its checkpoints: whatever happens to a trial, what it hands over is true."""

from __future__ import annotations

import dataclasses
import errno
import math
import re
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from counting import Counting
from msgspec import structs
from placed import without_place

from sweep.backends import (
    Continues,
    Ends,
    Job,
    Moves,
    Order,
    Outgrown,
    SameData,
    WorkerNode,
    checkpoints,
    inputs,
)
from sweep.backends.worker import Worker
from sweep.contract import Assignment, Devices, EpochReported
from sweep.errors import WorkerLost
from sweep.events import Status, TrialEnded, Value
from sweep.hyperparameters import Hyperparameters
from sweep.prices import Price
from sweep.space.expressions import Expression
from sweep.space.objectives import Objective

HERE = Path(__file__).parent
pytestmark = pytest.mark.usefixtures("light_collections")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    Counting.begun.clear()
    return Job(
        "s",
        "counting:Counting",
        (HERE,),
        tmp_path,
        Objective("score", "minimize"),
        checkpoint_every_s=1e-9,  # after each step, which may have several epochs
    )


def order(
    events: str = "", epochs: int = 6, decisions: tuple[int, ...] = (), **changes: object
) -> Order:
    assignment = Assignment(
        trial=3, params={"events": events, "batch_size": 32}, seed=0, epochs=epochs
    )
    return Order(assignment, decisions, **changes)


def whole(worker: Worker, given: Order) -> tuple[list[EpochReported], TrialEnded, list[str]]:
    """Let a worker train a trial to its end."""
    worker.take(given)
    epochs: list[EpochReported] = []
    notices: list[str] = []
    for _ in range(100):
        progress = worker.step()
        epochs += progress.epochs
        notices += progress.notices
        if isinstance(progress, Ends):
            return epochs, progress.end, notices
    raise AssertionError("the trial does not end")


def numbers(epochs: list[EpochReported] | tuple[EpochReported, ...]) -> list[int]:
    return [epoch.epoch for epoch in epochs]


def kept(job: Job) -> list[str]:
    return [path.name for path in checkpoints.list_newest_first(job.results_folder, 3)]


def set_aside(job: Job) -> list[str]:
    folder = checkpoints.get_trial_folder(job.results_folder, 3)
    return sorted(path.name for path in folder.glob("unusable-*"))


def test_a_step_ends_where_somebody_decides(job: Job) -> None:
    worker = Worker(job)
    worker.take(order(decisions=(2, 3)))
    assert [numbers(worker.step().epochs) for _ in range(3)] == [[1, 2], [3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("events", "status", "reason", "epochs"),
    [
        ("", "completed", "", 6),
        ("3 fails", "failed", "RuntimeError: epoch 3 fails", 2),
        ("3 exits", "failed", "SystemExit: 3", 2),
        ("3 nan", "diverged", "score is nan in epoch 3", 3),
        ("3 diverges", "diverged", "the loss became NaN", 2),
        ("3 none", "failed", "TypeError: float() argument must be", 2),
        ("3 numpy", "completed", "", 6),
        ("3 huge", "oom", "OutOfMemory: no room at all", 2),
        ("3 patience", "completed", "the trainable stopped after epoch 2", 2),
        ("3 stops", "completed", "the trainable stopped after epoch 2: it has seen enough", 2),
        (
            "1 patience",
            "failed",
            "RuntimeError: the trainable returned without having reported an epoch",
            0,
        ),
        (
            "3 skips",
            "failed",
            "ValueError: epoch 4 was reported after epoch 2; they come one by one",
            2,
        ),
    ],
)
def test_every_end_is_told_as_what_it_is(
    job: Job, events: str, status: str, reason: str, epochs: int
) -> None:
    reports, end, _ = whole(Worker(job), order(events))
    assert (end.status.value, numbers(reports)) == (status, list(range(1, epochs + 1)))
    assert without_place(end.reason).startswith(reason)
    assert (end.error is not None) == (status in ("failed", "oom"))
    assert (end.facts.node == "here") == (status in ("completed", "diverged"))


def test_a_trial_that_diverges_and_has_wrong_facts_fails(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "depends_on", 5, raising=False)
    _, end, _ = whole(Worker(job), order("3 diverges"))
    assert end.status is Status.FAILED
    assert "depends_on is 5, expected a list of paths" in end.reason


def test_paths_of_depends_on_may_come_from_a_generator() -> None:
    trainable = SimpleNamespace(depends_on=(f"part-{number}.csv" for number in range(2)))
    assert inputs.get_declared_paths(trainable) == ("part-0.csv", "part-1.csv")


def test_out_of_memory_is_tried_again_in_smaller_parts(job: Job) -> None:
    reports, end, notices = whole(Worker(job), order("3 oom"))
    assert (end.status, numbers(reports)) == (Status.COMPLETED, [1, 2, 3, 4, 5, 6])
    assert [begun.accumulate for begun in Counting.begun] == [1, 2, 4]
    assert end.facts.accumulate == 4
    assert [notice.split(": ")[1] for notice in notices] == [
        "out of memory; again with each batch in 2 parts",
        "out of memory; again with each batch in 4 parts",
    ]


def test_out_of_memory_first_empties_what_earlier_trials_left(job: Job) -> None:
    worker = Worker(job)
    whole(worker, order(""))
    Counting.begun.clear()
    given = order("3 oom")
    other = replace(given, assignment=replace(given.assignment, trial=4))
    _, end, notices = whole(worker, other)
    assert end.status is Status.COMPLETED
    assert [begun.accumulate for begun in Counting.begun] == [1, 1, 2, 4]
    assert notices[0].endswith("out of memory; again without what earlier trials left")


def test_what_fits_in_no_parts_is_tried_once_more_in_a_fresh_process(job: Job) -> None:
    used = Worker(job)
    whole(used, order(""))
    given = order("3 huge")
    other = replace(given, assignment=replace(given.assignment, trial=4))
    used.take(other)
    progress = used.step()
    assert (type(progress), progress.epochs, progress.accumulate) == (Outgrown, (), 1)
    assert progress.spoilt == "its trial does not fit"
    assert [notice.split(": ")[1] for notice in progress.notices] == [
        "out of memory; again without what earlier trials left",
        *(f"out of memory; again with each batch in {parts} parts" for parts in (2, 4, 8, 16, 32)),
        "out of memory; again in a fresh process",
    ]
    # there is no third process
    for worker, again in (
        (Worker(job), other),
        (used, replace(other, moved=True)),
    ):
        _, end, _ = whole(worker, again)
        assert (end.status, end.reason) == (Status.OOM, "OutOfMemory: no room at all")


@pytest.mark.parametrize(
    ("said", "most"), [({"per_replica_batch_size": 64}, 128), ({"batch_size": 64}, 64), ({}, 32)]
)
def test_a_batch_is_cut_into_as_many_parts_as_it_has_examples(
    job: Job, said: dict[str, int], most: int
) -> None:
    given = order("3 huge")
    params, devices = {**given.assignment.params, **said}, Devices(gpus=2)
    given = replace(
        given, moved=True, assignment=replace(given.assignment, params=params, devices=devices)
    )
    _, end, notices = whole(Worker(job), given)
    assert end.status is Status.OOM
    assert notices[-1].endswith(f"out of memory; again with each batch in {most} parts")


def test_a_trainable_that_is_made_once_is_given_back_for_smaller_parts(job: Job) -> None:
    worker = Worker(job, make=Counting)
    worker.take(order("2 oom"))
    progress = worker.step()
    assert (type(progress), progress.epochs, progress.accumulate) == (Outgrown, (), 2)
    assert progress.spoilt == "its trial does not fit"
    assert [notice.split(": ")[1] for notice in progress.notices] == [
        "out of memory; again with each batch in 2 parts"
    ]
    Counting.begun.clear()
    given = order("1 oom")
    again = replace(given, assignment=replace(given.assignment, accumulate=4))
    _, end, _ = whole(Worker(job, make=Counting), again)
    assert (end.status, [begun.accumulate for begun in Counting.begun]) == (Status.COMPLETED, [4])


def test_a_lost_part_of_a_worker_passes_through(job: Job) -> None:
    class Lost(Counting):
        def train(self, report: object) -> None:
            raise WorkerLost("rank 1: its node is gone")

    worker = Worker(job, make=Lost)
    worker.take(order(""))
    with pytest.raises(WorkerLost, match="its node is gone"):
        worker.step()


def _missing(hp: Hyperparameters) -> float:
    if hp.get("fixed", 0) == 0:
        raise FileNotFoundError("no such file")
    return 1 / hp.number("rate")


@pytest.mark.parametrize(
    ("params", "varying", "regardless"),
    [
        ({"fixed": 0, "rate": 0.0}, ("rate",), True),
        ({"fixed": 0, "rate": 0.0}, ("rate", "fixed"), False),
        ({"fixed": 1, "rate": 0.0}, ("rate",), False),
        ({"fixed": 1, "rate": 0.0}, (), True),
    ],
)
def test_a_failure_says_whether_a_parameter_can_have_a_part_in_it(
    job: Job, params: dict[str, Value], varying: tuple[str, ...], *, regardless: bool
) -> None:
    worker = Worker(replace(job, given=_missing, varying=varying))
    _, end, _ = whole(worker, Order(Assignment(trial=3, params=params, seed=0, epochs=1)))
    assert (end.status, end.regardless) == (Status.FAILED, regardless)


def test_out_of_memory_is_given_up_at_micro_batches_of_one(job: Job) -> None:
    _, end, notices = whole(Worker(job), order("1 huge"))
    assert end.status is Status.OOM
    assert [begun.accumulate for begun in Counting.begun] == [1, 2, 4, 8, 16, 32]
    assert end.facts.accumulate == 32
    assert len(notices) == 5


def test_a_trial_split_for_memory_stays_split_when_it_is_resumed(job: Job) -> None:
    worker = Worker(job)
    worker.take(order("1 oom", decisions=(2,)))
    worker.step()
    Counting.begun.clear()
    whole(Worker(job), order("1 oom"))
    assert [begun.accumulate for begun in Counting.begun] == [4]


def test_epochs_that_were_never_handed_over_come_out_of_the_checkpoint(job: Job) -> None:
    worker = Worker(job)
    worker.take(order(decisions=(2, 4)))
    handed = worker.step()
    lost = worker.step()  # the worker saved and died: this never arrived
    resumed = Worker(job)
    resumed.take(order(decisions=(2, 4)))
    first = resumed.step()
    assert (type(first), first.epochs) == (Continues, lost.epochs)
    rest = resumed.step()
    assert numbers(handed.epochs + first.epochs + rest.epochs) == [1, 2, 3, 4, 5, 6]
    assert isinstance(rest, Ends)
    assert rest.end.status is Status.COMPLETED


def test_the_last_epochs_are_not_lost_either(job: Job) -> None:
    lost, _, _ = whole(Worker(job), order())
    Counting.begun.clear()
    again, end, _ = whole(Worker(job), order())
    assert (again, end.status) == (lost, Status.COMPLETED)
    assert len(Counting.begun) == 1


def _interrupted(job: Job, *, epochs: int) -> None:
    worker = Worker(job)
    worker.take(order(decisions=tuple(range(1, epochs + 1)), epochs=9))
    for _ in range(epochs):
        worker.step()


def _cut(path: Path) -> None:
    state = path / "state.json"
    state.write_bytes(state.read_bytes()[:-1] + b" ")  # still JSON's length, no longer its content


def _wipe(path: Path) -> None:
    (path / checkpoints.MANIFEST).write_text("")


def _lose(path: Path) -> None:
    (path / "state.json").unlink()


@pytest.mark.parametrize("harm", [_cut, _wipe, _lose])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(job: Job, harm: object) -> None:
    _interrupted(job, epochs=4)
    assert kept(job) == ["epoch-000004", "epoch-000003"]
    harm(checkpoints.get_trial_folder(job.results_folder, 3) / "epoch-000004")
    reports, end, notices = whole(Worker(job), order(epochs=9))
    assert numbers(reports) == [3, 4, 5, 6, 7, 8, 9]
    assert reports[-1].metrics["score"] == 100 - sum(range(10))
    assert end.status is Status.COMPLETED
    assert len(notices) == 1
    assert notices[0].startswith("trial 3: epoch-000004 is unusable (")


def test_without_a_usable_checkpoint_the_trial_begins_again(job: Job) -> None:
    _interrupted(job, epochs=4)
    for path in checkpoints.list_newest_first(job.results_folder, 3):
        _cut(path)
    reports, _, notices = whole(Worker(job), order(epochs=9))
    assert numbers(reports) == list(range(1, 10))
    assert len(notices) == 2


def test_what_is_saved_first_replaces_all_unusable_checkpoints(job: Job) -> None:
    _interrupted(job, epochs=5)
    for path in checkpoints.list_newest_first(job.results_folder, 3):
        _cut(path)
    worker = Worker(job)
    worker.take(order(epochs=9, decisions=(1, 2)))  # it has begun again
    assert kept(job) == ["epoch-000005", "epoch-000004"]
    worker.step()
    assert kept(job) == ["epoch-000001"]
    reports, _, _ = whole(Worker(job), order(epochs=9))
    assert numbers(reports) == list(range(1, 10))


def test_a_trial_that_begins_again_and_ends_earlier_names_and_keeps_its_own_checkpoint(
    job: Job,
) -> None:
    # at first with better losses, and for more epochs
    for epoch in (2, 5, 6):
        checkpoints.begin_checkpoint(
            checkpoints.get_trial_folder(job.results_folder, 3),
            checkpoints.Manifest(epoch, loss=-1e9),
            lambda aside: (aside / "state.json").write_text("of other code") and None,
            9,
        )()
    assert kept(job) == ["epoch-000006", "epoch-000005", "epoch-000002"]
    _, end, _ = whole(Worker(job), order("5 patience", decisions=(1, 2, 3), epochs=9))
    assert (end.status, end.facts.checkpoint) == (
        Status.COMPLETED,
        "checkpoints/00003/epoch-000004",
    )
    assert set_aside(job) == [
        "unusable-epoch-000002",
        "unusable-epoch-000005",
        "unusable-epoch-000006",
    ]
    checkpoints.keep_best(job.results_folder, 3)
    assert kept(job) == ["epoch-000004"]
    assert set_aside(job) == []


def test_a_checkpoint_that_the_disk_cannot_read_now_is_left(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    _interrupted(job, epochs=5)
    read_bytes = Path.read_bytes

    def fail(path: Path) -> bytes:
        if path.name == checkpoints.MANIFEST:
            raise OSError(errno.ESTALE, "Stale file handle")
        return read_bytes(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", fail)
        _interrupted(job, epochs=2)  # it has begun again
    assert kept(job) == ["epoch-000005", "epoch-000004", "epoch-000002"]
    reports, _, _ = whole(Worker(job), order(epochs=9))
    assert numbers(reports)[-4:] == [6, 7, 8, 9]


def test_an_older_checkpoint_goes_on_in_place_of_damaged_later_ones(job: Job) -> None:
    _interrupted(job, epochs=4)
    _cut(checkpoints.list_newest_first(job.results_folder, 3)[0])
    _, end, _ = whole(Worker(dataclasses.replace(job, checkpoint_every_s=99.0)), order(epochs=9))
    assert end.facts.checkpoint == "checkpoints/00003/epoch-000009"
    assert kept(job) == ["epoch-000009", "epoch-000003"]


def test_a_copy_of_another_trial_does_not_begin_again(job: Job) -> None:
    _interrupted(job, epochs=4)
    for path in checkpoints.list_newest_first(job.results_folder, 3):
        _cut(path)
    reports, end, notices = whole(Worker(job), order(epochs=9, copied=True))
    assert (reports, end.status, len(notices)) == ([], Status.FAILED, 2)
    assert "whose checkpoint cannot be restored (state.json is damaged)" in end.reason


def test_on_other_data_a_trial_neither_goes_on_nor_begins_again(job: Job) -> None:
    _interrupted(job, epochs=4)
    reports, end, notices = whole(Worker(job), order("9 other", epochs=9))
    assert (reports, end.status, end.reason, notices) == (
        [],
        Status.FAILED,
        "OtherData: the data are 1, expected 2",
        [],
    )


def test_the_newest_and_the_best_checkpoint_are_kept(tmp_path: Path) -> None:
    for epoch, loss in enumerate([5.0, 1.0, 4.0, 3.0, math.inf], start=1):
        checkpoints.begin_checkpoint(
            tmp_path, checkpoints.Manifest(epoch, loss=loss), lambda folder: None, keep=2
        )()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "epoch-000002",
        "epoch-000004",
        "epoch-000005",
    ]
    (tmp_path / "writing-1").mkdir()
    checkpoints.trim(tmp_path, keep=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-000002", "epoch-000005"]


def test_a_full_disk_is_not_the_trials_fault(job: Job) -> None:
    worker = Worker(job)
    worker.take(order("9 full", decisions=(2,)))
    progress = worker.step()
    assert numbers(progress.epochs) == [1, 2]
    assert isinstance(progress, Ends)
    assert progress.end.status is Status.INTERRUPTED
    assert "No space left on device" in str(progress.fault)
    assert kept(job) == []
    assert not list(checkpoints.get_trial_folder(job.results_folder, 3).iterdir())


def test_the_stop_file_ends_a_trial_with_a_checkpoint(job: Job) -> None:
    job = dataclasses.replace(job, checkpoint_every_s=99.0)
    worker = Worker(job)
    worker.take(order(decisions=(2,)))
    worker.step()
    job.stop_file.touch()
    last = worker.step()
    assert isinstance(last, Ends)
    assert (last.end.status, kept(job)) == (Status.INTERRUPTED, ["epoch-000003"])
    worker.take(order())
    assert [type(worker.step()), kept(job)] == [Ends, ["epoch-000003"]]


def test_a_trial_leaves_a_node_that_is_taken_away_with_a_checkpoint_and_is_not_begun_there(
    job: Job,
) -> None:
    told: list[str] = []
    worker = Worker(job, node=WorkerNode(leaving=lambda: told[0] if told else None))
    worker.take(order(decisions=(2,)))
    assert numbers(worker.step().epochs) == [1, 2]
    told.append("its node is taken away in 30 s")
    left = worker.step()
    assert (type(left), numbers(left.epochs), left.spoilt) == (Moves, [3], told[0])
    assert kept(job)[0].endswith("epoch-000003")
    worker.take(order())
    refused = worker.step()
    assert (type(refused), refused.epochs, refused.spoilt) == (Moves, (), told[0])
    epochs, end, _ = whole(Worker(job), order())
    assert (numbers(epochs), end.status) == ([3, 4, 5, 6], "completed")


def test_a_worker_whose_node_is_taken_away_gets_no_trial_after_one_that_ends(job: Job) -> None:
    worker = Worker(
        job, node=WorkerNode(leaving=lambda: "its node is taken away" if begun else None)
    )
    begun: list[int] = []
    worker.take(order(epochs=2, decisions=(1,)))
    worker.step()
    begun.append(1)
    last = worker.step()
    assert isinstance(last, Ends)
    assert (last.end.status, last.spoilt) == ("completed", "its node is taken away")


def test_a_stop_file_of_another_session_ends_nothing(job: Job) -> None:
    (job.results_folder / "stop").touch()
    dataclasses.replace(job, session="another").stop_file.touch()
    _, end, _ = whole(Worker(job), order())
    assert end.status is Status.COMPLETED


def test_a_trial_that_breaks_constraints_saves_no_weights_where_others_keep_them(job: Job) -> None:
    constraints = (Expression.parse("score >= 95"),)
    job = dataclasses.replace(
        job, checkpoint_every_s=99.0, objective=Objective("score", "minimize", None, constraints)
    )
    whole(Worker(job), order(to_beat=90.0))
    assert kept(job) == []
    whole(Worker(job), order(epochs=2, to_beat=98.0))
    assert kept(job) == ["epoch-000002"]


def test_only_a_trial_that_will_keep_them_saves_its_weights(job: Job) -> None:
    job = dataclasses.replace(job, checkpoint_every_s=99.0)
    whole(Worker(job), order(to_beat=10.0))
    assert kept(job) == []
    whole(Worker(job), order(to_beat=90.0))
    assert kept(job) == ["epoch-000006"]


def test_data_that_is_known_spares_the_training(job: Job) -> None:
    worker = Worker(job)
    worker.take(order(earlier_data=("other", "f00d")))
    spared = worker.step()
    assert spared == SameData(facts=spared.facts)
    # What was read is that of all modules that the tests have imported.
    assert structs.replace(spared.facts, lived_s=None, inputs=None) == Counting.facts(Counting())
    assert spared.facts.lived_s is not None
    assert 0 <= spared.facts.lived_s < 60
    # the driver has not taken the trial away, so that it is trained
    assert isinstance(worker.step(), Ends)
    worker.take(order(earlier_data=("other",)))
    progress = worker.step()
    assert (type(progress), numbers(progress.epochs)) == (Ends, [1, 2, 3, 4, 5, 6])


def test_a_worker_that_has_grown_is_replaced_and_its_trial_stays_as_it_is(job: Job) -> None:
    ends = {}
    for bound in (1, 2**60):
        worker = Worker(job, memory_bytes=bound)
        worker.take(order(epochs=1))
        progress = worker.step()
        assert isinstance(progress, Ends)
        ends[bound] = (progress.end.status, progress.spoilt)
    assert ends[2**60] == (Status.COMPLETED, None)
    status, reason = ends[1]
    assert status is Status.COMPLETED
    assert re.fullmatch(
        r"it has \d\.\d GB of memory of its own, its part of the machine is 0\.0 GB", reason
    )


def test_checkpoints_are_part_of_the_overhead(job: Job) -> None:
    _, end, _ = whole(Worker(job), order(decisions=(2, 4)))
    assert end.facts.overhead_s["checkpoint"] > 0


def test_the_first_trial_is_profiled_where_it_is_asked_for(job: Job) -> None:
    seen = []

    for trial, wanted in ((0, True), (1, True), (0, False)):
        worker = Worker(dataclasses.replace(job, profile=wanted, shared="sweep-data-x"))
        worker.take(
            dataclasses.replace(
                order(), assignment=dataclasses.replace(order().assignment, trial=trial)
            )
        )
        worker.step()
        given = Counting.begun[-1]
        assert given.shared == Path(tempfile.gettempdir()) / "sweep-data-x"
        seen.append(given.profile)
    assert seen == [job.results_folder / "profile", None, None]


def test_a_trial_that_the_driver_ended_writes_no_more(job: Job) -> None:
    worker = Worker(dataclasses.replace(job, trainable="counting:Slow"))
    worker.take(order("2 waits"))
    assert numbers(worker.step().epochs) == [1, 2]
    assert kept(job) == []  # it is still being written
    worker.take(
        dataclasses.replace(order(), assignment=dataclasses.replace(order().assignment, trial=4))
    )
    assert kept(job) == ["epoch-000002"]
    checkpoints.delete_checkpoints(job.results_folder, 3)
    worker.step()
    assert kept(job) == []


def test_a_trial_that_reaches_the_target_is_complete_and_kept(job: Job) -> None:
    worker = Worker(dataclasses.replace(job, target=94.0))
    worker.take(order())
    progress = worker.step()
    assert isinstance(progress, Ends)
    assert [epoch.metrics["score"] for epoch in progress.epochs] == [99.0, 97.0, 94.0]
    assert (progress.end.status, progress.end.at_target) == (Status.COMPLETED, True)
    assert progress.end.reason == "target reached: score 94"
    assert progress.end.facts.checkpoint is not None
    assert Path(progress.end.facts.checkpoint).name == "epoch-000003"


def test_no_decision_is_taken_over_a_checkpoint_that_is_being_written(job: Job) -> None:
    worker = Worker(dataclasses.replace(job, trainable="counting:Slow", checkpoint_every_s=1.0))
    worker.take(order("1 waits", decisions=(2,)))
    assert numbers(worker.step().epochs) == [1]
    assert kept(job) == []
    assert numbers(worker.step().epochs) == [2]
    assert kept(job) == ["epoch-000001"]  # now the driver may prune, and delete


@pytest.mark.parametrize("raised", [KeyboardInterrupt, GeneratorExit])
def test_what_is_no_exception_fails_the_trial_alone(job: Job, raised: type[BaseException]) -> None:
    _, end, _ = whole(Worker(job), order(f"2 {raised.__name__}"))
    assert (end.status, without_place(end.reason)) == (Status.FAILED, f"{raised.__name__}: no more")


@pytest.mark.parametrize(
    ("price", "labels", "hourly"),
    [
        (None, {}, None),
        (7200.0, {}, 7200),
        ({"A100": 3600}, {"type": "A100"}, 3600),
        ({"A100": 3600}, {"type": "T4"}, None),
    ],
)
def test_an_epoch_costs_what_its_gpus_cost_since_the_one_before(
    job: Job,
    price: Price | None,
    labels: dict[str, str],
    hourly: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(10**6))
    ticking = SimpleNamespace(monotonic=lambda: 10.0 * next(clock), time=time.time)
    monkeypatch.setattr("sweep.backends.worker.time", ticking)
    worker = Worker(replace(job, price=price, workers=2), node=WorkerNode(labels))
    given = order(epochs=3)
    assignment = replace(given.assignment, devices=Devices(gpus=0.5, simulated=True))
    epochs, _, notices = whole(worker, replace(given, assignment=assignment))
    costs = [epoch.measures.get("cost") for epoch in epochs]
    if hourly is None:
        assert costs == [None] * 3
        told = "resources.price_per_gpu_hour names none of the labels of this node (type=T4): its trials have no cost"
        assert notices == ([] if price is None else [told])
        return
    # Each look at the clock is ten seconds later, and the trial has one GPU in all: half of one for each worker.
    seconds = [cost * 3600 / hourly for cost in costs if cost is not None]
    assert len(seconds) == 3
    assert all(held == pytest.approx(round(held / 10) * 10) and held >= 10 for held in seconds)
