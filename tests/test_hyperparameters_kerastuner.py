"""KerasTuner's spelling of hyperparameters, against KerasTuner where it is installed."""

from __future__ import annotations

from typing import Any

import pytest

from sweep.hyperparameters import Declaration, Hyperparameters, Reads

CALLS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "whole": ("Int", (1, 4), {}),
    "steps": ("Int", (8, 32), {"step": 8}),
    "odd": ("Int", (1, 6), {"step": 2}),
    "doubled": ("Int", (8, 64), {"step": 2, "sampling": "log"}),
    "wide": ("Int", (1, 1000), {"sampling": "log", "default": 10}),
    "number": ("Float", (0.0, 0.5), {}),
    "rate": ("Float", (1e-4, 1e-1), {"sampling": "log"}),
    "quarters": ("Float", (0.0, 0.5), {"step": 0.25}),
    "tenths": ("Float", (0.0, 0.3), {"step": 0.1}),
    "kind": ("Choice", (["relu", "gelu"],), {}),
    "second": ("Choice", (["relu", "gelu"],), {"default": "gelu"}),
    "flag": ("Boolean", (), {}),
    "fixed": ("Fixed", (3,), {}),
}
KEYS = {
    "whole": {"min": 1, "max": 4},
    "steps": {"values": [8, 16, 24, 32]},
    "odd": {"values": [1, 3, 5]},
    "doubled": {"values": [8, 16, 32, 64]},
    "wide": {"distribution": "int_log_uniform_values", "min": 1, "max": 1000},
    "number": {"min": 0.0, "max": 0.5},
    "rate": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1e-1},
    "quarters": {"values": [0.0, 0.25, 0.5]},
    "tenths": {"values": [0.0, 0.1, 0.2, 0.3]},
    "kind": {"values": ["relu", "gelu"]},
    "second": {"values": ["relu", "gelu"]},
    "flag": {"values": [False, True]},
    "fixed": {"value": 3},
}


def call(hp: Any, name: str) -> Any:
    method, args, more = CALLS[name]
    return getattr(hp, method)(name, *args, **more)


def declared(name: str) -> Declaration:
    hp, found = Hyperparameters({}), list[Declaration]()
    hp.declare_into(found)
    call(hp, name)
    return found[0]


@pytest.mark.parametrize("name", CALLS)
def test_each_gives_the_keys_of_a_sweep_file(name: str) -> None:
    assert declared(name).keys == KEYS[name]


