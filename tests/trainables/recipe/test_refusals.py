"""What an author writes is honoured or refused by name, before the first update."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers
from small import Small, assignment, metrics, train
from zoo_training import Adversaries

from sweep.errors import TrainableError
from trainables.devices import parameter_server
from trainables.keras_trainable import KerasTrainable, session_of
from trainables.loop import building
from trainables.recipe import refusals
from trainables.recipe.refusals import Refused

pytestmark = pytest.mark.keras


class OwnTestStep(keras.Model):
    def test_step(self, data: Any) -> Any:
        return super().test_step(data)


class OwnTrainStep(keras.Model):
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


class OwnCompile(keras.Model):
    def compile(self, judging: Any) -> None:
        super().compile()


class ExtraKey(keras.Model):
    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return {
            **super().compute_metrics(x, y, y_pred, sample_weight),
            "largest": keras.ops.max(y_pred),
        }


class OwnScale(keras.optimizers.SGD):
    def scale_loss(self, loss: Any) -> Any:
        return 4.0 * loss


class OwnEnd(keras.optimizers.SGD):
    def finalize_variable_values(self, var_list: Any) -> None:
        for weight in var_list:
            weight.assign(0.5 * weight)


class OwnFit(keras.Model):
    def fit(self, *given: Any, **options: Any) -> Any:
        self.optimizer.learning_rate = 0.01
        return super().fit(*given, **options)


class OwnEvaluate(keras.Model):
    def evaluate(self, *given: Any, **options: Any) -> Any:
        return {"loss": 1.0}


def functional(kind: type[keras.Model]) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        inputs = keras.Input((6,))
        return kind(inputs, layers.Dense(3)(inputs))

    return build


def static() -> keras.Model:
    inputs = keras.Input((6,), batch_size=16)
    return keras.Model(inputs, layers.Dense(3)(inputs))


def stateful() -> keras.Model:
    inputs = keras.Input((6,), batch_size=16)  # Keras wants it for stateful layers
    x = layers.GRU(3, stateful=True)(layers.Reshape((2, 3))(inputs))
    return keras.Model(inputs, layers.Dense(3)(x))


@pytest.fixture(params=["ours", "served"])
def loop(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our loop, and that of servers as far as it comes without any."""
    if request.param == "served":
        monkeypatch.setattr(building, "PARAMETER_SERVER", "one_device")
        monkeypatch.setattr(parameter_server, "create_coordinator", lambda replicas: None)


@pytest.mark.usefixtures("loop")
def test_a_model_that_nothing_gives_a_loss() -> None:
    class Lossless(Small):
        def data(self, hp: Any) -> tuple[Any, Any]:
            ((x, _), _) = super().data(hp)
            return (x,), None

    with pytest.raises(Refused, match="nothing gives a loss to train by"):
        train(Lossless(), assignment())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            functional(OwnCompile),
            r"OwnCompile\.compile\(\) takes arguments of its own; call it inside model\(\)",
        ),
        (functional(ExtraKey), "ExtraKey returns largest, which no metric object holds"),
        (functional(OwnFit), r"OwnFit has its own fit\(\), which sweep's loop would not call"),
        (
            functional(OwnEvaluate),
            r"OwnEvaluate has its own evaluate\(\), .* `training: {loop: fit}`",
        ),
        (static, r"fixed batch of 16, .* leave out batch_size and batch_shape in keras\.Input"),
        (stateful, "layer 'gru' is stateful"),
    ],
)
@pytest.mark.usefixtures("loop")
def test_models(build: Any, message: str) -> None:
    class Given(Small):
        def model(self, hp: Any) -> keras.Model:
            return build()

    with pytest.raises(Exception, match=message):
        train(Given(), assignment())


def test_a_fit_of_the_models_own_is_called_where_fit_trains() -> None:
    class Given(Small):
        def model(self, hp: Any) -> keras.Model:
            return functional(OwnFit)()

    trainable = Given()
    train(trainable, assignment(epochs=1, training={"loop": "fit"}))
    rate = session_of(trainable).trial.program.model.optimizer.learning_rate
    assert float(rate) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (
            lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()),
            "is a LossScaleOptimizer",
        ),
        (
            lambda: keras.optimizers.SGD(gradient_accumulation_steps=2),
            "expected the parameter micro_batches",
        ),
        (
            lambda: keras.optimizers.SGD(loss_scale_factor=2.0),
            "with loss_scale_factor, expected `training:",
        ),
        (
            lambda: keras.optimizers.SGD(use_ema=True, ema_overwrite_frequency=2),
            "with ema_overwrite_frequency",
        ),
        (OwnScale, r"OwnScale with its own scale_loss\(\), .* `training: {loop: fit}`"),
        (OwnEnd, r"OwnEnd with its own finalize_variable_values\(\)"),
    ],
)
@pytest.mark.usefixtures("loop")
def test_optimizers(optimizer: Any, message: str) -> None:
    class Given(Small):
        def optimizer(self, hp: Any) -> Any:
            return optimizer()

    with pytest.raises(Exception, match=message):
        train(Given(), assignment())


