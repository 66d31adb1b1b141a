"""Keras's callbacks between epochs: in our loop as in `fit`, and `on_train_begin` and `on_epoch_begin` beside them."""

from __future__ import annotations

import array
import functools
import io
import itertools
import json
import re
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from sampling import sampled
from small import Small, assignment, go_on, metrics, train, weights

from sweep.contract import Diverged, Stopped
from trainables.keras_trainable import session_of
from trainables.loop.hooks import Callbacks
from trainables.recipe import refusals
from trainables.recipe.refusals import Refused
from trainables.state.checkpoint import CheckpointError

pytestmark = [
    pytest.mark.keras,
    # of Keras's own callbacks
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]

DOCS = (Path(__file__).parents[3] / "docs" / "steps.md").read_text()
Make = Callable[[], keras.callbacks.Callback]
LOOPS = pytest.mark.parametrize(
    "training",
    [{}, pytest.param({"loop": "fit"}, marks=pytest.mark.exhaustive)],
    ids=["own", "fit"],
)


class Told(keras.callbacks.Callback):
    """Notes what it is told; all of it plain."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[list[Any]] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.told.append(["train begins", self.params["epochs"], self.params["steps"]])

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.told.append(["begins", epoch])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.told.append(["ends", epoch, *sorted(logs)])

    def on_train_end(self, logs: Any = None) -> None:
        self.told.append(["train ends"])


def author(*makes: Make) -> Any:
    """A trainable with these callbacks, the last made of which are in its list ``made``."""

    class Called(Small):
        def callbacks(self, hp: Any) -> Any:
            assert self.trial_number == 0  # as for the names of files
            found = [make() for make in makes]
            forget()
            note(found)
            return found

    made: list[Any] = []
    # what the class held itself would be put back for another trial
    forget, note = (
        made.clear,
        made.extend,
    )
    found = Called()
    return found, made


def trial(training: Any = None, **params: Any) -> Any:
    return assignment(epochs=4, training=training or {}, optimizer="sgd", batch_size=14, **params)


@LOOPS
def test_they_are_told_what_fit_tells_them(training: Any) -> None:
    trainable, made = author(Told)
    train(trainable, trial(training))
    told = made[0].told

    model, told_by_keras = (
        keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, "softmax")]),
        Told(),
    )
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    some = np.zeros((70, 6)), np.zeros(70)
    model.fit(
        *some, batch_size=14, epochs=4, validation_data=some, callbacks=[told_by_keras], verbose=0
    )
    assert told == told_by_keras.told


class Evaluates(keras.callbacks.Callback):
    """Evaluates the model on examples of its own."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.model.evaluate(np.ones((9, 6)), np.zeros(9), verbose=0)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.on_train_begin()


@LOOPS
def test_what_a_callback_evaluates_counts_in_no_epoch(training: Any) -> None:
    class Counted(Small):
        def metrics(self, hp: Any, model: Any) -> Any:
            return ["accuracy"]

        def data(self, hp: Any) -> Any:
            return (*super().data(hp), (np.ones((5, 6)), np.ones(5)))

    class Called(Counted):
        def callbacks(self, hp: Any) -> Any:
            return [Evaluates()]

    plain, called = Counted(), Called()
    assert metrics(train(called, trial(training))) == metrics(train(plain, trial(training)))
    assert called.test() == plain.test()


