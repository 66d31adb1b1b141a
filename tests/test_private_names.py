"""docs/private_names.md lists exactly the private names of other libraries that the code uses.

Those of Keras and TensorFlow stand in two modules of `trainables` and nowhere else.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from private_uses import uses

from sweep.backends.ray_tune import ray_private_api

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "private_names.md").read_text()
PRIVATE = ("keras.src", "tensorflow.python", "tensorflow.compiler", "ray.air", "ray.tune.execution")


class Row(NamedTuple):
    section: str
    names: tuple[str, ...]
    files: tuple[str, ...]
    purpose: str
    loss: str
    test: str


def _rows() -> list[Row]:
    rows = []
    for section in PAGE.split("\n## ")[1:]:
        for line in re.findall(r"^\| `.*\|$", section, re.MULTILINE):
            names, files, purpose, loss, test = (
                cell.strip() for cell in line.strip("|").split("|")
            )
            quoted = (tuple(re.findall(r"`([^`]+)`", cell)) for cell in (names, files))
            rows.append(Row(section.splitlines()[0], *quoted, purpose, loss, test.strip("`")))
    return rows


ROWS = _rows()
OF_STATE = {
    f"sweep/{file}": names for file, names in uses(ROOT / "sweep" / "state", PRIVATE).items()
}
FOUND = uses(ROOT / "trainables", PRIVATE) | OF_STATE
SECTIONS = (
    "Keras",
    "TensorFlow",
    "Python and NumPy, and what is asked where TensorFlow was imported",
)
TESTS = Counter(
    node.name
    for path in (ROOT / "tests").rglob("test_*.py")
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.FunctionDef)
)


KERAS, TENSORFLOW = "trainables/keras_private.py", "trainables/tensorflow_private.py"
SHIMS = (KERAS, TENSORFLOW)
MODULES = {  # private modules whose functions are replaced from outside, by names
    *(
        f"trainables.keras_private.{name}"
        for name in ("loss_module", "numpy_module", "random_module")
    ),
    *(
        f"trainables.tensorflow_private.gen_{name}"
        for name in ("random_ops", "stateless_random_ops")
    ),
    *(
        f"trainables.tensorflow_private.{name}"
        for name in ("gen_stateless_random_ops_v2", "random_ops_util")
    ),
}


def _outside_of_shims(found: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the private names of each file besides the shims; all files may set public attributes."""
    hidden = {
        file: {name for name in names if not name.endswith(" =")} for file, names in found.items()
    }
    return {file: names for file, names in hidden.items() if names and file not in SHIMS}


def test_only_the_shims_use_private_names_of_keras_and_tensorflow() -> None:
    assert (
        _outside_of_shims({file: FOUND[file] for file in FOUND if file.startswith("trainables/")})
        == {}
    )


def test_a_private_name_outside_of_the_shims_is_seen(tmp_path: Path) -> None:
    package = tmp_path / "trainables"
    package.mkdir()
    for name in ("keras_private.py", "loop.py"):
        (package / name).write_text("def flat(model): return model._flatten_layers()\n")
    (package / "public.py").write_text("def freeze(layer): layer.trainable = False\n")
    assert _outside_of_shims(uses(package, PRIVATE)) == {"trainables/loop.py": {"_flatten_layers"}}


def test_no_attribute_of_a_module_of_the_shims_is_used_but_by_name() -> None:
    for path in (ROOT / "trainables").rglob("*.py"):
        if path.relative_to(ROOT).as_posix() in SHIMS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(
                    value=ast.Attribute(value=ast.Name(id=shim), attr=module), attr=name
                ):
                    assert f"trainables.{shim}.{module}" not in MODULES, f"{path}: {module}.{name}"
                case ast.ImportFrom(
                    module="trainables.keras_private" | "trainables.tensorflow_private", names=names
                ):
                    assert not MODULES & {f"{node.module}.{alias.name}" for alias in names}, path


@pytest.mark.parametrize("shim", SHIMS)
def test_everything_in_a_shim_is_used(shim: str) -> None:
    public = _public_names(ast.parse((ROOT / shim).read_text()))
    name = Path(shim).stem
    texts = [
        path.read_text() for path in (ROOT / "trainables").rglob("*.py") if path != ROOT / shim
    ]
    others = "\n".join(text for text in texts if name in text)
    unused = {one for one in public if not re.search(rf"\b{one}\b", others)}
    assert not unused


def _public_names(tree: ast.Module) -> set[str]:
    """Return the names that a module defines for others: those in `__all__`, its functions, classes and constants."""
    found = set()
    for node in tree.body:
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.AnnAssign(target=ast.Name(id=name))
            ):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names)):
                found |= {ast.literal_eval(name) for name in names}
            case ast.Assign(targets=[ast.Name(id=name)]):
                found.add(name)
    return {name for name in found if not name.startswith("_")}


@pytest.mark.keras
def test_the_installed_keras_and_tensorflow_have_each_name() -> None:
    from trainables import keras_private

    objects = _objects_with_private_names()
    assert {shim: _missing(FOUND[shim], objects) for shim in SHIMS} == {
        shim: set() for shim in SHIMS
    }
    named_by_text = (
        (keras_private.numpy_module, (*keras_private.NUMPY_OF_HOST, keras_private.SIGNBIT)),
        (keras_private.loss_module, keras_private.LOSS_SCALING),
        (keras_private.random_module, (keras_private.DRAW_SEED,)),
        (keras_private.TFOptimizer, keras_private.DISTRIBUTED_METHODS),
        (keras_private.BaseOptimizer, keras_private.DISTRIBUTED_METHODS),
    )
    for owner, names in named_by_text:
        assert [name for name in names if not hasattr(owner, name)] == [], owner
    assert _missing({"keras.src.losses.loss:gone", "_gone"}, objects) == {
        "keras.src.losses.loss:gone",
        "_gone",
    }