def test_an_optimizer_with_a_loss_scale_of_its_own_trains_in_fit() -> None:
    class Given(Small):
        def optimizer(self, hp: Any) -> Any:
            rate = hp.number("learning_rate")
            return OwnScale(rate) if rate < 0.02 else keras.optimizers.SGD(rate)

    scaled, plain = (
        metrics(train(Given(), assignment(training={"loop": "fit"}, learning_rate=rate)))
        for rate in (0.01, 0.04)
    )
    for one, other in zip(scaled, plain, strict=True):
        assert one == pytest.approx(other, rel=1e-5)


def test_fit_would_end_each_epoch_as_a_training() -> None:
    class Given(Small):
        def optimizer(self, hp: Any) -> Any:
            return OwnEnd(0.01)

    with pytest.raises(Exception, match=r"own finalize_variable_values\(\)"):
        train(Given(), assignment(training={"loop": "fit"}))


class Cosine(Small):
    def optimizer(self, hp: Any) -> Any:
        return keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10))


@pytest.mark.parametrize("extra", [{"lr_schedule": "cosine"}, {"warmup_epochs": 1}])
def test_a_schedule_of_ones_own_is_not_bent(extra: Any) -> None:
    with pytest.raises(Exception, match=f"of its own, and the trial has {next(iter(extra))}"):
        train(Cosine(), assignment(**extra))


def test_an_unread_learning_rate_beside_a_schedule_of_ones_own() -> None:
    with pytest.raises(Exception, match="the trial has learning_rate, which would have no effect"):
        train(Cosine(), assignment())


def test_a_learning_rate_that_an_own_compile_does_not_read() -> None:
    with pytest.raises(Refused, match=r"a compile\(\) of its own, and the trial has learning_rate"):
        Adversaries().begin(assignment(training={"loop": "fit"}))


def test_a_learning_rate_that_the_optimizer_reads_is_its_own() -> None:
    class Reading(Small):
        def optimizer(self, hp: Any) -> Any:
            return keras.optimizers.SGD(hp.number("learning_rate") / 2)

    assert [e.learning_rate for e in train(Reading(), assignment(learning_rate=0.5))] == [
        0.25,
        0.25,
    ]


def test_sample_weights_with_a_loss_of_one_number() -> None:
    class Weighted(Small):
        def data(self, hp: Any) -> Any:
            (x, y), held_out = super().data(hp)
            return (x, y, np.ones(len(x), np.float32)), held_out

        def loss(self, hp: Any, model: Any) -> Any:
            return lambda y, p: keras.ops.mean(
                keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)
            )

    with pytest.raises(
        Exception, match="gives one number for a batch, which sample and class weights cannot weigh"
    ):
        train(Weighted(), assignment())


def test_a_compiled_model_beside_an_optimizer_method() -> None:
    class Twice(Small):
        def model(self, hp: Any) -> keras.Model:
            model = super().model(hp)
            model.compile("sgd", "mse")
            return model

        def optimizer(self, hp: Any) -> Any:
            return keras.optimizers.SGD()

    with pytest.raises(
        Exception, match=r"returns a compiled model, and Twice defines optimizer\(\); leave out one"
    ):
        train(Twice(), assignment())


def test_loss_weights_beside_a_compiled_model_are_refused() -> None:
    class Weighted(Small):
        def model(self, hp: Any) -> keras.Model:
            model = super().model(hp)
            model.compile("sgd", "mse")
            return model

        def loss_weights(self, hp: Any) -> Any:
            return {"c": 0.5}

    with pytest.raises(Exception, match=r"Weighted defines loss_weights\(\); leave out one"):
        train(Weighted(), assignment())


class Looking(Small):
    """Compiled by its author to run op by op."""

    def model(self, hp: Any) -> keras.Model:
        model = super().model(hp)
        model.compile(
            "sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True
        )
        return model


@pytest.mark.parametrize("loop", ["auto", "fit"])
def test_a_model_compiled_to_run_op_by_op(loop: str) -> None:
    with pytest.raises(
        Refused, match=r"compiles its model with run_eagerly=True.*`training: {run_eagerly: true}`"
    ):
        train(Looking(), assignment(training={"loop": loop}))


