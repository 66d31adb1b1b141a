"""What training sees: `augment` with targets and weights, mixed examples, the same however a batch is cut."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import zoo_mixing
from keras import layers
from small import Small, assignment, metrics, train
from test_own_step import Plain
from zoo import ENTRIES, Animal, OnCurve, OnImages
from zoo_checks import given

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
        return tuple((x, keras.utils.to_categorical(y, 3).astype("float32")) for x, y in super().data(hp))

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        return ["accuracy"]


def variables(trainable: Any) -> list[Any]:
    return [np.asarray(v) for v in trainable._begun().program.model.variables if v.dtype.startswith("float")]


def trained(kind: Any, **params: Any) -> tuple[Any, list[dict[str, float]]]:
    found = kind()
    return found, metrics(train(found, assignment(epochs=4, optimizer="sgd", learning_rate=0.05, **params)))


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
            predicted = plain.model(share * augmented + (1 - share) * augmented[partners], training=True)
            value = loss(share * soft + (1 - share) * soft[partners], predicted)
        weights = plain.model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, weights), weights, strict=True))
    return [np.asarray(v) for v in plain.model.variables]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_labels_become_soft_as_numpy_makes_them(smoothing: float) -> None:
    found = ENTRIES["MixedImages"]
    assert found.params["label_smoothing"] == 0.1
    more = {"label_smoothing": smoothing} if smoothing else {}
    trial = assignment(epochs=4, mixup=0.4, momentum=0.9, optimizer="sgd", learning_rate=0.05, **more)
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
        assert one["accuracy"] == pytest.approx(other["accuracy"], abs=1e-6), "the label that weighs more counts"


@pytest.mark.parametrize("name", ["MixedWeights", "NewWeights", "MixedNumbers"])
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
    program = warm._begun().program
    none = metrics(train(warm, given(ENTRIES["MixedImages"], mixup=0, cutmix=0.0, random_erasing=0.0)))
    assert warm._begun().program is program
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
    for own in (Custom(), "sparse_categorical_crossentropy", lambda y, p: Custom().call(y, p)):
        if own == "sparse_categorical_crossentropy":
            own = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        found, _ = trained(losing(own), mixup=0.4)
        for one, other in zip(variables(default), variables(found), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


class OwnLoss(keras.Model):
    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *given: Any, **named: Any) -> Any:
        return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True))


class WithOwnLoss(Points):
    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((6,))
        return OwnLoss(inputs, layers.Dense(3)(inputs))


class OwnStep(Points):
    def train_step(self, model: keras.Model, batch: Any, hp: Any) -> Any:
        return {"loss": keras.losses.sparse_categorical_crossentropy(batch.y, model(batch.x), from_logits=True)}


def test_labels_that_nothing_weighs_by_their_shares_are_refused() -> None:
    for kind in (WithOwnLoss, OwnStep):
        with pytest.raises(Refused, match=r"something else takes them.*keras\.utils\.to_categorical"):
            trained(kind, mixup=0.4)
    with pytest.raises(Refused, match=r"'called' \(Called\) overrides __call__, where mixup"):
        trained(losing(Called(name="called")), mixup=0.4)
    with pytest.raises(Refused, match="ignores a class"):
        trained(losing(keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)), mixup=0.4)
    with pytest.raises(Refused, match="one number for a batch"):
        trained(losing(lambda y, p: keras.ops.mean(Custom().call(y, p))), mixup=0.4)


class SoftStep(Points):
    def train_step(self, model: keras.Model, batch: Any, hp: Any) -> Any:
        predicted = model(batch.x, training=True)
        batch.measure(predicted)
        return {"loss": keras.losses.categorical_crossentropy(batch.one_hot(3), predicted, from_logits=True)}


@pytest.mark.parametrize("params", [{"mixup": 0.4}, {}])
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


def returning(method: Any) -> type[Animal]:
    return type("Returning", (Animal,), {"augment": method})


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (
            lambda self, x, y, hp, draws: x,
            r"Returning\.augment\(x, y, hp, draws\) returned \w*Tensor, expected \(x, y\)",
        ),
        (lambda self, x, y, hp, draws: (x, y, y), r"returned 3 values, expected \(x, y\)"),
        (lambda self, x, hp, draws: (x, x), r"returned 2 values, expected x alone; to return y, take it"),
        (lambda self, x, y, hp, draws: (x, {"a": y}), "returned y as {a}, expected one array as it was given"),
        (lambda self, x, y, hp, draws: (x, tf.reduce_mean(y)), r"returned y of shape \(\) for 3 examples"),
        (lambda self, x, y, hp, draws: (x[:1], y), r"returned x of shape \(1, 6\) for 3 examples"),
        (lambda self, x, y, hp, draws: (x, tf.concat([y, y], 0)), r"returned y of shape \(6,\) for 3 examples"),
        (lambda self, x, y, draws: (x, y), r"augment\(x, y, draws\), expected augment\(x, hp, draws\) or augment"),
        (lambda self, y, x, hp, draws: (x, y), r"augment\(y, x, hp, draws\), expected"),
        (lambda self, x: x, r"augment\(x\), expected augment"),
    ],
)
def test_what_augment_gives_back_is_looked_at_before_training(method: Any, said: str) -> None:
    with pytest.raises(Refused, match=said):
        returning(method)().begin(assignment())


def test_weights_that_examples_have_are_given_back() -> None:
    class Losing(zoo_mixing.MixedWeights):
        def augment(self, x: Any, y: Any, sample_weight: Any, hp: Any, draws: Any) -> Any:
            return x, y, None

    with pytest.raises(Refused, match="returned no sample_weight for examples that have weights"):
        Losing().begin(assignment())


def test_other_names_of_the_three_stay_valid() -> None:
    class Named(Small):
        def augment(self, images: Any, params: Any, draws: Any) -> Any:
            return images + draws.normal((6,), 0.1)

    class Loose(Small):
        def augment(self, *given: Any) -> Any:
            return given[0] + given[2].normal((6,), 0.1)

    assert metrics(train(Named(), assignment())) == metrics(train(Loose(), assignment()))


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
    graph = plain._begun().program.train_chunk._list_all_concrete_functions()[0].graph
    names = {
        op.type for found in (graph, *graph._functions.values()) for op in getattr(found, "get_operations", list)()
    }
    assert not {"StatelessRandomGammaV2", "StatelessRandomGammaV3", "TopKV2"} & names
