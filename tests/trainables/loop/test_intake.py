"""What training sees: `augment` with targets and weights, mixed examples, the same however a batch is cut."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from small import assignment, metrics, train
from test_own_step import Plain
from zoo import ENTRIES, Animal, OnCurve, OnImages
from zoo_checks import given

from trainables.keras_trainable import session_of
from trainables.loop.fit_program import NotInFit
from trainables.recipe.mixing import MIXING
from trainables.recipe.refusals import Refused

pytestmark = pytest.mark.keras


class Points(Animal):
    """Without draws of the model's own."""

    def augment(self, x: Any, y: Any, hp: Any, draws: Any) -> Any:
        return x + draws.normal((6,), 0.1), y


class OneHot(Points):
    def data(self, hp: Any) -> Any:
        return tuple(
            (x, keras.utils.to_categorical(y, 3).astype("float32")) for x, y in super().data(hp)
        )

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        return ["accuracy"]


def variables(trainable: Any) -> list[Any]:
    return [
        np.asarray(v)
        for v in session_of(trainable).trial.program.model.variables
        if v.dtype.startswith("float")
    ]


def trained(kind: Any, **params: Any) -> tuple[Any, list[dict[str, float]]]:
    found = kind()
    return found, metrics(
        train(found, assignment(epochs=4, optimizer="sgd", learning_rate=0.05, **params))
    )


def plainly(kind: type[Animal], trial: Any, alpha: float, smoothing: float) -> list[Any]:
    """Twenty updates on soft targets that NumPy has mixed."""
    plain = Plain(kind, trial)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=smoothing)
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    for x, y, draws in plain.batches():
        of_author, of_mixing = draws(0), draws(0).from_call(MIXING)
        augmented = (x + of_author.normal((6,), 0.1)).numpy()
        partners, share = of_mixing.partners().numpy(), of_mixing.beta(alpha).numpy()[:, None]
        soft = np.eye(3)[y.numpy()]
        with tf.GradientTape() as tape:
            predicted = plain.model(
                share * augmented + (1 - share) * augmented[partners], training=True
            )
            value = loss(share * soft + (1 - share) * soft[partners], predicted)
        weights = plain.model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, weights), weights, strict=True))
    return [np.asarray(v) for v in plain.model.variables]


@pytest.mark.parametrize("smoothing", [pytest.param(0.0, marks=pytest.mark.exhaustive), 0.1])
def test_labels_become_soft_as_numpy_makes_them(smoothing: float) -> None:
    more = {"label_smoothing": smoothing} if smoothing else {}
    trial = assignment(
        epochs=4, mixup=0.4, momentum=0.9, optimizer="sgd", learning_rate=0.05, **more
    )
    ours = Points()
    train(ours, trial)
    for a, b in zip(variables(ours), plainly(Points, trial, 0.4, smoothing), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6, rtol=0)


def test_one_hot_targets_train_as_their_labels_do() -> None:
    class Labels(Points):
        def loss(self, hp: Any, model: keras.Model) -> Any:
            return self.live and super().loss(hp, model)

    (a, seen), (b, also) = (
        trained(Labels, mixup=0.4, label_smoothing=0.1),
        trained(OneHot, mixup=0.4),
    )
    for one, other in zip(variables(a), variables(b), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    for one, other in zip(seen, also, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-6)
        assert one["accuracy"] == pytest.approx(other["accuracy"], abs=1e-6), (
            "the label that weighs more counts"
        )


@pytest.mark.parametrize(
    "name",
    [
        "MixedWeights",
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in ("NewWeights", "MixedNumbers")
        ),
    ],
)
def test_micro_batches_are_the_whole_batch(name: str) -> None:
    class OfNumbers(OnCurve):
        def loss(self, hp: Any, model: keras.Model) -> Any:
            return "mse"

    kind: Any = OfNumbers if name == "MixedNumbers" else ENTRIES[name].trainable
    (a, seen), (b, also) = (trained(kind, mixup=0.4, micro_batches=n) for n in (1, 3))
    for one, other in zip(variables(a), variables(b), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    for one, other in zip(seen, also, strict=True):
        assert other == pytest.approx(one, abs=1e-6)


def test_numbers_are_live_and_zero_is_none() -> None:
    warm = ENTRIES["MixedImages"].trainable()
    train(warm, given(ENTRIES["MixedImages"]))
    program = session_of(warm).trial.program
    none = metrics(
        train(warm, given(ENTRIES["MixedImages"], mixup=0, cutmix=0.0, random_erasing=0.0))
    )
    assert session_of(warm).trial.program is program
    plain = assignment(epochs=4, label_smoothing=0.1)
    del plain.params["learning_rate"]
    assert none == metrics(train(ENTRIES["MixedImages"].trainable(), plain))


def test_layers_of_keras_in_augment_draw_alike_for_partners() -> None:
    class Noisy(Animal):
        def augment(self, x: Any, hp: Any, draws: Any) -> Any:
            x = x + keras.random.normal(keras.ops.shape(x), stddev=0.1)
            return x * tf.random.uniform([tf.shape(x)[0], 1], 0.5, 1.0)

    (a, _), (b, _) = (trained(Noisy, mixup=0.4, micro_batches=n) for n in (1, 3))
    for one, other in zip(variables(a), variables(b), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_the_fit_loop_trains_the_same_and_refuses_labels() -> None:
    ours, epochs = trained(OneHot, mixup=0.4)
    fit, others = trained(OneHot, mixup=0.4, training={"loop": "fit"})
    for one, other in zip(variables(ours), variables(fit), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert others[-1]["val_loss"] == pytest.approx(epochs[-1]["val_loss"], abs=1e-6)
    with pytest.raises(NotInFit, match="whole-number targets of one example"):
        trained(Points, mixup=0.4, training={"loop": "fit"})


class Custom(keras.losses.Loss):
    def call(self, y_true: Any, y_pred: Any) -> Any:
        return keras.ops.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True) ** 1.0


class Called(Custom):
    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return super().__call__(y_true, y_pred, sample_weight)


def losing(own: Any) -> type[Animal]:
    class Losing(Points):
        def loss(self, hp: Any, model: keras.Model) -> Any:
            return own

    return Losing


def test_a_sparse_loss_of_ones_own_trains_on_the_same_mixtures() -> None:
    default, _ = trained(Points, mixup=0.4)
    for own in (Custom(), lambda y, p: Custom().call(y, p)):
        found, _ = trained(losing(own), mixup=0.4)
        for one, other in zip(variables(default), variables(found), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


class FloatLabels(losing(keras.losses.SparseCategoricalCrossentropy(from_logits=True))):
    def data(self, hp: Any) -> Any:
        return tuple((x, y.astype("float32")) for x, y in super().data(hp))


class OwnLoss(keras.Model):
    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, *given: Any, **named: Any
    ) -> Any:
        return keras.ops.mean(
            keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True)
        )


class WithOwnLoss(Points):
    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((6,))
        return OwnLoss(inputs, layers.Dense(3)(inputs))


class OwnStep(Points):
    def train_step(self, model: keras.Model, batch: Any, hp: Any) -> Any:
        return {
            "loss": keras.losses.sparse_categorical_crossentropy(
                batch.y, model(batch.x), from_logits=True
            )
        }


def test_labels_that_nothing_weighs_by_their_shares_are_refused() -> None:
    for kind in (WithOwnLoss, OwnStep):
        with pytest.raises(
            Refused, match=r"something else takes them.*keras\.utils\.to_categorical"
        ):
            trained(kind, mixup=0.4)
    with pytest.raises(Refused, match=r"'called' \(Called\) overrides __call__, where mixup"):
        trained(losing(Called(name="called")), mixup=0.4)
    with pytest.raises(
        Refused, match=r"takes labels, and the targets are float32.*return whole numbers"
    ):
        trained(FloatLabels, mixup=0.4)
    with pytest.raises(Refused, match="ignores a class"):
        trained(
            losing(keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)),
            mixup=0.4,
        )
    with pytest.raises(Refused, match="one number for a batch"):
        trained(losing(lambda y, p: keras.ops.mean(Custom().call(y, p))), mixup=0.4)