class ReadsHistory(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.lowest = min(self.model.history.history.get("val_loss", [0.0]))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["lowest"] = self.lowest
        logs["epochs"] = len(self.model.history.epoch)


@LOOPS
def test_they_read_the_history_of_the_trial_as_in_fit(training: Any, tmp_path: Path) -> None:
    (straight, _), (broken, _), (resumed, _) = (author(ReadsHistory) for _ in range(3))
    seen = metrics(train(straight, trial(training)))
    losses = [epoch["val_loss"] for epoch in seen]
    assert [epoch["lowest"] for epoch in seen] == [
        min(losses[:number], default=0.0) for number in range(4)
    ]
    assert [epoch["epochs"] for epoch in seen] == [0, 1, 2, 3]

    broken.begin(trial(training))
    first = go_on(broken, pause_after=2)
    broken.save(tmp_path)()
    resumed.begin(trial(training))
    assert resumed.restore(tmp_path) == 2
    assert metrics([*first, *go_on(resumed)]) == seen


@LOOPS
def test_keras_own_set_the_rate_and_end_the_trial(training: Any) -> None:
    def rates(make: Make) -> list[float]:
        trainable, _ = author(make)
        found: list[Any] = []
        trainable.begin(trial(training))
        try:
            trainable.train(lambda epoch: found.append(epoch) is None)
        except Stopped as stopped:
            assert "a Keras callback has set stop_training" in str(stopped)
        return [epoch.learning_rate for epoch in found]

    halve = keras.callbacks.LearningRateScheduler
    assert rates(lambda: halve(lambda epoch, lr: lr / 2)) == pytest.approx(
        [0.05 / 2**n for n in range(1, 5)]
    )
    plateau = keras.callbacks.ReduceLROnPlateau
    assert rates(lambda: plateau("loss", 0.1, patience=1, min_delta=100.0)) == pytest.approx(
        [0.05, 0.05, 0.005, 5e-4]
    )
    stop = keras.callbacks.EarlyStopping
    assert rates(lambda: stop("val_loss", patience=1, min_delta=100.0)) == pytest.approx(
        [0.05, 0.05]
    )
    assert rates(lambda: stop("val_accuracy", patience=3)) == pytest.approx([0.05] * 4)


NAMES = {
    name: kind
    for name, kind in vars(keras.callbacks).items()
    if isinstance(kind, type) and issubclass(kind, keras.callbacks.Callback)
    if name != "Callback"
}
WITH: dict[str, Callable[[Path], tuple[Any, ...]]] = {
    "BackupAndRestore": lambda folder: (folder / "backup",),
    "CSVLogger": lambda folder: (folder / "log.csv",),
    "LearningRateScheduler": lambda folder: (lambda epoch, rate: rate,),
    "ModelCheckpoint": lambda folder: (folder / "{epoch}.keras",),
    "OrbaxCheckpoint": lambda folder: (folder / "orbax",),
    "TensorBoard": lambda folder: (folder / "events",),
}
REFUSED = {
    "BackupAndRestore": "python -m sweep resume",
    "CallbackList": "would not be called",
    "OrbaxCheckpoint": "only Model.fit calls",
    "SwapEMAWeights": "would not be called",
    "TensorBoard": "would not be called",
}


@pytest.fixture(scope="module")
def plain() -> list[dict[str, float]]:
    """What a trial without callbacks comes to."""
    return metrics(train(Small(), trial()))


ADDING_THE_RATE = ("LearningRateScheduler", "ReduceLROnPlateau")
"""Callbacks that add the learning rate to an epoch's metrics, as in `Model.fit`."""


@pytest.mark.parametrize("name", sampled(sorted(NAMES), 6))
def test_each_of_keras_callbacks_changes_nothing_or_is_refused_by_name(
    name: str, plain: list[dict[str, float]], tmp_path: Path
) -> None:
    if name == "OrbaxCheckpoint":
        pytest.importorskip("orbax.checkpoint", reason="Keras needs it for this one")
    if name == "RemoteMonitor":
        pytest.skip("has a test of its own, with a server")
    trainable, _ = author(lambda: NAMES[name](*WITH.get(name, lambda folder: ())(tmp_path)))
    if name in REFUSED:
        with pytest.raises(Refused, match=rf"(?s)returns a {name}.*{REFUSED[name]}"):
            train(trainable, trial())
        return
    reported = metrics(train(trainable, trial()))
    if name in ADDING_THE_RATE:
        assert all(epoch.pop("learning_rate") == pytest.approx(0.05) for epoch in reported)
    assert reported == plain


def test_the_docs_say_of_each_of_keras_callbacks_whether_it_is_refused() -> None:
    table = DOCS.split("What Keras's callbacks do, in both loops:")[1].split("\n\n")[1]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]
    ]
    told = {
        name: about
        for names, about in rows
        for name in re.findall(r"`(\w+)`(?! with updates)", names)
    }
    assert told.keys() == NAMES.keys()
    assert {
        name for name, about in told.items() if about.startswith(("rejected", "only in"))
    } == REFUSED.keys()