@pytest.mark.keras  # KerasTuner imports Keras
@pytest.mark.parametrize("name", CALLS)
def test_without_a_value_each_is_what_keras_tuner_gives(name: str) -> None:
    keras_tuner = pytest.importorskip("keras_tuner", reason='a peer, of the extra "test"')
    assert call(Hyperparameters({}), name) == call(keras_tuner.HyperParameters(), name)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("whole", 3, 3),
        ("whole", 3.0, 3),
        ("number", 1, 1.0),
        ("kind", "selu", "selu"),
        ("flag", True, True),
    ],
)
def test_a_file_s_value_comes_first_whatever_the_code_allows(
    name: str, value: Any, expected: Any
) -> None:
    hp = Hyperparameters({name: value})
    reads: Reads = {}
    with hp.recording(reads):
        found = call(hp, name)
    assert (found, type(found), reads) == (expected, type(expected), {name: value})


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("whole", 3.5, "'whole' is 3.5, expected a whole number"),
        ("whole", "many", "'whole' is 'many', expected a whole number"),
        ("number", True, "'number' is True, expected a number"),
        ("flag", 1, "'flag' is 1, expected true or false"),
    ],
)
def test_a_value_of_another_kind_is_an_error(name: str, value: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        call(Hyperparameters({name: value}), name)


def test_another_sampling_is_an_error() -> None:
    with pytest.raises(ValueError, match="sampling 'reverse_log', expected linear or log"):
        Hyperparameters({}).Float("rate", 0.1, 1.0, sampling="reverse_log")


def test_whole_numbers_may_be_floats_as_in_kerastuner() -> None:
    hp, found = Hyperparameters({}), list[Declaration]()
    hp.declare_into(found)
    assert hp.Int("units", 1e2, 1e3, default=2e2) == 200
    assert hp.Int("width", 32, 64, 16.0) == 32
    assert [one.keys for one in found] == [{"min": 100, "max": 1000}, {"values": [32, 48, 64]}]
    with pytest.raises(ValueError, match=r"'depth' has max_value 2\.5, expected a whole number"):
        hp.Int("depth", 1, 2.5)
    with pytest.raises(ValueError, match="'units' has max_value 8, expected at least 16"):
        hp.Int("units", 16, 8)


def test_conditions_are_noted() -> None:
    hp, found = Hyperparameters({}), list[Declaration]()
    hp.declare_into(found)
    with hp.conditional_scope("kind", ["sgd", "muon"]):
        hp.Float("momentum", 0.0, 0.9)
    hp.Int("units", 1, 4, parent_name="deep", parent_values=True)
    hp.Int("width", 1, 4)
    assert [dict(one.when) for one in found] == [{"kind": ("sgd", "muon")}, {"deep": (True,)}, {}]


def _call_in_scopes(hp: Any) -> list[Any]:
    """What a model finds below choices, some of which do not hold."""
    found = [hp.Choice("kind", ["adam", "sgd"])]
    with hp.conditional_scope("kind", ["sgd"]):
        found += [
            hp.Float("momentum", 0.1, 0.9),
            hp.Boolean("nesterov", default=True),
            hp.Fixed("dampening", 3),
        ]
        with hp.conditional_scope("nesterov", True), hp.name_scope("inner"):
            found += [hp.Int("steps", 1, 4), hp.Choice("mode", ["fast", "exact"])]
    return [*found, hp.Int("warmup", 2, 8, parent_name="kind", parent_values="adam")]


@pytest.mark.keras
@pytest.mark.parametrize("kind", [None, "adam", "sgd"])
@pytest.mark.parametrize("nesterov", [None, False, True])
def test_what_does_not_apply_is_none_as_in_keras_tuner(
    kind: str | None, nesterov: bool | None
) -> None:
    keras_tuner = pytest.importorskip("keras_tuner", reason='a peer, of the extra "test"')
    given = {"kind": kind, "nesterov": nesterov if kind == "sgd" else None}
    values = {name: value for name, value in given.items() if value is not None}
    theirs = keras_tuner.HyperParameters()
    theirs.values.update(values)
    expected = _call_in_scopes(theirs)
    assert None in expected
    assert _call_in_scopes(Hyperparameters(values)) == expected


def test_a_file_s_value_comes_first_also_where_the_code_has_none() -> None:
    assert _call_in_scopes(Hyperparameters({"kind": "adam", "momentum": 0.5}))[1] == 0.5


def test_whether_a_parameter_applies_is_a_read_of_its_parent() -> None:
    hp = Hyperparameters({"kind": "adam"})
    reads: Reads = {}
    with hp.recording(reads), hp.conditional_scope("kind", "sgd"):
        assert hp.Float("momentum", 0.1, 0.9) is None
    assert reads["kind"] == "adam"
    assert not Hyperparameters({"kind": "sgd"}).matches_reads(reads)


def test_a_live_number_is_a_plain_one_without_a_program() -> None:
    hp = Hyperparameters({"noise": 0.5, "kind": "strong"})
    reads: Reads = {}
    with hp.recording(reads):
        assert hp.live("noise") == 0.5
        assert hp.live("absent", 0.25) == 0.25
        assert hp.live("kind", meaning={"strong": 2.0}) == 2.0
        assert hp.live("none", 0.5, meaning={"strong": 2.0}) == 0.5  # as in a program
    assert {name: reads[name] for name in ("noise", "kind")} == {"noise": 0.5, "kind": "strong"}
    with pytest.raises(KeyError, match="no parameter 'absent'"):
        hp.live("absent")
    with pytest.raises(ValueError, match=r"noise is 0\.5, expected a number from 0 to 0\.4"):
        hp.live("noise", bounds=(0, 0.4))


def test_a_program_gives_its_own_numbers_and_none_while_data_runs() -> None:
    hp = Hyperparameters({"noise": 0.5})
    hp.serve_live(lambda *given, **more: (given, more))
    assert hp.live("noise", 0.1) == (
        ("noise", None),
        {"default": 0.1, "bounds": None, "standard": False},
    )
    assert hp.with_changes({"other": 1}).live("noise")[0] == ("noise", None)
    with hp.without_live():
        assert hp.live("noise") == 0.5
    assert hp.live("noise")[0] == ("noise", None)


def test_a_trial_has_what_its_file_says_whatever_its_code_has_declared() -> None:
    hp = Hyperparameters({})
    assert hp.Float("learning_rate", 0.02, 0.5) == 0.02
    assert (hp.get("learning_rate"), "learning_rate" in hp) == (None, False)


@pytest.mark.parametrize(
    ("kind", "arguments", "more", "told"),
    [
        (
            "Int",
            (1, 10),
            {"step": 1, "sampling": "log"},
            "has a step of 1 with sampling log, expected one above 1",
        ),
        (
            "Int",
            (0, 10),
            {"step": 2, "sampling": "log"},
            "begins at 0 with sampling log, expected a positive number",
        ),
        ("Int", (0, 10), {"step": -2}, "has a step of -2, expected a positive number"),
        ("Float", (0.0, 1.0), {"step": 0.0}, "has a step of 0.0, expected a positive number"),
        (
            "Float",
            (0.1, 1.0),
            {"step": 0.5, "sampling": "log"},
            "has a step of 0.5 with sampling log, expected",
        ),
    ],
)
def test_a_step_that_leads_to_no_end_is_refused(
    kind: str, arguments: tuple[Any, ...], more: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=f"parameter 'x' {told}"):
        getattr(Hyperparameters({}), kind)("x", *arguments, **more)