def _missing(names: set[str], objects: list[Any]) -> set[str]:
    """Return which names no module, and none of these objects, has."""
    missing = set()
    for name in names:
        module, _, attribute = name.removesuffix(" =").rpartition(":")
        if not any(
            hasattr(owner, attribute) for owner in ([_import(module)] if module else objects)
        ):
            missing.add(name)
    return missing


def _import(name: str) -> Any:
    """Return a module, or a class in it."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(import_module(module), attribute)


def _objects_with_private_names() -> list[Any]:
    """Return a compiled model, its parts, a dataset, a graph and a context, which have the attributes that are used."""
    import keras
    import tensorflow as tf
    from tensorflow.python.eager import context
    from tensorflow.python.ops.parallel_for import pfor

    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.BatchNormalization()(inputs))
    model.compile("adam", "mse")
    optimizer = model.optimizer
    optimizer.build(model.trainable_variables)
    several = keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap(optimizer))
    masked = keras.layers.Embedding(3, 2, mask_zero=True)(tf.constant([[1, 0]]))
    dataset = tf.data.Dataset.range(3).map(lambda x: x, num_parallel_calls=2)
    context.context()._rng = getattr(context.context(), "_rng", None)  # made when a seed is set
    graph = tf.function(lambda: 1).get_concrete_function().graph
    loop = dict.fromkeys(re.findall(r"self\.(\w+) =", inspect.getsource(pfor.WhileV2.__init__)))
    return [
        *(
            model,
            model.layers[1],
            optimizer,
            several,
            inputs,
            masked,
            dataset,
            graph,
            SimpleNamespace(**loop),
        ),
        *(
            model._compile_loss,
            optimizer.variables[0],
            context.context(),
            tf.compat.v1,
            pfor.WhileV2,
            tf.RaggedTensor,
        ),
    ]


@pytest.mark.parametrize("file", FOUND)
def test_every_private_name_is_on_the_page(file: str) -> None:
    named = {
        name for row in ROWS if row.section in SECTIONS and file in row.files for name in row.names
    }
    assert FOUND[file] <= named, (
        "name them in docs/private_names.md, each with the test that notices its change"
    )


@pytest.mark.parametrize("row", [row for row in ROWS if row.section in SECTIONS], ids=str)
def test_what_the_page_names_is_used_where_it_says(row: Row) -> None:
    assert all(FOUND.get(file, set()) & set(row.names) for file in row.files)
    assert set(row.names) <= set().union(*(FOUND[file] for file in row.files))


@pytest.mark.parametrize("row", [row for row in ROWS if row.section.startswith("What no")], ids=str)
def test_other_names_are_in_the_text(row: Row) -> None:
    for name in row.names:
        assert all(re.search(rf"\b{name}\b", (ROOT / file).read_text()) for file in row.files), name


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_each_row_has_a_test_and_a_reason(row: Row) -> None:
    assert TESTS[row.test] == 1, f"{TESTS[row.test]} tests are called {row.test}"
    assert row.purpose
    assert row.loss


def test_ray_s_names_are_those_of_its_list() -> None:
    listed = {use for use in vars(ray_private_api).values() if isinstance(use, ray_private_api.Use)}
    rows = [row for row in ROWS if row.section == "Ray"]
    assert {(row.names, row.loss) for row in rows} == {(use.names, use.loss) for use in listed}
    for row in rows:
        uses_of_row = {
            name
            for name, use in vars(ray_private_api).items()
            if use == ray_private_api.Use(row.names, row.loss)
        }
        for file in row.files:
            assert any(
                f"ray_private_api.{name}" in (ROOT / file).read_text() for name in uses_of_row
            ), row


def test_the_service_has_no_private_names_but_ray_s_and_optuna_s() -> None:
    parts = {
        part
        for row in ROWS
        if row.section == "Ray"
        for name in row.names
        for part in re.split(r"[:.]", name)
    }
    optunas = {name for row in ROWS if row.section == "Optuna" for name in row.names}
    for file, names in uses(ROOT / "sweep", PRIVATE).items():
        if file in OF_STATE:
            continue  # which is on the page by file
        hidden = {name for name in names if not name.endswith(" =")}
        assert hidden <= (parts if "/ray_tune/" in file else optunas), file


def test_the_finder_sees_each_way_to_use_a_private_name(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "code.py").write_text(
        "from keras.src import backend\n"
        "from keras.src.utils.naming import reset_uids as anew\n"
        "import tensorflow.python.ops as ops\n"
        "from ray import _private\n"
        "class Own:\n"
        "    _field: int = 0\n"
        "    def _method(self): self.shape = self._field\n"
        "def use(layer, own):\n"
        "    backend.standardize(1), ops.add(1), _private.node\n"
        "    layer._losses, own._field, own._method(), getattr(layer, '_mask', None), row._replace(a=1)\n"
        "    layer.call, own.shape = 1, 2\n"
        "    del layer._hidden\n"
    )
    assert uses(tmp_path / "own", ("keras.src", "tensorflow.python")) == {
        "own/code.py": {
            "keras.src.backend:standardize", "keras.src.utils.naming:reset_uids", "tensorflow.python.ops:add",
            "ray._private:node", "_losses", "_mask", "call =", "_hidden",
        }
    }  # fmt: skip