class TwoOutputs(Points):
    """Labels under two names and numbers, of which each is lost in its own way."""

    def data(self, hp: Any) -> Any:
        return tuple((x, {"a": y, "b": y, "c": x[:, :1]}) for x, y in super().data(hp))

    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((6,))
        return keras.Model(
            inputs, {n: layers.Dense(s, name=n)(inputs) for n, s in (("a", 3), ("b", 3), ("c", 1))}
        )

    def loss(self, hp: Any, model: keras.Model) -> Any:
        sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return {"a": sparse, "b": sparse, "c": "mse"}

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        return {"a": "accuracy", "c": "mae"}


def test_each_of_several_targets_is_mixed_in_its_way() -> None:
    (a, seen), (b, also) = (
        trained(TwoOutputs, mixup=0.4),
        trained(TwoOutputs, mixup=0.4, micro_batches=2),
    )
    assert {"a_loss", "c_loss", "a_accuracy", "val_c_mae"} <= set(seen[-1])
    for one, other in zip(variables(a), variables(b), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert also[-1] == pytest.approx(seen[-1], abs=1e-6)


class SoftStep(Points):
    def train_step(self, model: keras.Model, batch: Any, hp: Any) -> Any:
        predicted = model(batch.x, training=True)
        batch.measure(predicted)
        return {
            "loss": keras.losses.categorical_crossentropy(
                batch.one_hot(3), predicted, from_logits=True
            )
        }


@pytest.mark.parametrize("params", [{"mixup": 0.4}, pytest.param({}, marks=pytest.mark.exhaustive)])
def test_a_step_takes_the_shares_of_both_labels(params: Any) -> None:
    (a, seen), (b, also) = trained(Points, **params), trained(SoftStep, **params)
    for one, other in zip(variables(a), variables(b), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert also[-1] == pytest.approx(seen[-1], abs=1e-6)


class ThatIgnoresLabels(Points):
    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def train_step(self, model: keras.Model, batch: Any, hp: Any) -> Any:
        return {"loss": keras.ops.square(model(batch.x, training=True))}


def test_a_step_that_ignores_labels_may_mix_inputs() -> None:
    trained(ThatIgnoresLabels, mixup=0.4)


@pytest.mark.parametrize(
    ("name", "value"), [("mixup", -1), ("cutmix", "high"), ("random_erasing", 1.5), ("mixup", None)]
)
def test_numbers_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=f"{name} is .*expected a number"):
        OnImages().begin(assignment(**{name: value}))


def test_an_unset_feature_costs_nothing() -> None:
    """The graph of a trial without them has no operation more than one whose `augment` is called as it is."""
    plain = OnImages()
    plain.begin(assignment())
    graph = session_of(plain).trial.program.train_chunk._list_all_concrete_functions()[0].graph
    names = {
        op.type
        for found in (graph, *graph._functions.values())
        for op in getattr(found, "get_operations", list)()
    }
    assert not {"StatelessRandomGammaV2", "StatelessRandomGammaV3", "TopKV2"} & names
