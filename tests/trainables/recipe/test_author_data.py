from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from small import Small, assignment, go_on, metrics, train
from splits import SIZE, Split, ids

from sweep.contract import Fold, OtherData
from sweep.hyperparameters import Hyperparameters
from sweep.read_recorder import recorder
from sweep.state import values
from trainables.data import files
from trainables.data.sources import DataError
from trainables.keras_trainable import KerasTrainable, session_of
from trainables.recipe import author_data
from trainables.session import OWN
from trainables.state import author_globals

pytestmark = pytest.mark.keras


def by_python() -> Any:
    return random.sample(range(SIZE), SIZE)


def by_numpy() -> Any:
    return np.random.permutation(SIZE)


def by_a_generator_without_a_seed() -> Any:
    return np.random.default_rng().permutation(SIZE)


def by_a_state_without_a_seed() -> Any:
    return np.random.RandomState().permutation(SIZE)


def by_keras() -> Any:
    return np.argsort(keras.random.uniform((SIZE,)))


def by_tensorflow() -> Any:
    return tf.random.shuffle(tf.range(SIZE)).numpy()


def by_tensorflow_s_generator() -> Any:
    return np.argsort(tf.random.get_global_generator().uniform((SIZE,)))


def by_a_pipeline() -> Any:
    return np.array(list(tf.data.Dataset.range(SIZE).shuffle(SIZE).as_numpy_iterator()))


def by_keras_with_a_seed() -> Any:
    keras.utils.set_random_seed(3)
    return np.argsort(keras.random.uniform((SIZE,))) if random.random() < 2 else None


DRAWS: tuple[Callable[[], Any], ...] = (
    by_python, by_numpy, by_a_generator_without_a_seed, by_a_state_without_a_seed, by_keras, by_tensorflow,
    by_tensorflow_s_generator, by_a_pipeline, by_keras_with_a_seed,
)  # fmt: skip


def drawn(seed: int) -> list[Any]:
    found = []

    class Author:
        def data(self, hp: Any) -> Any:
            found.extend(np.asarray(draw()).tolist() for draw in DRAWS)
            return None, None

    author_data.run_data(Author(), Hyperparameters({}), seed)
    return found


def test_every_generator_gives_the_same_wherever_data_runs_and_another_under_another_seed() -> None:
    first = drawn(1)
    # what other trials draw
    (
        tf.random.uniform((3,)),
        keras.random.uniform((3,)),
        np.random.random(),
    )
    assert drawn(1) == first
    others = drawn(2)
    for draw, one, other in zip(DRAWS, first, others, strict=True):
        assert sorted(one) == list(range(SIZE)), draw
        assert (one == other) == (draw is by_keras_with_a_seed), draw


def test_what_is_drawn_later_does_not_depend_on_whether_data_ran() -> None:
    def later() -> list[Any]:
        return [
            np.asarray(draw()).tolist() for draw in (by_python, by_numpy, by_keras, by_tensorflow)
        ]

    keras.utils.set_random_seed(7)
    expected = later()
    keras.utils.set_random_seed(7)
    drawn(1)
    assert later() == expected
    keras.utils.set_random_seed(7)
    tf.random.get_global_generator().reset_from_seed(1)
    first = tf.random.get_global_generator().uniform(()).numpy()
    tf.random.get_global_generator().reset_from_seed(1)
    drawn(1)
    assert tf.random.get_global_generator().uniform(()).numpy() == first


RARE = [pytest.param(cut, marks=pytest.mark.exhaustive) for cut in ("fold", "all data")]


