"""What authors do between epochs and updates is reported, kept exactly, or refused by name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small import Small, assignment, go_on, metrics, train

from sweep.contract import Stopped
from sweep.hyperparameters import Hyperparameters
from trainables.keras_trainable import session_of
from trainables.loop.hooks import AuthorHooks
from trainables.recipe.refusals import Refused
from trainables.state.checkpoint import CheckpointError

pytestmark = pytest.mark.keras


class Stopping(Small):
    def on_epoch_end(self, epoch: Any, logs: Any, model: Any, hp: Any) -> None:
        self.memory["seen"] = [*self.memory.get("seen", []), logs["loss"]]
        logs["seen"] = len(self.memory["seen"])
        if epoch == hp.integer("last"):
            self.stop("it has seen enough")


def until_stopped(trainable: Small, pause_after: int | None = None) -> list[dict[str, float]]:
    found = []
    with pytest.raises(Stopped, match="it has seen enough"):
        trainable.train(lambda epoch: found.append(epoch) or epoch.epoch != pause_after)
    return metrics(found)


def test_a_hook_ends_a_trial_and_adds_metrics_and_its_memory_is_resumed(tmp_path: Path) -> None:
    given, straight, broken, resumed = (
        assignment(epochs=6, last=3),
        Stopping(),
        Stopping(),
        Stopping(),
    )
    straight.begin(given)
    expected = until_stopped(straight)
    assert [values["seen"] for values in expected] == [1, 2, 3]
    broken.begin(given)
    first = metrics(go_on(broken, pause_after=2))
    broken.save(tmp_path)()
    resumed.begin(given)
    resumed.restore(tmp_path)
    assert first + until_stopped(resumed) == expected
    straight.begin(given)  # warm: nothing is remembered
    assert until_stopped(straight) == expected


class Changing(Small):
    history: list[float]

    def model(self, hp: Any) -> keras.Model:
        self.history = []
        return super().model(hp)

    def on_epoch_end(self, epoch: Any, logs: Any, model: Any, hp: Any) -> None:
        match hp.get("does", ""):
            case "append":
                self.history.append(logs["loss"])
            case "set":
                self.best = logs["loss"]
            case "set on the model":
                model.best = min(getattr(model, "best", 1e9), logs["loss"])
            case "set on a layer":
                model.layers[-1].factor = 0.5
            case "overwrite":
                logs["val_loss"] = 0.0
            case "forget":
                del logs["loss"]
            case "text":
                logs["name"] = "a"
            case "array":
                self.memory["weights"] = np.zeros(3)


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("append", r"has changed self\.history.*self\.memory\['history'\]"),
        ("set", r"has changed self\.best"),
        ("set on the model", r"has changed model\.best.*self\.memory\['best'\]"),
        ("set on a layer", r"has changed dense_1\.factor"),
        ("overwrite", "has changed 'val_loss' in the logs"),
        ("forget", "has changed 'loss' in the logs"),
        ("text", "adds 'name' = 'a' to the logs, expected a number"),
    ],
)
def test_what_a_resumed_trial_would_not_have_is_refused(does: str, told: str) -> None:
    with pytest.raises(Refused, match=told):
        train(Changing(), assignment(does=does))


def test_what_a_refused_hook_has_set_on_the_model_is_gone_in_the_next_trial() -> None:
    trainable = Changing()
    for _ in range(2):
        with pytest.raises(Refused, match=r"has changed model\.best"):
            train(trainable, assignment(does="set on the model"))
    train(trainable, assignment())
    assert not hasattr(session_of(trainable).trial.program.model, "best")


class Free(Small):
    """What Keras and a layer set by themselves while a hook uses the model."""

    class Layer(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            self.calls = getattr(self, "calls", 0) + 1
            return x

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential([keras.Input((6,)), Free.Layer(), *super().model(hp).layers])

    def on_epoch_end(self, epoch: Any, logs: Any, model: Any, hp: Any) -> None:
        x = np.zeros((3, 6), np.float32)
        model(x)
        model.predict(x, verbose=0)
        model.evaluate(x, np.zeros(3), verbose=0)
        model.layers[1].trainable = not model.layers[1].trainable
        model.optimizer.learning_rate = 0.01
        model.stop_training = epoch == 3


def test_a_hook_may_use_the_model() -> None:
    with pytest.raises(Stopped):
        train(Free(), assignment(epochs=4))


def test_a_metric_that_is_not_a_number_stays_one() -> None:
    def end_epoch(does: str) -> dict[str, float]:
        author, hp = Changing(), Hyperparameters({"does": does})
        hooks = AuthorHooks(author, [author.model(hp)], hp, {}, frozenset(vars(author)))
        return hooks.epoch_end(1, {"loss": 1.0, "val_loss": math.nan})

    assert math.isnan(end_epoch("nothing")["val_loss"])
    with pytest.raises(Refused, match="has changed 'val_loss' in the logs"):
        end_epoch("overwrite")


def test_arrays_are_not_remembered(tmp_path: Path) -> None:
    trainable = Changing()
    train(trainable, assignment(does="array"))
    with pytest.raises(Refused, match=r"memory\['weights'\] is ndarray.*belong in variables"):
        trainable.save(tmp_path)


class Scaling(Small):
    def on_epoch_end(self, epoch: Any, logs: Any, model: Any, hp: Any) -> None:
        self.scale_rate(0.5)


def test_rates_are_scaled_from_the_next_epoch_on() -> None:
    assert [
        epoch.learning_rate for epoch in train(Scaling(), assignment(epochs=3))
    ] == pytest.approx([0.05, 0.025, 0.0125])


class Logging(Small):
    def on_train_batch_end(
        self, update: Any, logs: Any, gradients: Any, model: Any, hp: Any
    ) -> Any:
        largest = tf.reduce_max([tf.reduce_max(tf.abs(g)) for g, _ in gradients])
        return (
            {hp.text("as", "largest"): largest, "update": update}
            if hp.get("scalar", True)
            else {"row": [1.0, 2.0]}
        )


def test_numbers_of_updates_are_reported_as_means_over_the_examples() -> None:
    clipped = metrics(train(Logging(), assignment(clipvalue=1e-3)))
    assert all(values["largest"] == pytest.approx(1e-3) for values in clipped)
    numbers = np.average(range(5), weights=[16, 16, 16, 16, 6])
    assert clipped[0]["update"] == pytest.approx(numbers)
    assert clipped[1]["update"] == pytest.approx(numbers + 5)
    bare = [
        {k: v for k, v in values.items() if k not in ("largest", "update")} for values in clipped
    ]
    assert bare == metrics(train(Small(), assignment(clipvalue=1e-3)))  # nothing else is another


def test_names_and_shapes_that_cannot_be_reported_are_refused() -> None:
    with pytest.raises(Refused, match="returns loss, which the loop reports itself"):
        train(Logging(), assignment(**{"as": "loss"}))
    with pytest.raises(Refused, match="returns accuracy, which the loop reports itself"):
        train(Logging(), assignment(**{"as": "accuracy"}))
    with pytest.raises(Refused, match=r"returns 'row' of shape \(2,\), expected one number"):
        train(Logging(), assignment(scalar=False))


class Counting(keras.callbacks.Callback):
    """Stops after two epochs, for it counts validation's values."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.batches, self.epochs, self.ended = 0, 0, list[tuple[int, bool]](), 0

    def on_train_begin(self, logs: Any = None) -> None:
        self.begun += 1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append((epoch, "val_loss" in logs))
        self.model.stop_training = epoch == 1

    def on_train_end(self, logs: Any = None) -> None:
        self.ended += 1


