from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small import Small, assignment, interrupted, metrics, train

from sweep.contract import Devices, Incompatible
from trainables.devices import gpu_support
from trainables.devices.placement import Placement, place
from trainables.keras_trainable import session_of
from trainables.loop import xla
from trainables.loop.xla import choose_xla, describe_xla_error, follow_author
from trainables.numbers.draws import CannotCompile
from trainables.recipe.refusals import Refused

pytestmark = pytest.mark.keras

ON = {"jit_compile": True}


def bits(trainable: Small) -> dict[str, Any]:
    return {
        path: parts[0].tobytes()
        for path, parts in session_of(trainable).trial.program.state.copy_all().items()
    }


def same(one: Small, other: Small, tolerance: float = 1e-6) -> None:
    theirs = session_of(other).trial.program.state.copy_all()
    for path, parts in session_of(one).trial.program.state.copy_all().items():
        np.testing.assert_allclose(
            theirs[path][0], parts[0], atol=tolerance, rtol=tolerance, err_msg=path
        )


class Dropping(Small):
    """With draws in the model and before it."""

    def model(self, hp: Any) -> keras.Model:
        layers = [
            keras.layers.Dense(8, "tanh"),
            keras.layers.Dropout(0.3),
            keras.layers.GaussianNoise(0.1),
        ]
        return keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(3)])

    def augment(self, x: Any, hp: Any, draws: Any) -> Any:
        return x + draws.normal((6,), 0.1) * draws.uniform((6,))


class Texts(Dropping):
    """With an operation in the model that XLA has no kernel for."""

    def model(self, hp: Any) -> keras.Model:
        written = keras.layers.Lambda(
            lambda x: tf.strings.to_number(tf.strings.as_string(x)), output_shape=(6,)
        )
        inner = super().model(hp)
        return keras.Sequential([keras.Input((6,)), written, *inner.layers])


class TextsBefore(Dropping):
    """With one before the model."""

    def augment(self, x: Any, hp: Any, draws: Any) -> Any:
        return super().augment(tf.strings.to_number(tf.strings.as_string(x)), hp, draws)


@pytest.fixture
def may(monkeypatch: pytest.MonkeyPatch) -> None:
    """What auto means on a GPU."""
    monkeypatch.setattr(xla, "choose_xla", lambda training, placement: "may")


@pytest.mark.parametrize(
    ("training", "gpu", "meant"),
    [
        ({}, False, ""),
        ({}, True, "may"),
        ({"jit_compile": "auto", "deterministic": True}, True, ""),
        ({"jit_compile": True}, False, "must"),
        ({"jit_compile": False}, True, ""),
    ],
)
def test_auto_is_for_gpus(training: dict[str, object], gpu: bool, meant: str) -> None:
    placement = place(Devices())
    assert (
        choose_xla(
            training, Placement(placement.replicas, "one_device", ("gpu:0",) if gpu else ("cpu:0",))
        )
        == meant
    )


@pytest.mark.parametrize(
    ("asked", "author", "training", "meant"),
    [
        ("may", None, {}, "may"),
        ("", True, {}, "must"),
        ("may", True, {"jit_compile": "auto"}, "must"),
        ("may", False, {}, ""),
        ("must", True, {"jit_compile": True}, "must"),
        ("", False, {"jit_compile": False, "deterministic": True}, ""),
    ],
)
def test_what_an_author_gives_to_compile_stands_over_auto(
    asked: xla.Asked, author: bool | None, training: dict[str, object], meant: str
) -> None:
    assert follow_author(asked, author, training, place(Devices())) == meant


@pytest.mark.parametrize(
    ("author", "training", "told"),
    [
        (
            True,
            {"jit_compile": False},
            "jit_compile=True, and the sweep file has training.jit_compile: False; leave",
        ),
        (
            False,
            {"jit_compile": True},
            "jit_compile=False, and the sweep file has training.jit_compile: True; leave",
        ),
        (
            True,
            {"deterministic": True},
            "jit_compile=True, which training.deterministic does not go with",
        ),
        (
            True,
            {"fuse": 4, "run_eagerly": True},
            "which training.run_eagerly and training.fuse does not go with",
        ),
    ],
)
def test_what_an_author_gives_to_compile_is_not_overruled(
    author: bool, training: dict[str, object], told: str
) -> None:
    with pytest.raises(Refused, match=told):
        follow_author("", author, training, place(Devices()))