def test_one_of_keras_callbacks_that_needs_another_package_is_refused_with_a_way_out() -> None:
    kind = keras.callbacks.OrbaxCheckpoint
    with pytest.raises(
        Refused,
        match=r"a OrbaxCheckpoint, .*Use instead a ModelCheckpoint, or the block `checkpoint:`",
    ):
        refusals.check_methods([], [kind.__new__(kind)], fit=False)


def test_a_remote_monitor_posts_each_epoch(plain: list[dict[str, float]]) -> None:
    posted: list[bytes] = []

    class Listening(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *about: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Listening) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            root = f"http://127.0.0.1:{server.server_port}"
            found = metrics(
                train(
                    author(lambda: keras.callbacks.RemoteMonitor(root, send_as_json=True))[0],
                    trial(),
                )
            )
        finally:
            server.shutdown()
            thread.join()
    assert found == plain
    assert [json.loads(one)["epoch"] for one in posted] == [0, 1, 2, 3]


def test_what_cannot_be_honoured_is_refused_by_name() -> None:
    seen: list[int] = []
    one = keras.callbacks.LambdaCallback
    for make, told in (
        (
            lambda: one(on_train_batch_end=lambda batch, logs: None),
            r"on_train_batch_end\(\) only Model.fit calls",
        ),
        (
            lambda: keras.callbacks.EarlyStopping(restore_best_weights=True),
            "with restore_best_weights",
        ),
    ):
        with pytest.raises(Refused, match=told):
            train(author(make)[0], trial())
    train(author(lambda: one(on_epoch_end=lambda epoch, logs: seen.append(epoch)))[0], trial())
    assert seen == [0, 1, 2, 3]


def test_all_that_are_refused_are_named_at_once(tmp_path: Path) -> None:
    several = author(
        lambda: keras.callbacks.TensorBoard(tmp_path),
        lambda: keras.callbacks.EarlyStopping(restore_best_weights=True),
        lambda: keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", save_freq=5),
    )[0]
    told = "(?s)a TensorBoard, .*run FILE --tensorboard.*; and a EarlyStopping with restore_best_weights"
    with pytest.raises(
        Refused, match=f"{told}.*; and a ModelCheckpoint, .*the block `checkpoint:`"
    ):
        train(several, trial())
    with pytest.raises(Refused, match=told) as refused:
        train(several, trial({"loop": "fit"}))
    assert "ModelCheckpoint" not in str(refused.value)
    of_batches = author(
        lambda: keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", save_freq=5),
        lambda: keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None),
    )[0]
    with pytest.raises(
        Refused, match=r"a ModelCheckpoint, .*; and a LambdaCallback, .*training: \{loop: fit\}"
    ):
        train(of_batches, trial())