@pytest.mark.parametrize("cut", ["parts", *RARE])
def test_no_example_that_was_trained_on_validates_or_tests(cut: str, tmp_path: Path) -> None:
    given = assignment(epochs=2, training={"all_data": True} if cut == "all data" else None)
    if cut == "fold":
        given = replace(given, fold=Fold(0, 3, 0))
    trainable = Split()
    trainable.begin(given)
    go_on(trainable, pause_after=1)
    trained, held_out = (
        ids(session_of(trainable).trial.walk.data),
        session_of(trainable).trial.held_out,
    )
    (tmp_path / "saved").mkdir()
    (trainable.save(tmp_path / "saved") or (lambda: None))()

    used = Split()  # has had another trial of another seed before
    train(used, replace(given, seed=5))
    for again in (used, Split()):
        np.random.seed(99)
        again.begin(given)
        assert again.restore(tmp_path / "saved") == 1
        assert ids(session_of(again).trial.walk.data) == trained
        if cut == "parts":
            assert held_out is not None
            assert not trained & ids(held_out.split)
        tested: list[set[int]] = []
        trial = session_of(again).trial
        data = session_of(again).data.test(again, trial.hp, trial.placement, given)
        tested.append({int(number) for number in data[0][:, 0]})
        assert not trained & tested[0]
        assert again.test() is not None


class Unsteady(Split):
    """Draws from where no seed reaches."""

    order = staticmethod(lambda: random.SystemRandom().sample(range(SIZE), SIZE))


def test_a_trial_goes_on_and_is_tested_with_no_other_data(tmp_path: Path) -> None:
    trainable = Unsteady()
    train(trainable, assignment())
    (trainable.save(tmp_path) or (lambda: None))()
    with pytest.raises(
        OtherData,
        match=r"expected \w{8}, that the model was trained and validated on; data\(\) must",
    ):
        trainable.test()
    again = Unsteady()
    again.begin(assignment())
    expected = rf"the data are \w{{8}} .*expected \w{{8}}, that {tmp_path.name} was trained on"
    with pytest.raises(OtherData, match=expected):
        again.restore(tmp_path)


class Streamed(Split):
    """A stream that augments what it reads, another way each time."""

    def data(self, hp: Hyperparameters) -> Any:
        x, y = super().data(hp)[0]

        def noisy(x: Any, y: Any) -> Any:
            return x + tf.random.stateless_normal(
                tf.shape(x), [tf.cast(tf.timestamp() * 1e6, tf.int64), 0]
            ), y

        return tf.data.Dataset.from_tensor_slices((x, y)).map(noisy), None


def test_a_stream_that_draws_goes_on() -> None:
    trainable = Streamed()
    train(trainable, assignment())
    session_of(trainable).data.check_fingerprint("another one", "epoch-000001")


def test_what_a_stream_was_made_of_is_not_claimed_for_it_may_draw() -> None:
    streamed, split = Streamed(), Split()
    streamed.begin(assignment())
    split.begin(assignment())
    assert (streamed.facts().data_reads, split.facts().data_reads) == (
        None,
        '{"class_weights":"absent"}',
    )


def test_it_is_the_data_s_own_seed_that_decides() -> None:
    kinds = [
        replace(assignment(), data_seed=1),
        replace(assignment(), data_seed=1, seed=4),
        assignment(),
    ]
    found = []
    trainable = Split()
    for given in kinds:
        trainable.begin(given)
        found.append(trainable.facts().data)
    assert found[0] == found[1] != found[2]


class FourArrays(KerasTrainable):
    def data(self, hp: Any) -> Any:
        return np.zeros(3), np.zeros(3), np.zeros(2), np.zeros(2)


class TwoArrays(KerasTrainable):
    def data(self, hp: Any) -> Any:
        return np.zeros((3, 2)), np.zeros(3)


class OneDataset(KerasTrainable):
    def data(self, hp: Any) -> Any:
        return tf.data.Dataset.range(3)


class Nothing(KerasTrainable):
    def data(self, hp: Any) -> Any:
        return None


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (FourArrays, r"a tuple of 4 \(ndarray, ndarray, ndarray, ndarray\)"),
        (TwoArrays, r"a tuple of 2 \(ndarray, ndarray\)"),
        (OneDataset, "an? _RangeDataset"),
        (Nothing, "a NoneType"),
    ],
)
def test_what_is_no_training_and_validation_data_is_refused_with_their_order(
    kind: Any, found: str
) -> None:
    expected = rf"data\(\) returned {found}, expected a tuple of two or three, in this order: training data, validation"
    with pytest.raises(DataError, match=expected):
        kind().begin(assignment())