class Calling(Small):
    made: keras.callbacks.Callback

    def callbacks(self, hp: Any) -> list[keras.callbacks.Callback]:
        self.made = Counting()
        return [self.made]


def test_callbacks_see_one_training_in_fit(tmp_path: Path) -> None:
    trainable = Calling()
    trainable.begin(assignment(epochs=4, training={"loop": "fit"}))
    with pytest.raises(Stopped, match="a Keras callback has set stop_training"):
        trainable.train(lambda epoch: True)
    seen = trainable.made
    assert (seen.begun, seen.batches, seen.epochs, seen.ended) == (1, 10, [(0, True), (1, True)], 1)
    trainable.save(tmp_path)()
    with pytest.raises(CheckpointError, match="Keras callbacks keep state"):
        trainable.restore(tmp_path)


def test_those_that_hear_batches_are_refused_elsewhere_with_what_does_their_work() -> None:
    with pytest.raises(
        Refused,
        match=r"only Model.fit calls. Use instead on_epoch_end\(\) or on_train_batch_end\(\)",
    ):
        train(Calling(), assignment())


def test_fit_has_no_hook_in_its_graph() -> None:
    with pytest.raises(
        Refused, match=r"defines on_train_batch_end\(\), which Model.fit does not call"
    ):
        train(Logging(), assignment(training={"loop": "fit"}))