def test_a_model_that_its_author_compiles_for_xla() -> None:
    class Compiled(Dropping):
        def model(self, hp: Any) -> keras.Model:
            model = super().model(hp)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile("sgd", loss, **({"jit_compile": True} if hp.through else {}))
            return model

    through, without = Compiled(), Compiled()
    train(through, assignment(through=True))
    assert through.facts().numerics["xla"] == "on"
    train(without, assignment(through=False))
    assert "xla" not in without.facts().numerics


@pytest.mark.parametrize(
    "params",
    [
        pytest.param({"batch_size": 48, "mixup": 0.4}, id="mixed"),
        pytest.param(
            {"batch_size": 35, "micro_batches": 2}, id="micro", marks=pytest.mark.exhaustive
        ),
        pytest.param({"clipnorm": 1.0}, id="partial", marks=pytest.mark.exhaustive),
        pytest.param(
            {"sam_rho": 0.05, "ema_momentum": 0.9}, id="sharp", marks=pytest.mark.exhaustive
        ),
    ],
)
def test_it_trains_as_without(params: dict[str, Any]) -> None:
    without, through = Dropping(), Dropping()
    expected = metrics(train(without, assignment(**params, epochs=4)))
    found = metrics(train(through, assignment(**params, epochs=4, training=ON)))
    for a, b in zip(expected, found, strict=True):
        assert b == pytest.approx(a, abs=1e-6, rel=1e-6)
    same(without, through)
    facts = through.facts()
    assert facts.numerics == {"xla": "on, but for augmentation" if "mixup" in params else "on"}
    assert facts.overhead_s["xla"] > 0
    assert without.facts().numerics == {}
    assert "xla" not in without.facts().overhead_s


@pytest.mark.exhaustive
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_it_trains_in_mixed_precision(precision: str) -> None:
    without, through = Dropping(), Dropping()
    expected = metrics(train(without, assignment(training={"precision": precision})))
    found = metrics(train(through, assignment(training={**ON, "precision": precision})))
    # XLA leaves out some roundings
    assert found[-1]["loss"] == pytest.approx(expected[-1]["loss"], rel=2e-2)


def test_a_warm_program_has_the_bits_of_a_new_one_and_compiles_once_for_each_batch_size() -> None:
    warm, cold = Dropping(), Dropping()
    train(warm, assignment(training=ON, seed=3, learning_rate=0.2))
    program = session_of(warm).trial.program
    assert warm.facts().structures == 1
    train(warm, assignment(training=ON))
    assert session_of(warm).trial.program is program
    assert warm.facts().structures == 1
    assert warm.facts().overhead_s["xla"] < 0.1
    train(cold, assignment(training=ON))
    assert bits(warm) == bits(cold)
    train(warm, assignment(training=ON, batch_size=32))
    assert warm.facts().structures == 2  # the batch size is a part of what was compiled
    assert "batch_size" in str(warm.facts().structure)
    train(warm, assignment())
    assert warm.facts().numerics == {}


@pytest.mark.exhaustive
def test_a_resumed_trial_has_the_bits_of_a_straight_one(tmp_path: Path) -> None:
    straight = Small()
    trial = assignment(training=ON, epochs=4)
    expected = metrics(train(straight, trial))
    epochs, resumed = interrupted(trial, tmp_path)
    assert metrics(epochs) == expected
    assert bits(resumed) == bits(straight)


def test_what_cannot_go_through_it_is_refused_or_goes_without_and_says_why(may: None) -> None:
    expected = metrics(train(Texts(), assignment()))
    through = Texts()
    assert metrics(train(through, assignment(training=ON))) == expected
    assert through.facts().numerics == {
        "xla": "off",
        "xla_reason": "XLA has no kernel for AsString",
    }


UNKNOWN = (
    "a GPU of compute capability 12.0 is newer than this TensorFlow, which knows sm_80, compute_90"
)