def test_what_a_trainable_itself_keeps_is_known_to_be_no_author_s() -> None:
    trainable = Small()
    assert author_data.attributes.get_author_attributes(trainable, OWN) == {}
    train(trainable, assignment(epochs=1))
    assert author_data.attributes.get_author_attributes(trainable, OWN) == {}


WORDS = """
import numpy as np
STATE = {}
X = np.random.default_rng(0).normal(size=(90, 6)).astype("float32")

def fit(size):
    STATE["size"] = size
    STATE["scale"] = 1.0 / size
    X[:] *= size
    return X
"""


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "trial_words.py").write_text(WORDS)
    monkeypatch.syspath_prepend(str(tmp_path))
    import trial_words

    return trial_words


class ByWords(Small):
    """Reads in model() what data() has left in a module."""

    def data(self, hp: Hyperparameters) -> Any:
        import trial_words

        x = trial_words.fit(hp.integer("words")).copy()
        y = (x[:, :3].argmax(axis=1)).astype(np.int32)
        return (x[:70], y[:70]), (x[70:], y[70:])

    def model(self, hp: Hyperparameters) -> keras.Model:
        import trial_words

        inputs = keras.Input((6,))
        x = keras.layers.Rescaling(trial_words.STATE["scale"])(inputs)
        return keras.Model(
            inputs, keras.layers.Dense(3)(keras.layers.Dense(trial_words.STATE["size"])(x))
        )


def test_what_data_leaves_in_a_module_is_of_its_trial_in_a_used_worker(
    words: Any, tmp_path: Path
) -> None:
    sizes = (4, 7, 4)
    fresh = []
    for size in sizes[:2]:
        words.STATE.clear()
        words.X[:] = np.random.default_rng(0).normal(size=(90, 6)).astype("float32")
        fresh.append(metrics(train(type("Fresh", (ByWords,), {})(), assignment(words=size))))
    words.STATE.clear()
    words.X[:] = np.random.default_rng(0).normal(size=(90, 6)).astype("float32")
    used, other = ByWords(), ByWords()
    for size in sizes:
        given = replace(assignment(words=size), shared=tmp_path / "node")
        assert metrics(train(used, given)) == fresh[sizes.index(size)]
        assert used.facts().structures == min(1 + sizes.index(size), 2) or size == 4
        words.STATE.clear()  # another worker's process, in which `data` never ran
        words.X[:] = np.random.default_rng(0).normal(size=(90, 6)).astype("float32")
        assert metrics(train(other, given)) == fresh[sizes.index(size)]


COUNTED = """
from types import SimpleNamespace
import numpy as np
MADE, NETS, BASE = [0], {"all": {}}, None
KEPT = SimpleNamespace(losses=0)
RANDOM = np.random.default_rng(3)
"""


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "trial_counted.py").write_text(COUNTED)
    monkeypatch.syspath_prepend(str(tmp_path))
    author_globals.end_trial()  # of the test before, which has ended none
    import trial_counted

    yield trial_counted
    author_globals.end_trial()
    del sys.modules["trial_counted"]


class Counting(Small):
    """Makes another model each time, unless what it leaves in a module is put back; its hooks look at that."""

    def model(self, hp: Hyperparameters) -> keras.Model:
        import trial_counted as kept

        kept.MADE[0] += 1
        if kept.BASE is None:
            kept.BASE = keras.layers.Dense(6, name="base")
        shift = float(kept.RANDOM.normal())
        body = [
            kept.BASE,
            keras.layers.Rescaling(1.0, shift),
            keras.layers.Dense(4 + kept.MADE[0] + hp.integer("more")),
        ]
        model = keras.Sequential([keras.Input((6,)), *body, keras.layers.Dense(3)])
        kept.NETS["all"]["head"] = model
        return model

    def loss(self, hp: Hyperparameters, model: keras.Model) -> Any:
        import trial_counted as kept

        kept.KEPT.losses += 1
        return keras.losses.SparseCategoricalCrossentropy(from_logits=kept.KEPT.losses == 1)

    def on_epoch_end(
        self, epoch: int, logs: dict[str, float], model: keras.Model, hp: Hyperparameters
    ) -> None:
        import trial_counted as kept

        assert kept.NETS["all"]["head"] is model
        logs["made"] = kept.MADE[0] + kept.KEPT.losses