@pytest.mark.parametrize("reports", [True, False])
def test_a_step_of_the_models_own_has_no_hook_in_its_graph(reports: bool) -> None:
    class ByItself(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            return super().train_step(data)

    class Hooked(Small):
        def model(self, hp: Any) -> keras.Model:
            return ByItself(super().model(hp).layers)

        def on_train_batch_end(
            self, update: Any, logs: Any, gradients: Any, model: Any, hp: Any
        ) -> Any:
            return {"update": update} if reports else None

    with pytest.raises(
        Refused, match=r"defines on_train_batch_end\(\), and ByItself has a train_step"
    ):
        train(Hooked(), assignment())


@pytest.mark.parametrize("gpus", [0, 2])
def test_variables_on_replicas_are_numbers_in_a_hook(gpus: int) -> None:
    class Counted(Small):
        def model(self, hp: Any) -> keras.Model:
            self.beta, self.raw = keras.Variable(0.5, name="beta"), tf.Variable(2, name="raw")
            return super().model(hp)

        def on_epoch_end(self, epoch: Any, logs: Any, model: Any, hp: Any) -> None:
            self.beta.assign(0.5 * float(self.beta))
            self.raw.assign_add(1)
            logs |= {"beta": float(self.beta), "raw": int(self.raw)}

    last = metrics(train(Counted(), assignment(gpus)))[-1]
    assert (last["beta"], last["raw"]) == (0.125, 4.0)


class Copying(Small):
    """Its hook averages the weights in a copy of the model, and the losses in a metric."""

    def model(self, hp: Any) -> keras.Model:
        model = super().model(hp)
        self.kept = {"copy": [keras.models.clone_model(model)], "mean": keras.metrics.Mean()}
        self.seen = tf.Variable(0.0, trainable=False, name="seen")
        return model

    def on_epoch_end(self, epoch: Any, logs: Any, model: Any, hp: Any) -> None:
        (copy,) = self.kept["copy"]
        for mine, its in zip(copy.weights, model.weights, strict=True):
            mine.assign(0.9 * mine + 0.1 * its)
        self.kept["mean"].update_state(logs["loss"])
        self.seen.assign_add(1.0)
        logs["copied"] = sum(float(np.abs(weight).sum()) for weight in copy.get_weights())
        logs["mean"], logs["seen"] = self.kept["mean"].result().numpy(), self.seen.numpy()


@pytest.mark.parametrize("loop", ["own", "fit"])
def test_what_hooks_alone_change_is_resumed_and_begins_anew_in_the_next_trial(
    loop: str, tmp_path: Path
) -> None:
    given = assignment(epochs=4, training={"loop": loop})
    straight, broken, resumed = Copying(), Copying(), Copying()
    expected = metrics(train(straight, given))
    assert [values["seen"] for values in expected] == [1, 2, 3, 4]
    assert metrics(train(straight, given)) == expected  # warm
    broken.begin(given)
    go_on(broken, pause_after=2)
    broken.save(tmp_path)()
    resumed.begin(given)
    resumed.restore(tmp_path)
    assert metrics(go_on(resumed)) == expected[2:]


class Recurring(Small):
    """Keeps a recurrent layer that carries its state from one call to the next."""

    def model(self, hp: Any) -> keras.Model:
        self.recurrent = [keras.layers.LSTM(3, stateful=True)]
        self.recurrent[0](np.ones((2, 4, 3), np.float32))
        return super().model(hp)

    def on_epoch_end(self, epoch: Any, logs: Any, model: Any, hp: Any) -> None:
        (layer,) = self.recurrent
        logs["recurred"] = float(np.sum(layer(np.full((2, 4, 3), epoch, np.float32))))


def test_the_state_of_a_recurrent_layer_is_resumed_and_begins_anew_in_the_next_trial(
    tmp_path: Path,
) -> None:
    given = assignment(epochs=3)
    straight, broken, resumed = Recurring(), Recurring(), Recurring()
    expected = metrics(train(straight, given))
    assert metrics(train(straight, given)) == expected
    broken.begin(given)
    go_on(broken, pause_after=1)
    broken.save(tmp_path)()
    resumed.begin(given)
    resumed.restore(tmp_path)
    assert metrics(go_on(resumed)) == expected[1:]


class Late(Small):
    """Its hook may call a metric or a network of the trainable, which creates the variables of that object."""

    def model(self, hp: Any) -> keras.Model:
        self.late = {
            "metric": keras.metrics.F1Score(name="late"),
            "network": keras.Sequential([keras.layers.Dropout(0.5), keras.layers.Dense(2)]),
        }
        return super().model(hp)

    def on_epoch_end(self, epoch: Any, logs: Any, model: Any, hp: Any) -> None:
        match hp.text("kind"):
            case "metric":
                self.late["metric"].update_state(np.ones((4, 3)), np.ones((4, 3)))
            case "network":
                self.late["network"](np.ones((4, 3)))
            case _:
                pass


@pytest.mark.parametrize("kind", ["metric", "network"])
def test_a_hook_that_creates_variables_is_refused(kind: str) -> None:
    with pytest.raises(Refused, match=r"on_epoch_end\(\) has created the variable '\w+'"):
        train(Late(), assignment(kind=kind))


def test_a_hook_that_creates_no_variables_is_not_refused() -> None:
    assert len(metrics(train(Late(), assignment(kind="none")))) > 1


class Drawing(Small):
    """Its step updates a metric that has variables only after tracing, and its hook draws random numbers."""

    def model(self, hp: Any) -> keras.Model:
        self.score = keras.metrics.F1Score()
        self.seeds, self.numbers = keras.random.SeedGenerator(3), tf.random.Generator.from_seed(3)
        return super().model(hp)

    def train_step(self, model: Any, batch: Any, hp: Any) -> Any:
        logits = model(batch.x, training=True)
        self.score.update_state(tf.one_hot(batch.y, 3), logits)
        return {"loss": keras.losses.sparse_categorical_crossentropy(batch.y, logits, True)}

    def on_epoch_end(self, epoch: Any, logs: Any, model: Any, hp: Any) -> None:
        logs["one"] = float(keras.random.normal((), seed=self.seeds))
        logs["other"] = float(self.numbers.normal(()))
        logs["score"] = float(np.mean(self.score.result()))


def test_generators_that_a_hook_draws_from_are_resumed(tmp_path: Path) -> None:
    given = assignment(epochs=3)
    expected = metrics(train(Drawing(), given))
    broken, resumed = Drawing(), Drawing()
    broken.begin(given)
    go_on(broken, pause_after=1)
    broken.save(tmp_path)()
    resumed.begin(given)
    resumed.restore(tmp_path)
    assert metrics(go_on(resumed)) == expected[1:]
