"""Which metrics a trainable can report, and what a file asks for that it never reports."""

from __future__ import annotations

import ast
import inspect as python_inspect
from dataclasses import replace

import pytest

from sweep.errors import InputError
from sweep.inspection import Source, inspect
from sweep.inspection.reported_metrics import get_keras_name, list_possible_metrics_of_function
from sweep.runner import checking
from sweep.spec import parse_spec


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("report(loss=1, checkpoint=save)", ("loss",)),
        (
            "for e in range(3):\n        report({'val_loss': 1, 'size': 2}, more=3)",
            ("val_loss", "size", "more"),
        ),
        ("while report(a=1): report(b=2)", ("a", "b")),
        ("return {'score': 1}", ("score",)),
        ("def inner(x): return x\n    report(a=inner(1))", ("a",)),
        ("report(a=1)\n    return None", ("a",)),
        ("report(log)", None),
        ("report(**log)", None),
        ("report({key: 1})", None),
        ("fit(callbacks=[Callback(report)])\n    report(a=1)", None),
        ("tell = report\n    report(a=1)", None),
        ("report.__call__(b=1)\n    report(a=1)", None),
        ("return score", None),
        ("pass", None),
    ],
)
def test_metrics_of_a_function(body: str, names: tuple[str, ...] | None) -> None:
    function = ast.parse(f"def train(hp, report):\n    {body}\n").body[0]
    assert isinstance(function, ast.FunctionDef)
    possible = list_possible_metrics_of_function(function)
    assert (possible and possible.names) == names


MODULE = """
import keras
from trainables.keras_trainable import KerasTrainable
class Plain(KerasTrainable):
    def model(self, hp):
        model = keras.Sequential([keras.layers.Dense(1)])
        return model
class Listed(Plain):
    def metrics(self, hp, model): return ["acc", keras.metrics.AUC(), keras.metrics.Precision(name="p")]
class Found(Plain):
    def metrics(self, hp, model): return [keras.metrics.get("AUC")]
class Imported(Plain):
    def metrics(self, hp, model): return [own.metrics.Rate()]
class Compiled(KerasTrainable):
    def model(self, hp):
        model = keras.Model(1, 2)
        model.compile("adam", "mse", metrics=["mae", keras.metrics.TopKCategoricalAccuracy(3)])
        return model
class Computed(Plain):
    def metrics(self, hp, model): return [make(name) for name in hp.names]
class Adds(Plain):
    def on_epoch_end(self, epoch, logs, model, hp): logs["more"] = 1.0
class Steps(Plain):
    def train_step(self, model, batch, hp): return {"loss": 1, "other": 2}
class Net(keras.Model):
    def compute_metrics(self, x, y, y_pred, sample_weight=None): return {"own": 1}
class Own(KerasTrainable):
    def model(self, hp): return Net()
class Elsewhere(KerasTrainable):
    def model(self, hp): return make_model(hp)
class Wrapped(KerasTrainable):
    def model(self, hp):
        model = keras.Model(1, 2)
        model, extra = elsewhere.wrap(model)
        return model
class Layer(keras.layers.Layer):
    def call(self, x):
        self.add_metric(x, name="rate")
        return x
class Layered(KerasTrainable):
    def model(self, hp): return keras.Sequential([Layer()])
def train(hp, report): report(val_accuracy=hp.a, size=1.0)
def loop(hp, report):
    for log in run(hp): report(log)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """The source of a module with all these trainables, which is read once."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "m.py").write_text(MODULE)
    return inspect("m:Plain", [folder])


def find_refused(source: Source, name: str, metric: str) -> list[str]:
    text = f"trainable: m:{name}\nmethod: random\nrun_cap: 2\n{metric}\nparameters: {{a: {{min: 0.1, max: 0.5}}}}\n"
    spec = parse_spec(text, "s.yaml")
    try:
        checking.check_source(spec, "s.yaml", replace(source, trainable=f"m:{name}"), here=False)
    except InputError as error:
        return [str(problem) for problem in error.problems if "no metric" in str(problem)]
    return []


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("train", "val_accuracy"),
        ("loop", "val_acuracy"),
        ("Plain", "val_accuracy"),
        ("Plain", "loss"),
        ("Plain", "val_mae"),
        ("Plain", "val_digits_accuracy"),  # of the output `digits`
        ("Plain", "val_digits_loss"),
        ("Listed", "val_acc"),
        ("Listed", "val_auc"),
        ("Listed", "val_auc_1"),
        ("Listed", "p"),
        ("Compiled", "val_mae"),
        ("Compiled", "val_top_k_categorical_accuracy"),
        ("Found", "val_AUC"),
        ("Imported", "val_share"),
        ("Computed", "val_acuracy"),
        ("Adds", "more"),
        ("Steps", "other"),
        ("Own", "own"),
        ("Elsewhere", "val_acuracy"),
        ("Wrapped", "val_own"),
        ("Layered", "rate"),
    ],
)
def test_metrics_that_may_be_reported_are_accepted(source: Source, name: str, metric: str) -> None:
    assert find_refused(source, name, f"metric: {{name: {metric}}}") == []


@pytest.mark.parametrize(
    ("name", "metric", "hint"),
    [
        ("train", "val_acuracy", "did you mean 'val_accuracy'?"),
        ("Plain", "val_acuracy", "did you mean 'val_accuracy'?"),
        ("Listed", "val_precision", "known: acc, auc, loss, p, val_acc, val_auc, val_loss, val_p"),
        ("Compiled", "val_mea", "did you mean 'val_mae'?"),
    ],
)
def test_a_metric_that_is_never_reported_is_refused(
    source: Source, name: str, metric: str, hint: str
) -> None:
    told = f"s.yaml:4:16: metric.name: m:{name} reports no metric {metric!r}; {hint}"
    assert find_refused(source, name, f"metric: {{name: {metric}}}") == [told]


def test_each_objective_and_constraint_is_checked(source: Source) -> None:
    text = "metrics: [{name: val_acuracy}, {name: sise}]\nconstraints: ['sizes <= 3', 'a < 0.4']"
    assert find_refused(source, "train", text) == [
        "s.yaml:4:18: metrics[0].name: m:train reports no metric 'val_acuracy'; did you mean 'val_accuracy'?",
        "s.yaml:4:39: metrics[1].name: m:train reports no metric 'sise'; did you mean 'size'?",
        "s.yaml: constraints: m:train reports no metric 'sizes'; did you mean 'size'?",
    ]


@pytest.mark.keras
def test_names_are_those_of_keras() -> None:
    import keras

    wrong = {}
    for name, made in vars(keras.metrics).items():
        if not python_inspect.isclass(made):
            continue
        default = python_inspect.signature(made).parameters["name"].default
        if default is not None and get_keras_name(name) != default:
            wrong[name] = default
    assert wrong == {}