def test_what_model_leaves_in_a_module_is_put_back_before_the_next_trial(counted: Any) -> None:
    """Also where a program is used again: its hooks find what was left when it was made."""
    trials = [
        assignment(more=more, seed=seed, epochs=1)
        for more, seed in ((0, 0), (3, 0), (0, 0), (0, 1))
    ]
    fresh = []
    for given in trials:
        sys.modules.pop("trial_counted")
        fresh.append(metrics(train(type("Fresh", (Counting,), {})(), given)))
    assert all(epoch["made"] == 2 for (epoch,) in fresh)
    assert fresh[0] == fresh[2] != fresh[3]
    used = Counting()
    for given, expected in zip(trials, fresh, strict=True):
        assert metrics(train(used, given)) == expected
        kept = sys.modules["trial_counted"]
        before = kept.NETS["all"]["head"]
        assert used.trained_model() is not None  # model() runs once more
        assert (kept.MADE, kept.NETS["all"]["head"]) == ([1], before)


def test_what_model_changes_in_place_and_is_too_large_to_be_put_back_is_named(counted: Any) -> None:
    class Doubling(Small):
        def model(self, hp: Hyperparameters) -> keras.Model:
            sys.modules["trial_counted"].TABLE *= 2
            return super().model(hp)

    counted.TABLE = np.ones(values.COPIED_BYTES // 8 + 1)
    said = r"a related method has changed trial_counted.TABLE in place \(16 MiB\).*run again for other trials"
    with pytest.raises(author_globals.NotPutBack, match=said):
        Doubling().begin(assignment())


def test_what_data_has_read_into_a_cache_of_a_function_counts_as_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "caches_a_table.py").write_text(
        "import functools, pathlib\n"
        "from small import Small\n"
        "@functools.cache\n"
        "def table():\n"
        f"    return pathlib.Path({str(tmp_path / 'table.txt')!r}).read_text()\n"
        "class Caching(Small):\n"
        "    def data(self, hp):\n"
        "        table()\n"  # of which the model may use more than the data show
        "        return super().data(hp)\n"
    )
    (tmp_path / "table.txt").write_text("1")
    monkeypatch.syspath_prepend(tmp_path)
    caching = importlib.import_module("caches_a_table").Caching()
    with recorder.in_trial(), recorder.apart() as reads:
        caching.begin(assignment(epochs=1))
    assert str(tmp_path / "table.txt") in reads.files


class ScaledByALayer(Split):
    """Applies a layer to the examples, which computes in the trial's precision."""

    def data(self, hp: Any) -> Any:
        scale = keras.layers.Rescaling(0.37, 0.11)

        def scaled(x: Any) -> Any:
            return keras.ops.convert_to_numpy(keras.ops.cast(scale(x), "float32"))

        return tuple((scaled(x), y) for x, y in super().data(hp))


def test_data_are_computed_for_the_test_in_the_precision_of_the_trial() -> None:
    trainable = ScaledByALayer()
    train(trainable, assignment(epochs=1, training={"precision": "mixed_bfloat16"}))
    assert trainable.test() is not None
    assert keras.config.dtype_policy().name == "float32"


class InParquet(Small):
    """All its data are in Parquet files."""

    folder: Path

    def data(self, hp: Any) -> Any:
        parts = []
        for place, (x, y) in enumerate(super().data(hp)):
            file = self.folder / f"{place}.parquet"
            columns = {f"x{i}": x[:, i] for i in range(6)}
            pq.write_table(pa.table({**columns, "y": y}), file)
            parts.append(files.parquet(str(file), [*columns], "y"))
        return (*parts, parts[-1])


@pytest.mark.parametrize("cut", ["weighed", "fold"])
def test_test_data_in_files_are_read_as_training_data_are(cut: str, tmp_path: Path) -> None:
    given = assignment(epochs=1, **({"class_weights": "balanced"} if cut == "weighed" else {}))
    if cut == "fold":
        given = replace(given, fold=Fold(0, 3, 0))
    trainable = InParquet()
    trainable.folder = tmp_path
    train(trainable, given)
    assert trainable.test() is not None