def test_the_sweep_file_may_say_so_too() -> None:
    assert metrics(train(Looking(), assignment(training={"run_eagerly": True})))


def test_a_loss_that_is_no_mean_in_micro_batches() -> None:
    class Spread(Small):
        def loss(self, hp: Any, model: Any) -> Any:
            return lambda y, p: keras.ops.std(p)

    assert metrics(train(Spread(), assignment()))
    with pytest.raises(Exception, match="the loss of a batch is not the mean over its examples"):
        train(Spread(), assignment(micro_batches=2))


@pytest.mark.parametrize(
    ("name", "value", "arguments"),
    [
        ("loss", "mse", "self, hp, model"),
        ("loss", keras.losses.MeanSquaredError(), "self, hp, model"),
        ("metrics", ["mae"], "self, hp, model"),
        ("callbacks", [keras.callbacks.EarlyStopping()], "self, hp"),
        ("optimizer", "adam", "self, hp"),
        ("class_weights", {0: 1.0}, "self, hp, labels"),
    ],
)
def test_a_value_in_the_place_of_a_method_is_refused(
    name: str, value: object, arguments: str
) -> None:
    with pytest.raises(TrainableError) as caught:
        type("Net", (KerasTrainable,), {name: value})
    assert (
        str(caught.value)
        == f"Net.{name} is {value!r}, expected a method: def {name}({arguments}): return ..."
    )


def test_files_that_all_trials_or_all_processes_would_write(tmp_path: Path) -> None:
    saving = keras.callbacks.ModelCheckpoint(tmp_path / "best.keras")
    logging = keras.callbacks.CSVLogger("log.csv")
    refusals.check_files([saving, logging], by_number=True, processes=1)
    refusals.check_files([keras.callbacks.EarlyStopping(), logging], by_number=True, processes=2)
    with pytest.raises(
        Refused, match=r"a ModelCheckpoint that writes '.*best.keras'.* self.trial_number"
    ):
        refusals.check_files([saving], by_number=False, processes=1)
    with pytest.raises(Refused, match=r"a CSVLogger that writes 'log.csv'.* self.trial_number"):
        refusals.check_files([logging], by_number=False, processes=1)
    with pytest.raises(
        Refused, match=r"a ModelCheckpoint, and the trial has 2 processes.*`checkpoint:`"
    ):
        refusals.check_files([saving], by_number=True, processes=2)


def test_methods_of_keras_for_single_updates_that_need_not_be_called() -> None:
    class Noting(keras.callbacks.TerminateOnNaN):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            super().on_train_batch_end(batch, logs)

    listed = refusals.list_callback_methods
    assert not listed(keras.callbacks.TerminateOnNaN(raise_error=True), refusals.OF_BATCHES)
    assert not listed(keras.callbacks.ModelCheckpoint("a.keras"), refusals.OF_BATCHES)
    assert not listed(keras.callbacks.ProgbarLogger(), (*refusals.OF_BATCHES, *refusals.OF_TESTS))
    assert listed(Noting(), refusals.OF_BATCHES) == ["on_train_batch_end"]
    every_fifth = keras.callbacks.ModelCheckpoint("a.keras", save_freq=5)
    assert listed(every_fifth, refusals.OF_BATCHES) == ["on_train_batch_end"]


class MoreInputs(Small):
    """Its data have an input that the model lacks, and whose name is the first in alphabetical order."""

    def data(self, hp: Any) -> Any:
        return tuple(({"item": x, "user": x, "added": x}, y) for x, y in (super().data(hp)))

    def model(self, hp: Any) -> keras.Model:
        inputs = {name: keras.Input((6,), name=name) for name in ("item", "user")}
        return keras.Model(inputs, layers.Dense(3)(layers.Concatenate()([*inputs.values()])))


def test_inputs_that_keras_would_pair_wrongly_are_refused() -> None:
    with pytest.raises(Refused, match=r"inputs added, .* item, user would get wrong values"):
        MoreInputs().begin(assignment())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("a", "user"),
            "inputs a, which the model lacks, and the model has the inputs item, which",
        ),
        (
            ("a", "b"),
            "the model has the inputs item, user, which the data lack; use the same names",
        ),
        (("item", "user", "z"), r"item, user would get wrong values; leave out z in data\(\)"),
    ],
)
def test_the_refusal_names_the_inputs_that_differ(names: Any, message: str) -> None:
    model = MoreInputs().model(None)
    with pytest.raises(Refused, match=message):
        refusals.check_inputs(model, {name: np.zeros((1, 6)) for name in names})
