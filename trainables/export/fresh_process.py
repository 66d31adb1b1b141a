"""A separate program that loads exported models like a user without this project, and predicts.

It is run by its path with a request in JSON, and must not import anything of this project. It cannot: both packages are
blocked, unless the author's own layers, whose modules the request names, are part of a model.
"""

import importlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BLOCKED = ("sweep", "trainables")


class _Blocked:
    """An import finder that raises ModuleNotFoundError for this project's packages."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        # None for all other modules: Python then asks the next finder.
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main(request_file: str) -> None:
    """Predict with each exported file, and write its outputs to ``<format>.npz``, or its error to ``<format>.txt``.

    ``request_file`` names the exported files, and the inputs for them are in ``inputs.npz`` beside it. Results are
    written beside it, too: the outputs as arrays that are named by their numbers, or the error's type and message. An
    error of one file does not keep the others from being tried. ``sys.path`` is replaced by the one in the request.
    """
    request = json.loads(Path(request_file).read_text())
    folder = Path(request_file).parent
    sys.path[:] = request["path"]
    for model_file in request["models"]:
        try:
            _write_predictions(model_file, request, folder)
        except Exception as error:  # a model may raise anything while it loads; all is reported
            lines = str(error).strip().splitlines() or [""]
            text = f"{type(error).__name__}: {lines[0]}\n" + "\n".join(lines[1:])
            (folder / f"{model_file['format']}.txt").write_text(text)


def _write_predictions(model_file: dict[str, Any], request: dict[str, Any], folder: Path) -> None:
    """Load one exported file, predict all inputs in batches, and write the outputs to ``<format>.npz``.

    Raises whatever the loading or the model raises.
    """
    import numpy as np  # not at the top: `main` has set `sys.path` meanwhile

    # one array for each input of the model, with all examples
    with np.load(folder / "inputs.npz", allow_pickle=False) as file:
        leaves = []
        for i in range(len(request["names"])):
            leaves.append(_read_leaf(file, f"{i:03d}"))
    loaders = {"keras": _load_keras, "saved_model": _load_saved_model, "onnx": _load_onnx}
    load = loaders[model_file["format"]]
    predict = load(model_file, request)  # maps the inputs of a batch to its outputs
    size = len(leaves[0])
    step = request["batch_size"]
    by_batch = []
    for start in range(0, size, step):
        by_batch.append(predict([leaf[start : start + step] for leaf in leaves]))
    outputs = []
    for batches_of_output in zip(*by_batch, strict=True):
        outputs.append(np.concatenate(batches_of_output))
    named: Any = {}
    for i, output in enumerate(outputs):
        named[f"{i:03d}"] = output
    np.savez(folder / f"{model_file['format']}.npz", **named)


def _read_leaf(file: Any, name: str) -> Any:
    """Return the array ``name`` of the inputs from their file; texts become `bytes` objects.

    Texts are stored as their lengths and one array of all bytes.
    """
    import numpy as np

    if f"{name}.texts" not in file:
        return file[name]
    lengths = file[name]
    joined = file[f"{name}.texts"].tobytes()
    start = 0
    leaf = np.empty(lengths.shape, object)
    for index, length in zip(np.ndindex(lengths.shape), lengths.ravel(), strict=True):
        leaf[index] = joined[start : start + length]
        start += length
    return leaf


def _import_tensorflow() -> Any:
    """Import TensorFlow, turn TensorFloat-32 off for exact products, and return it."""
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)
    return tf


def _load_keras(model_file: dict[str, Any], request: dict[str, Any]) -> Any:
    """Load a file in the keras format; return a function that predicts one batch, from and to a flat list of arrays."""
    tf = _import_tensorflow()
    import keras

    own = {}  # the author's classes, by the name under which they are registered
    for module, names in model_file["own"].items():
        imported = importlib.import_module(module)
        for registered, name in names.items():
            # not a class that is defined in a function; Keras then says that it is missing
            if hasattr(imported, name):
                own[registered] = getattr(imported, name)
    if model_file["code"]:  # the file has the Python code of Lambda layers
        options = {"safe_mode": False}
    else:
        options = {}
    model = keras.models.load_model(model_file["file"], custom_objects=own or None, **options)
    function = tf.function(
        lambda x: model(x, training=False), autograph=False, reduce_retracing=True
    )

    def run(leaves: list[Any]) -> list[Any]:
        tensors = [tf.constant(leaf) for leaf in leaves]
        outputs = function(_pack_leaves(request["structure"], tensors))
        return [output.numpy() for output in keras.tree.flatten(outputs)]

    return run


def _load_saved_model(model_file: dict[str, Any], request: dict[str, Any]) -> Any:
    """Load a SavedModel; return a function that predicts one batch, from and to a flat list of arrays."""
    tf = _import_tensorflow()
    loaded = tf.saved_model.load(model_file["file"])
    served = loaded.signatures["serving_default"]

    # The default value keeps `loaded` alive as long as the function: `served` alone would lose its variables.
    def run(leaves: list[Any], loaded: Any = loaded) -> list[Any]:
        given = zip(request["names"], leaves, request["dtypes"], strict=True)
        found = served(**{name: tf.cast(tf.constant(leaf), dtype) for name, leaf, dtype in given})
        return [found[name].numpy() for name in _order_outputs(found)]

    return run


def _load_onnx(model_file: dict[str, Any], request: dict[str, Any]) -> Any:
    """Load a file in the ONNX format; return a function that predicts one batch, from and to a list of arrays."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(model_file["file"], providers=["CPUExecutionProvider"])
    # ONNX omits inputs that the model does not use
    kept = [found.name for found in session.get_inputs()]

    def run(leaves: list[Any]) -> list[Any]:
        given = zip(request["names"], leaves, request["dtypes"], strict=True)
        found = session.run(
            None, {name: leaf.astype(dtype) for name, leaf, dtype in given if name in kept}
        )
        return list(found)

    return run


def _order_outputs(names: Iterable[str]) -> list[str]:
    """Return the names of a SavedModel's outputs in the order of `keras.tree.flatten`.

    Keras names the outputs of a list output_0, output_1, ..., which are returned in the order of their numbers. Those
    of a mapping have its keys, which are sorted.
    """
    by_key = sorted(names)
    by_number = [f"output_{i}" for i in range(len(by_key))]
    return by_number if sorted(by_number) == by_key else by_key


def _pack_leaves(structure: Any, leaves: list[Any]) -> Any:
    """Return the leaves in the nested structure with which a model is called.

    ``structure`` is an index into ``leaves``, or a dictionary with one key "dict", "tuple" or "list" and the structures
    of its parts. Raises ValueError for anything else.
    """
    match structure:
        case int(index):
            return leaves[index]
        case {"dict": content}:
            return {key: _pack_leaves(value, leaves) for key, value in content.items()}
        case {"tuple": content}:
            return tuple(_pack_leaves(value, leaves) for value in content)
        case {"list": content}:
            return [_pack_leaves(value, leaves) for value in content]
    raise ValueError(f"{structure!r} is no structure of inputs")


if __name__ == "__main__":
    if "--with-own" not in sys.argv:
        sys.meta_path.insert(0, _Blocked)  # an import calls only its find_spec
    main(sys.argv[1])