def test_what_they_remember_is_resumed_as_far_as_it_is_plain(tmp_path: Path) -> None:
    for name in ("plain", "other"):
        (tmp_path / name).mkdir()
    (straight, all_told), (broken, _), (resumed, rest) = author(Told), author(Told), author(Told)
    expected = metrics(train(straight, trial()))
    broken.begin(trial())
    first = metrics(go_on(broken, pause_after=2))
    broken.save(tmp_path / "plain")()
    resumed.begin(trial())
    resumed.restore(tmp_path / "plain")
    assert first + metrics(go_on(resumed)) == expected
    assert rest[0].told == all_told[0].told

    class Holding(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            self.held = object()  # as `CSVLogger` holds a file

    holds, _ = author(Holding)
    holds.begin(trial())
    go_on(holds, pause_after=2)
    holds.save(tmp_path / "other")()
    expected = holds.trained_model().get_weights()
    holds.begin(trial())
    with pytest.raises(CheckpointError, match="no checkpoint holds"):
        holds.restore(tmp_path / "other")
    holds.begin(replace(trial(), trains=False))  # to be looked at, it needs nothing of them
    holds.restore(tmp_path / "other")
    for mine, theirs in zip(holds.trained_model().get_weights(), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def watched(*callbacks: keras.callbacks.Callback, model: Any = None) -> Callbacks:
    """These callbacks as a trial begins, with ``model`` or a small one."""
    found = Callbacks(callbacks)
    if model is None:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    found.watch(Small(), [model], frozenset(), epochs=2, updates=5)
    return found


def built(layer: keras.layers.Layer) -> keras.layers.Layer:
    layer.build((None, 2))
    return layer


def averaged() -> tuple[tf.train.ExponentialMovingAverage, tf.Variable]:
    return tf.train.ExponentialMovingAverage(0.5), tf.Variable(0.0)


def growing() -> Callable[[int], None]:
    """A function that keeps what it is called with."""
    kept: list[int] = []
    return lambda value: kept.append(value)


@pytest.mark.parametrize(
    ("begin", "change"),
    [
        (lambda: deque([0.0], maxlen=3), lambda held: held.append(1.0)),
        (lambda: defaultdict(float), lambda held: held.update(seen=1.0)),
        (lambda: np.zeros(2), lambda held: np.add(held, 1.0, out=held)),
        (lambda: [np.zeros(2)], lambda held: np.add(held[0], 1.0, out=held[0])),
        (lambda: np.random.default_rng(0), lambda held: held.normal()),
        (lambda: keras.metrics.Mean(), lambda held: held.update_state(1.0)),
        (lambda: tf.Variable(0.0), lambda held: held.assign(1.0)),
        (lambda: built(keras.layers.Dense(1)), lambda held: held.kernel.assign([[1.0], [2.0]])),
        (lambda: (number for number in range(3)), next),
        (lambda: itertools.count(), next),
        (lambda: iter([1, 2, 3]), next),
        (lambda: array.array("d", [0.0]), lambda held: held.append(1.0)),
        (lambda: bytearray(b"x"), lambda held: held.append(1)),
        (io.StringIO, lambda held: held.write("x")),
        (lambda: pd.DataFrame({"loss": [1.0]}), lambda held: held.insert(0, "epoch", [1])),
        (lambda: [].append, lambda held: held(1)),
        (growing, lambda held: held(1)),
        (lambda: functools.partial(growing()), lambda held: held(1)),
    ],
)
def test_what_is_changed_in_place_and_is_not_plain_is_not_resumed(begin: Any, change: Any) -> None:
    class Holding(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.held = begin()

    callback = Holding()
    callbacks = watched(callback)
    assert callbacks.state() == [{}, {}]
    change(callback.held)
    assert callbacks.state() is None


@pytest.mark.parametrize(
    "make",
    [
        averaged,
        lambda: iter(tf.data.Dataset.range(3)),
        lambda: tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1),
        lambda: deque([[0] * 10 for _ in range(5000)]),  # more than a digest covers
    ],
)
def test_what_cannot_be_looked_into_is_not_resumed(make: Any) -> None:
    class Holding(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.held = make()

    assert watched(Holding()).state() is None


def test_an_attribute_in_slots_is_resumed_and_a_deleted_one_is_not() -> None:
    class Slotted(keras.callbacks.Callback):
        __slots__ = ("seen",)

        def __init__(self) -> None:
            super().__init__()
            self.seen = 0
            self.pending = True

    callback, resumed = Slotted(), Slotted()
    callbacks = watched(callback)
    callback.seen += 1
    state = callbacks.state()
    assert state == [{"seen": 1}, {}]
    watched(resumed).restore(state)
    assert resumed.seen == 1
    del callback.pending
    assert callbacks.state() is None


def test_a_list_that_callbacks_share_is_still_shared_after_a_resume() -> None:
    class Sharing(keras.callbacks.Callback):
        def __init__(self, shared: list[int], named: dict[str, int]) -> None:
            super().__init__()
            self.shared = shared
            self.named = named

    def make() -> tuple[Sharing, Sharing]:
        shared: list[int] = []
        named: dict[str, int] = {}
        return Sharing(shared, named), Sharing(shared, named)

    first, second = make()
    callbacks = watched(first, second)
    first.shared.append(1)
    first.named["a"] = 1
    one, other = make()
    watched(one, other).restore(callbacks.state())
    assert one.shared == [1]
    assert one.shared is other.shared
    assert one.named == {"a": 1}
    assert one.named is other.named


def test_what_set_model_sets_in_a_later_phase_is_told_from_what_the_trial_has_set() -> None:
    class Counting(keras.callbacks.Callback):
        def set_model(self, model: Any) -> None:
            super().set_model(model)
            self.layers = len(model.layers)

    deep = keras.Sequential([keras.Input((2,)), *(keras.layers.Dense(1) for _ in range(3))])
    callback = Counting()
    callbacks = watched(callback, model=deep)
    shallow = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    callbacks.watch(Small(), [shallow], frozenset(), epochs=2, updates=5)
    assert callback.layers == 1
    callback.layers = 3  # as it was in the first phase
    assert callbacks.state() == [{"layers": 3}, {}]


def test_what_a_callback_changes_on_the_trainable_is_not_resumed() -> None:
    class Steering(keras.callbacks.Callback):
        def __init__(self, author: Any) -> None:
            super().__init__()
            self.author = author

    trainable = Small()
    trainable.memory = {}
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    callbacks = Callbacks([Steering(trainable)])
    callbacks.watch(trainable, [model], frozenset({"memory"}), epochs=2, updates=5)
    trainable.memory["best"] = 1.0  # checkpoints hold it
    assert callbacks.state() == [{}, {}]
    trainable.best = 1.0
    assert callbacks.state() is None


def test_all_parts_of_the_trials_networks_may_be_held() -> None:
    class Holding(keras.callbacks.Callback):
        def set_model(self, model: Any) -> None:
            super().set_model(model)
            self.held = [
                model.layers[-1],
                model.layers[-1].kernel.value,
                model.other_optimizer,
                other.layers[0],
                keras.Model(model.inputs, model.layers[-1].output),
            ]

    class Two(keras.Model):
        pass

    inputs = keras.Input((2,))
    model = Two(inputs, keras.layers.Dense(1)(inputs))
    other = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.other_optimizer = keras.optimizers.SGD(0.1)
    callbacks = Callbacks([Holding()])
    callbacks.watch(Small(), [model, other], frozenset(), epochs=2, updates=5)
    for network in (model, other):
        network.layers[-1].kernel.assign([[1.0], [2.0]])
    model.other_optimizer.learning_rate = 0.01
    assert callbacks.state() == [{}, {}]


def test_what_cannot_be_copied_may_be_in_a_list() -> None:
    class Holding(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.locks = [threading.Lock()]

    callbacks = watched(Holding())
    assert callbacks.state() == [{}, {}]


def test_an_attribute_that_is_none_is_there_after_a_resume(tmp_path: Path) -> None:
    class Late(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            self.best_name = None

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            assert self.best_name is None

    (broken, _), (resumed, _) = author(Late), author(Late)
    broken.begin(trial())
    go_on(broken, pause_after=2)
    broken.save(tmp_path)()
    resumed.begin(trial())
    resumed.restore(tmp_path)
    go_on(resumed)


def test_those_that_monitor_a_metric_go_on(tmp_path: Path) -> None:
    def monitoring() -> Any:
        return author(
            lambda: keras.callbacks.EarlyStopping("val_accuracy", patience=3, min_delta=1.0),
            lambda: keras.callbacks.ReduceLROnPlateau("loss", 0.1, patience=1, min_delta=100.0),
        )

    (broken, _), (resumed, made) = monitoring(), monitoring()
    broken.begin(trial())
    first = go_on(broken, pause_after=2)
    broken.save(tmp_path)()
    resumed.begin(trial())
    resumed.restore(tmp_path)
    assert made[0].monitor_op is keras.ops.greater
    assert made[1].monitor_op is keras.ops.less
    found: list[Any] = []
    with pytest.raises(Stopped):
        resumed.train(lambda epoch: found.append(epoch) is None)
    assert [epoch.learning_rate for epoch in first + found] == pytest.approx(
        [0.05, 0.05, 0.005, 5e-4]
    )


def test_the_next_trial_of_a_kept_program_has_its_own() -> None:
    class Sometimes(Small):
        def callbacks(self, hp: Any) -> Any:
            halves = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
            return [halves] if hp.flag("halves", default=False) else []

    trainable = Sometimes()
    plain = metrics(train(trainable, trial()))
    program = session_of(trainable).trial.program
    halved = train(trainable, trial(halves=True))
    assert session_of(trainable).trial.program is program
    assert halved[-1].learning_rate == pytest.approx(0.05 / 16)
    assert metrics(train(trainable, trial())) == plain


@LOOPS
def test_what_they_set_on_the_model_stays_in_their_trial(training: Any, tmp_path: Path) -> None:
    class Counts(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.count = getattr(self.model, "count", 0) + 1
            logs["count"] = self.model.count

    trainable, _ = author(Counts)
    for _ in range(2):
        trainable.begin(trial(training=training))
        first = go_on(trainable, pause_after=2)
        assert [epoch.metrics["count"] for epoch in first] == [1, 2]
    trainable.save(tmp_path)()
    trainable.begin(trial(training=training))
    with pytest.raises(CheckpointError, match="keep state that no checkpoint holds"):
        trainable.restore(tmp_path)


def test_changed_values_are_told_from_those_that_were_made() -> None:
    callback = Told()
    callbacks = watched(callback)
    assert callbacks.state() == [{}, {}]  # of it, and of the history
    callback.told.append(["begins", 0])
    assert callbacks.state() == [{"told": [["begins", 0]]}, {}]
    callback.other = object()
    assert callbacks.state() is None


def test_a_checkpoint_of_a_version_without_the_added_history_is_restored() -> None:
    callback = Told()
    Callbacks([callback]).restore([{"told": [["begins", 0]]}])
    assert callback.told == [["begins", 0]]
    with pytest.raises(CheckpointError, match="of 3 Keras callbacks, and there are others now"):
        Callbacks([Told()]).restore([{}, {}, {}])


def test_the_model_and_callbacks_inside_a_callback_do_not_keep_it_from_being_resumed() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])

    class Composite(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.inner = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
            self.net = model
            self.layers = [*model.layers]

        def set_model(self, model: Any) -> None:
            super().set_model(model)
            self.inner.set_model(model)

    callback = Composite()
    callbacks = watched(callback, model=model)
    model.layers[0].kernel.assign(model.layers[0].kernel + 1.0)
    assert callbacks.state() == [{}, {}]
    callback.inner.verbose = 5
    assert callbacks.state() is None
    callback.inner.verbose = 0
    assert callbacks.state() == [{}, {}]
    callback.copied = callback.net  # not set again when the trial is resumed
    assert callbacks.state() is None


class Hooked(Small):
    """Sets the first weights, and the rate as an epoch begins."""

    def on_train_begin(self, model: Any, hp: Any) -> None:
        self.memory["begun"] = self.memory.get("begun", 0) + 1
        model.layers[0].kernel.assign(model.layers[0].kernel * 0.5)

    def on_epoch_begin(self, epoch: Any, model: Any, hp: Any) -> None:
        if epoch == 2:
            model.optimizer.learning_rate = 0.01

    def on_epoch_end(self, epoch: Any, logs: Any, model: Any, hp: Any) -> None:
        logs["begun"] = self.memory["begun"]


@pytest.mark.parametrize("gpus", sampled([0, 2], 1))
def test_hooks_as_a_trial_and_an_epoch_begin(gpus: int, tmp_path: Path) -> None:
    given = assignment(gpus, epochs=4, optimizer="sgd", batch_size=14)
    straight, broken, resumed = Hooked(), Hooked(), Hooked()
    expected = train(straight, given)
    assert [epoch.learning_rate for epoch in expected] == pytest.approx([0.05, 0.01, 0.01, 0.01])
    assert [values["begun"] for values in metrics(expected)] == [1, 1, 1, 1]
    assert metrics(train(straight, given)) == metrics(expected)  # warm
    plain = metrics(train(Small(), given))
    assert metrics(expected)[0]["loss"] != plain[0]["loss"]
    broken.begin(given)
    go_on(broken, pause_after=2)
    broken.save(tmp_path)()
    resumed.begin(given)
    resumed.restore(tmp_path)
    assert metrics(go_on(resumed)) == metrics(expected[2:])
    for mine, theirs in zip(weights(resumed), weights(straight), strict=True):
        assert (mine == theirs).all()


def test_a_hook_that_changes_the_trainable_as_an_epoch_begins_is_refused() -> None:
    class Changes(Small):
        def on_epoch_begin(self, epoch: Any, model: Any, hp: Any) -> None:
            self.seen = epoch

    with pytest.raises(Refused, match=r"on_epoch_begin\(\) has changed self\.seen"):
        train(Changes(), trial())


class Score(keras.callbacks.Callback):
    """Adds to the logs, as those that compute a score of scikit-learn do."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["val_score"] = self.value


def scoring(value: Any) -> type[Small]:
    class Scoring(Small):
        def callbacks(self, hp: Any) -> list[keras.callbacks.Callback]:
            return [
                Score(value),
                keras.callbacks.EarlyStopping("val_score", mode="max", patience=2),
            ]

        def on_epoch_end(self, epoch: Any, logs: Any, model: Any, hp: Any) -> None:
            logs["twice"] = 2 * logs["val_score"]

    return Scoring


@pytest.mark.parametrize("value", [1.0, np.float32(1.0), np.array(1)])
@pytest.mark.parametrize("loop", ["own", "fit"])
def test_what_a_callback_adds_to_the_logs_reaches_later_callbacks_hooks_and_columns(
    value: Any, loop: str
) -> None:
    trainable, found = scoring(value)(), []
    if loop == "fit":
        del type(trainable).on_epoch_end
    trainable.begin(assignment(epochs=6, training={"loop": loop}))
    with pytest.raises(Stopped, match="a Keras callback has set stop_training"):
        trainable.train(lambda epoch: found.append(epoch.metrics) or True)
    # as long as fit trains with this patience
    assert [metrics["val_score"] for metrics in found] == [1.0] * 3
    assert loop == "fit" or found[-1]["twice"] == 2.0


def test_what_is_no_number_in_the_logs_is_refused_with_the_callback_that_added_it() -> None:
    with pytest.raises(
        Refused,
        match=r"Score.on_epoch_end\(\) adds 'val_score' = 'good' to the logs, expected a number",
    ):
        train(scoring("good")(), assignment())


class Saving(Small):
    """Saves its model in many ways; its dropout is a live number."""

    folder: Path

    def model(self, hp: Any) -> keras.Model:
        body = [
            keras.layers.Dense(8, "relu"),
            keras.layers.Dropout(self.dropout(hp)),
            keras.layers.Dense(3),
        ]
        return keras.Sequential([keras.Input((6,)), *body])

    def callbacks(self, hp: Any) -> list[keras.callbacks.Callback]:
        save, folder = keras.callbacks.ModelCheckpoint, self.folder / str(self.trial_number)
        return [
            save(folder / "{epoch:02d}-{val_accuracy:.2f}.keras"),
            save(folder / "{epoch}.weights.h5", save_weights_only=True),
            save(folder / "low.keras", save_best_only=True),
            save(folder / "high.keras", monitor="val_loss", mode="max", save_best_only=True),
            save(folder / "never.keras", save_best_only=True, initial_value_threshold=0.0),
            keras.callbacks.TerminateOnNaN(),
        ]


def saving(folder: Path) -> Saving:
    return type("SavingThere", (Saving,), {"folder": folder})()


def saved(folder: Path) -> dict[str, list[Any]]:
    """All weights of the files in a folder, with the optimizer's where these are whole models."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".keras":
            model = keras.models.load_model(path)
            variables = [*model.weights, *model.optimizer.variables]
        else:
            model = keras.Sequential(
                [keras.Input((6,)), keras.layers.Dense(8), keras.layers.Dropout(0.1)]
            )
            model.add(keras.layers.Dense(3))
            model.load_weights(path)
            variables = model.weights
        found[path.name] = [np.array(variable) for variable in variables]
    return found


def assert_same_files(first: Path, second: Path) -> None:
    ours, theirs = saved(first), saved(second)
    assert list(ours) == list(theirs)
    for name in ours:
        for mine, other in zip(ours[name], theirs[name], strict=True):
            np.testing.assert_array_equal(mine, other, err_msg=name)


def test_a_model_checkpoint_writes_the_files_of_fit_in_each_trial_and_when_it_is_resumed(
    tmp_path: Path,
) -> None:
    given = trial(dropout=0.3)
    warm = saving(tmp_path / "warm")
    expected = metrics(train(warm, given))
    assert "never.keras" not in saved(tmp_path / "warm" / "0")
    other = replace(trial(dropout=0.6), trial=1)
    assert metrics(train(warm, other)) == metrics(train(saving(tmp_path / "fresh"), other))
    assert_same_files(tmp_path / "warm" / "1", tmp_path / "fresh" / "1")
    train(saving(tmp_path / "fit"), replace(given, training={"loop": "fit"}))
    assert_same_files(tmp_path / "warm" / "0", tmp_path / "fit" / "0")

    (tmp_path / "kept").mkdir()
    broken, resumed = saving(tmp_path / "cut"), saving(tmp_path / "cut")
    broken.begin(given)
    first = metrics(go_on(broken, pause_after=2))
    broken.save(tmp_path / "kept")()
    resumed.begin(given)
    assert resumed.restore(tmp_path / "kept") == 2
    assert first + metrics(go_on(resumed)) == expected
    assert_same_files(tmp_path / "warm" / "0", tmp_path / "cut" / "0")


@pytest.mark.parametrize("average", [{"ema_momentum": 0.5}, {"swa_from": 2}])
def test_a_model_checkpoint_saves_the_weights_that_were_validated(
    average: Any, tmp_path: Path
) -> None:
    trainable = saving(tmp_path)
    expected = train(trainable, trial(**average))
    last = next((tmp_path / "0").glob("04-*.keras"))
    validated = trainable.trained_model().get_weights()
    for mine, theirs in zip(keras.models.load_model(last).get_weights(), validated, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    plain = type("Plain", (Saving,), {"callbacks": Small.callbacks})()
    assert metrics(expected) == metrics(train(plain, trial(**average)))


def test_a_model_checkpoint_saves_live_numbers_of_constraints_as_numbers(tmp_path: Path) -> None:
    class Constrained(Small):
        def model(self, hp: Any) -> keras.Model:
            most = keras.constraints.MaxNorm(hp.live("most"))
            dense = keras.layers.Dense(3, kernel_constraint=most)
            return keras.Sequential([keras.Input((6,)), dense])

        def callbacks(self, hp: Any) -> list[keras.callbacks.Callback]:
            return [keras.callbacks.ModelCheckpoint(tmp_path / f"{self.trial_number}.keras")]

    trainable = Constrained()
    for number, most in enumerate((0.5, 0.25)):
        train(trainable, replace(assignment(most=most), trial=number))
        found = keras.models.load_model(tmp_path / f"{number}.keras")
        assert found.layers[0].kernel_constraint.max_value == most


@LOOPS
@pytest.mark.parametrize("raises", [False, True])
def test_a_loss_that_is_not_finite_ends_the_trial_as_diverged(training: Any, raises: bool) -> None:
    trainable, _ = author(lambda: keras.callbacks.TerminateOnNaN(raise_error=raises))
    found: list[Any] = []
    trainable.begin(replace(trial(training), params={**trial().params, "learning_rate": 1e30}))
    with pytest.raises(Diverged, match="became NaN or infinite in epoch 1"):
        trainable.train(lambda epoch: found.append(epoch) is None)
    assert not found