@pytest.fixture
def unknown_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card for which XLA would end the process."""
    monkeypatch.setattr(gpu_support, "find_unknown_gpu", lambda: UNKNOWN)


def test_auto_trains_without_it_on_a_card_that_it_does_not_know(
    may: None, unknown_gpu: None
) -> None:
    trained = Dropping()
    train(trained, assignment())
    assert trained.facts().numerics == {"xla": "off", "xla_reason": UNKNOWN}


@pytest.mark.parametrize("loop", ["own", "fit"])
def test_asked_for_it_is_refused_on_a_card_that_it_does_not_know(
    loop: str, unknown_gpu: None
) -> None:
    with pytest.raises(Incompatible, match=r"jit_compile is true.*compute capability 12\.0"):
        train(Dropping(), assignment(training={**ON, "loop": loop}))


def test_asked_for_it_is_refused() -> None:
    with pytest.raises(
        Refused, match=r"true, but updates .*: XLA has no kernel for AsString; with auto"
    ):
        train(Texts(), assignment(training=ON))


@pytest.mark.exhaustive
def test_augmentation_without_a_kernel_is_computed_outside() -> None:
    without, through = TextsBefore(), TextsBefore()
    train(without, assignment())
    train(through, assignment(training=ON))
    assert through.facts().numerics == {"xla": "on, but for augmentation"}
    same(without, through)


@pytest.mark.slow
def test_several_replicas_compile_their_gradients_where_they_do_not_meet_in_them(may: None) -> None:
    one, two, meeting = Dropping(), Dropping(), Small()
    expected, found = metrics(train(one, assignment())), metrics(train(two, assignment(2)))
    for a, b in zip(expected, found, strict=True):
        assert b == pytest.approx(a, abs=1e-6, rel=1e-6)
    assert two.facts().numerics == {"xla": "on"}
    train(meeting, assignment(2))
    assert meeting.facts().numerics["xla"] == "off"
    assert "replicas sum up while they compute gradients" in meeting.facts().numerics["xla_reason"]


def test_nothing_is_lost_where_memory_is(may: None, monkeypatch: pytest.MonkeyPatch) -> None:
    error = tf.errors.ResourceExhaustedError(None, None, "no memory")

    def compile_none(*given: Any) -> None:
        raise error

    monkeypatch.setattr(xla.Xla, "compile", compile_none)
    with pytest.raises(tf.errors.ResourceExhaustedError):
        train(Small(), assignment())


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (CannotCompile("that"), "that"),
        (
            CannotCompile(
                "Exception encountered when calling A.call().\n\n\x1b[1mthat\x1b[0m\n\nArguments"
            ),
            "that",
        ),
        (
            tf.errors.InvalidArgumentError(
                None,
                None,
                "Graph execution error:\n\nDetected at node X\n<stack traces>\nShapes differ: 1 and 2\nmore",
            ),
            "Shapes differ: 1 and 2",
        ),
        (tf.errors.InternalError(None, None, ""), "InternalError"),
    ],
)
def test_a_reason_is_one_line(error: Exception, text: str) -> None:
    assert describe_xla_error(error) == text


def test_fit_passes_it_on() -> None:
    fit = {"loop": "fit"}
    without, through = Dropping(), Dropping()
    expected = metrics(train(without, assignment(training=fit)))
    found = metrics(train(through, assignment(training={**fit, **ON})))
    assert session_of(through).trial.program.model.jit_compile
    assert not session_of(without).trial.program.model.jit_compile
    assert through.facts().numerics == {"xla": "on"}
    for a, b in zip(expected, found, strict=True):
        assert b == pytest.approx(a, abs=1e-6, rel=1e-6)
    with pytest.raises(Exception, match="jit_compile is true, and XLA has no kernel for AsString"):
        train(Texts(), assignment(training={**fit, **ON}))
    with pytest.raises(Exception, match="cannot do jit_compile: true"):
        train(Dropping(), assignment(2, training={**fit, **ON}))


@pytest.mark.slow
def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[3] / "docs" / "compiled_updates.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile(block, "page", "exec"), {})
    assert capsys.readouterr().out.splitlines()[-1].startswith("on ")
