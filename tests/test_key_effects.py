"""Nothing that a sweep file may say is without effect in silence: the table of keys by kind of trainable."""

from __future__ import annotations

from pathlib import Path

import pytest
from key_effects import KINDS, OF_THE_SERVICE, READ, REFUSED, ROWS, YES, Row

from sweep import standard_hyperparameters
from sweep.errors import InputError
from sweep.inspection import Source, inspect
from sweep.runner import checking
from sweep.spec import blocks, parse_spec, sweep_file

PAGE = (Path(__file__).parents[1] / "docs" / "hyperparameters.md").read_text()
CELLS = {name: dict(zip(KINDS, row.cells, strict=True)) for row in ROWS for name in row.names}


def test_every_key_and_every_standard_hyperparameter_has_one_row() -> None:
    named = [name for row in ROWS for name in row.names]
    assert len(named) == len(set(named))
    settings = {f"training.{key}" for key in blocks.Training.model_fields}
    assert set(named) == set(standard_hyperparameters.STANDARD) | settings | {"folds", "minutes"}
    keys = set(sweep_file.SweepFile.model_fields) - set(sweep_file.SERVER_KEYS)
    assert keys == OF_THE_SERVICE | {"folds", "minutes"}


def test_what_an_overridden_method_leaves_unread_is_standard() -> None:
    for names in standard_hyperparameters.OF_METHODS.values():
        assert set(names) <= set(standard_hyperparameters.OVERRIDABLE)
    assert set(standard_hyperparameters.OF_RATES) <= set(standard_hyperparameters.OVERRIDABLE)
    assert set(standard_hyperparameters.CLIPPING) <= set(standard_hyperparameters.FRAME)


def line(row: Row) -> str:
    return f"| {', '.join(f'`{name}`' for name in row.names)} | {' | '.join(row.cells)} |"


def test_the_page_has_the_table() -> None:
    (table,) = (part for part in PAGE.split("\n\n") if part.startswith("| acts on |"))
    assert table.splitlines()[2:] == [line(row) for row in ROWS]


VALUES: dict[str, object] = {
    "training.precision": "mixed_bfloat16",
    "training.strategy": "one_device",
    "training.cross_device": "ring",
    "training.loop": "fit",
    "training.patience": 3,
    "training.all_data": "true",
    "training.data_seed": 5,
    "training.deterministic": "true",
    "training.jit_compile": "true",
    "training.run_eagerly": "true",
    "training.fuse": 4,
    "folds": 3,
    "minutes": 5,
}
ASKED = {
    "servers": ({"training.strategy": "parameter_server"}, "resources: {workers: 2, servers: 1}"),
    "workers": ({}, "resources: {workers: 2}"),
    "fused": ({"training.fuse": 4}, ""),
    "fit": ({"training.loop": "fit"}, ""),
    "compiled": ({}, ""),
    "function": ({}, ""),
}
"""What a file says for a trainable to be of this kind, beside its code."""
ONLY_A_MODEL_TELLS = {
    "fit": ("micro_batches", "ema_momentum", "swa_from", "sam_rho"),
    "servers": ("fine_tune_learning_rate",),
}
"""What the first trial is refused for, as its model is built."""
TAKEN = {"training.strategy": ("servers", "workers"), "training.precision": ("servers",)}
"""Settings that have other values there."""
HEAD = "from trainables.keras_trainable import KerasTrainable\n"
KERAS = "class M(KerasTrainable):\n    def data(self, hp): hp.get('a', 1)\n    def model(self, hp): ...\n"
FUNCTION = "def function(hp, report):\n    report(loss=hp.get('a', 1))\n"
READING = "def reading(hp, report):\n    report(loss=hp.get('a', 1), fold=report.fold, **report.training)\n"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    """A KerasTrainable, a function that reads nothing, and one that reads whatever there is."""
    folder = tmp_path_factory.mktemp("sources")
    parameters = [name.replace("*", "head") for name in standard_hyperparameters.STANDARD]
    texts = {
        "M": HEAD + KERAS,
        "function": FUNCTION,
        "reading": f"READS = {tuple(parameters)}\n{READING}",
    }
    for name, text in texts.items():
        (folder / f"of_{name}.py").write_text(text)
    return {name: inspect(f"of_{name}:{name}", [folder]) for name in texts}


def places(
    source: Source, settings: dict[str, object], more: str, parameter: str = ""
) -> list[str]:
    """Return the keys of a file that are refused before anything starts."""
    training = {
        key.partition(".")[2]: value
        for key, value in settings.items()
        if key.startswith("training.")
    }
    lines = [
        f"{key}: {value}" for key, value in settings.items() if not key.startswith("training.")
    ]
    block = ", ".join(f"{key}: {value}" for key, value in training.items())
    text = f"trainable: {source.trainable}\nmethod: grid\nmetric: {{name: loss}}\n"
    text += f"parameters: {{a: {{value: 1}}{parameter and ', '}{parameter}}}\n"
    text += "\n".join([f"training: {{{block}}}", more, *lines])
    try:
        checking.check_source(parse_spec(text, "s.yaml"), "s.yaml", source)
    except InputError as error:
        return [problem.where.rpartition(": ")[2] for problem in error.problems]
    return []


def value_of(name: str) -> object:
    """Return a value that a standard hyperparameter may have."""
    if name == "optimizer":
        return "adamw"
    bounds = standard_hyperparameters.get_standard_bounds(name)
    candidates: tuple[object, ...] = (
        0.5,
        2,
        True,
        "linear",
        "cosine",
        "balanced",
        -0.5,
        "sgd",
        [3],
    )
    return next(value for value in candidates if bounds.accepts(value))  # type: ignore[arg-type]  # a value of the domain of this key


@pytest.mark.parametrize("kind", ASKED)
def test_settings_are_refused_by_plan_as_the_table_says(
    sources: dict[str, Source], kind: str
) -> None:
    base, more = ASKED[kind]
    source = sources["function" if kind == "function" else "M"]
    wrong = {}
    for name, value in VALUES.items():
        if kind in TAKEN.get(name, ()) or name in base:
            continue
        found = places(source, {**base, name: value}, more)
        if (CELLS[name][kind] == YES) == bool(found):
            wrong[name] = CELLS[name][kind], found
        if CELLS[name][kind] == READ:
            assert places(sources["reading"], {name: value}, more) == []
    assert wrong == {}


@pytest.mark.parametrize("kind", ASKED)
def test_standard_hyperparameters_are_refused_by_plan_as_the_table_says(
    sources: dict[str, Source], kind: str
) -> None:
    base, more = ASKED[kind]
    source = sources["function" if kind == "function" else "M"]
    wrong = {}
    for name in standard_hyperparameters.STANDARD:
        value = str(value_of(name)).replace("True", "true")
        entry = f"{name.replace('*', 'head')}: {{value: {value}}}"
        found = places(source, dict(base), more, entry)
        expected = CELLS[name][kind]
        at_plan = expected == READ or (
            expected == REFUSED and name not in ONLY_A_MODEL_TELLS.get(kind, ())
        )
        if at_plan != bool(found):
            wrong[name] = expected, found
        if expected == READ:
            assert places(sources["reading"], {}, "", entry) == [], name
    assert wrong == {}
