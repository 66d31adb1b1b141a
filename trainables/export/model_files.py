"""Writing of a plain Keras model in several formats, with the code that loads each."""

from __future__ import annotations

import importlib.util
import json
import keyword
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from sweep.contract import NotExportable
from sweep.errors import in_short
from trainables import keras_private
from trainables.devices.precision import HALF
from trainables.export import onnx_file

FILES = {"keras": "model.keras", "saved_model": "saved_model", "onnx": "model.onnx"}
_KERAS = ("keras", "builtins")  # packages whose classes are not the author's


@dataclass(frozen=True)
class WrittenFile:
    """A written model file or folder, with Python code (``usage``) that loads it and predicts."""

    format: str
    path: Path
    usage: str
    # the author's classes by module: registered name to name
    own: dict[str, dict[str, str]] = field(default_factory=dict)
    holds_code: bool = False  # True with Lambda layers, whose Python code is in the file
    hint: str = ""  # what to do if it does not load, or predicts something else


@dataclass(frozen=True)
class Signature:
    """The inputs of a model: flat names and types, and their structure."""

    names: list[str]
    dtypes: list[str]
    structure: Any  # as `fresh_process` packs it
    specs: list[Any]


def make_signature(model: keras.Model, example: Any) -> Signature:
    """Return the signature of a model's inputs; ``example`` is a batch of one that the model accepts.

    A functional model's own inputs count, otherwise those of ``example``. A single input is named "inputs". Others have
    names that are valid for arguments, from their keys and positions, such as "user_input_0". In the specs, the number
    of examples is unknown.
    """
    if isinstance(model, keras_private.Functional):
        inputs = model.input
    else:
        inputs = example
    leaves = keras.tree.flatten(inputs)
    if len(leaves) > 1:
        names = _make_unique(_name_leaves(inputs, ""))
    else:
        names = ["inputs"]
    dtypes = [keras.backend.standardize_dtype(leaf.dtype) for leaf in leaves]
    flat_specs = []
    for leaf, dtype, name in zip(leaves, dtypes, names, strict=True):
        flat_specs.append(tf.TensorSpec([None, *leaf.shape[1:]], dtype, name))
    # the specs in the structure of the inputs
    remaining = iter(flat_specs)
    specs = keras.tree.map_structure(lambda _: next(remaining), inputs)
    structure = _encode_inputs(inputs, iter(range(len(leaves))))
    # A list of one entry, because Keras and the converter expect an entry for each argument of the model.
    return Signature(names, dtypes, structure, [specs])


def make_inference_model(model: keras.Model, given: Signature) -> keras.Model:
    """Return a functional model with the inputs ``given`` that calls ``model`` with ``training=False``.

    It shares the layers and weights of ``model``. `export` of Keras 3.15 would keep RandomFlip and the like active.
    """
    names = iter(given.names)
    (specs,) = given.specs  # those of the only argument, in the inputs' structure
    inputs = keras.tree.map_structure(
        lambda spec: keras.Input(spec.shape[1:], dtype=spec.dtype.name, name=next(names)), specs
    )
    return keras.Model(inputs, model(inputs, training=False), name=f"{model.name}_served")


def write_format(model: keras.Model, folder: Path, kind: str, inputs: Signature) -> WrittenFile:
    """Write a model in the format ``kind``, a key of `FILES`, into a folder; return the file with code that loads it.

    The file has the name that `FILES` gives, and replaces one of that name. The keras format makes the model count as
    never compiled. ``inputs`` are those of the model.
    Raises: NotExportable: if Keras or a converter fails, or the format cannot hold the model: ONNX no float16, bfloat16
    or texts, and keras no classes of a script or notebook. A part of the file may have been written then.
    """
    path = folder / FILES[kind]
    try:
        with warnings.catch_warnings(action="ignore"):  # warnings about NumPy are not for users
            match kind:
                case "keras":
                    return _write_keras(model, path, inputs)
                case "saved_model":
                    make_inference_model(model, inputs).export(
                        str(path), verbose=False, input_signature=inputs.specs
                    )
                    return WrittenFile(kind, path, _format_saved_model_loading(inputs))
                case _:
                    return _write_onnx(model, path, inputs)
    except NotExportable:
        raise
    except Exception as error:  # from Keras, the author's get_config or a converter
        raise NotExportable(
            f"{path.name} cannot be written: {in_short(error)}{_describe_missing_packages(kind)}"
        ) from error


def check_formats(formats: Any) -> None:
    """Raise NotExportable if a format is unknown, or needs packages that are not installed."""
    for kind in formats:
        if kind not in FILES:
            raise NotExportable(f"the format {kind!r} is unknown, expected {', '.join(FILES)}")
    if "onnx" in formats:
        missing = []
        for name in ("tf2onnx", "onnx", "onnxruntime"):
            if importlib.util.find_spec(name) is None:
                missing.append(name)
        if missing:
            raise NotExportable(
                f'model.onnx needs {", ".join(missing)}, which is not installed: pip install "sweep-keras[onnx]"'
            )


def _write_keras(model: keras.Model, path: Path, inputs: Signature) -> WrittenFile:
    """Write a model in the keras format, and return it with the author's classes that loading it needs.

    Raises NotExportable if one of them is defined in a script or notebook.
    """
    keras_private.mark_uncompiled(model)  # otherwise Keras writes an optimizer without any training
    model.save(path)
    # The file itself tells which of the author's classes it needs.
    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read("config.json"))
    own: dict[
        str, dict[str, str]
    ] = {}  # by module: registered name to name, of the author's classes
    has_lambda = False
    for module, name, registered in _list_config_classes(config):
        if name == "__lambda__":
            has_lambda = True
        elif module and module.partition(".")[0] not in _KERAS:
            own.setdefault(module, {})[registered or name] = name
    for module, names in own.items():
        if module == "__main__":
            raise NotExportable(
                f"model.keras cannot be loaded elsewhere: {', '.join(names.values())} is defined in a script or "
                "notebook; put it into a module of its own, or leave out the format: --format saved_model"
            )
    # Python code that loads the file and predicts
    arguments = ['"model.keras"']
    if own:
        pairs = ", ".join(
            f'"{registered}": {name}'
            for names in own.values()
            for registered, name in names.items()
        )
        arguments.append(f"custom_objects={{{pairs}}}")
    if has_lambda:
        arguments.append("safe_mode=False")
    imports = []
    for module, names in own.items():
        imports.append(f"from {module} import {', '.join(sorted(set(names.values())))}")
    load = f"model = keras.models.load_model({', '.join(arguments)})"
    usage = "\n".join(["import keras", *imports, load, format_predict_call(inputs)])
    hint = _LAMBDAS if has_lambda else _describe_missing_methods(own)
    return WrittenFile("keras", path, usage, own, has_lambda, hint)


def _write_onnx(model: keras.Model, path: Path, inputs: Signature) -> WrittenFile:
    """Write a model in the ONNX format.

    Raises NotExportable if layers compute in float16 or bfloat16, or an input is texts.
    """
    computed = set()  # types in which layers compute
    for layer in keras_private.flatten_layers(model):
        if hasattr(layer, "compute_dtype"):
            computed.add(layer.compute_dtype)
    narrow = [dtype for dtype in sorted(computed) if dtype in HALF]
    if narrow:
        raise NotExportable(
            f"model.onnx cannot hold a model that computes in {', '.join(narrow)}: the converter knows float32 alone; "
            "use saved_model, or train with training.precision float32"
        )
    if "string" in inputs.dtypes:
        raise NotExportable(
            "model.onnx cannot hold a model that reads texts: ONNX knows no TextVectorization or StringLookup; use "
            "saved_model or keras, or look up the texts in data()"
        )
    onnx_file.write(make_inference_model(model, inputs), path, inputs.specs)
    return WrittenFile(
        "onnx", path, _format_onnx_loading(inputs), hint=_describe_missing_packages("onnx")
    )


def _list_config_classes(config: Any) -> Iterator[tuple[str | None, str, str | None]]:
    """Yield (module, name, registered name) of all objects and functions in a saved model's configuration.

    Module and registered name are None if they are not given. ``config`` is JSON of any nesting, and repeats are
    yielded again.
    """
    if isinstance(config, dict):
        name = config.get("class_name")
        registered = config.get("registered_name")
        if isinstance(name, str):
            # Of a function, Keras writes this as the name of the class, and the function's own name as "config".
            if name == "function":
                if registered == "function":
                    registered = None
                own_name = config.get("config")
                if isinstance(own_name, str):
                    name = own_name
            yield config.get("module"), name, registered
        for value in config.values():
            yield from _list_config_classes(value)
    elif isinstance(config, list):
        for value in config:
            yield from _list_config_classes(value)


def _name_leaves(inputs: Any, path: str) -> list[str]:
    """Return a name for each leaf, such as "user_input_0", in the order of `keras.tree.flatten`.

    A name is made of the keys and positions on the way to the leaf, after ``path``, which is "" at the top. It is valid
    for an argument, but may repeat an earlier one.
    """
    if isinstance(inputs, dict):
        pairs = [(str(key), inputs[key]) for key in sorted(inputs)]
    elif isinstance(inputs, list | tuple):
        pairs = []
        for i, value in enumerate(inputs):
            pairs.append((f"input_{i}", value))
    else:
        return [_make_argument_name(path)]
    names = []
    for key, value in pairs:
        names += _name_leaves(value, f"{path}_{key}" if path else key)
    return names


def _make_argument_name(name: str) -> str:
    """Convert a name to one that is valid for an argument of a SavedModel's function: "1st" becomes "input_1st".

    Other characters than ASCII letters, digits and underscores become underscores. Names that then do not begin with a
    letter get "input_" in front, and Python's keywords and "self" an underscore at the end.
    """
    safe = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not re.match("[a-zA-Z]", safe):
        safe = f"input_{safe}"
    if keyword.iskeyword(safe) or safe == "self":
        safe += "_"
    return safe


def _make_unique(names: Sequence[str]) -> list[str]:
    """Return the names in their order, with a number appended to each that would repeat an earlier one.

    Numbers begin with "_2", and are the first that gives a new name.
    """
    unique: list[str] = []
    for name in names:
        new = name
        number = 1
        while new in unique:
            number += 1
            new = f"{name}_{number}"
        unique.append(new)
    return unique


def _encode_inputs(inputs: Any, numbers: Iterator[int]) -> Any:
    """Return the structure of a model's inputs as JSON, in which each leaf is the next of ``numbers``.

    A dict, list or tuple becomes a dict with that name as its one key. Keys of dicts are sorted.
    """
    if isinstance(inputs, dict):
        return {"dict": {key: _encode_inputs(inputs[key], numbers) for key in sorted(inputs)}}
    if isinstance(inputs, list | tuple):
        if isinstance(inputs, list):
            kind = "list"
        else:
            kind = "tuple"
        return {kind: [_encode_inputs(value, numbers) for value in inputs]}
    return next(numbers)


def format_predict_call(inputs: Signature) -> str:
    """Return the line of Python code that calls ``model.predict`` with the inputs.

    If there are texts among them, it converts these to tensors, because Keras accepts no lists or arrays of texts.
    """
    if "string" in inputs.dtypes:
        x = _format_inputs(inputs.structure, inputs)
    else:
        x = "x"
    return f"predictions = model.predict({x})"


def _format_inputs(structure: Any, inputs: Signature) -> str:
    """Return Python code that builds a model's inputs from variables with their names, "x" for a single input.

    ``structure`` is as in `Signature`. Texts are converted to tensors, and tuples are written as lists.
    """
    if isinstance(structure, int):
        name = _name_variable(inputs.names[structure])
        if inputs.dtypes[structure] == "string":
            return f"keras.ops.convert_to_tensor({name})"
        return name
    ((kind, parts),) = structure.items()  # one key: "dict", "list" or "tuple"
    if kind == "dict":
        entries = []
        for key, part in parts.items():
            entries.append(f"{key!r}: {_format_inputs(part, inputs)}")
        return "{" + ", ".join(entries) + "}"
    return "[" + ", ".join(_format_inputs(part, inputs) for part in parts) + "]"


_LAMBDAS = (
    "; the code of a Lambda layer finds nothing of the module that it was written in; make it a layer class with "
    "@keras.saving.register_keras_serializable(), or use --format saved_model"
)


def _describe_missing_methods(own: Mapping[str, Mapping[str, str]]) -> str:
    """Return a hint about methods that the author's classes need so that Keras can load them, as the end of a message.

    ``own`` has for each module the names of its classes by registered name. At most three are named.
    """
    names = [f"{module}.{name}" for module, found in own.items() for name in found.values()]
    if names:
        which = f"{', '.join(names[:3])}: each"
    else:
        which = "a layer"
    return (
        f"; {which} needs a get_config() that its __init__ takes, and the numbers that it keeps must be weights of it; "
        "or use --format saved_model"
    )


def _describe_missing_packages(kind: str) -> str:
    """Return a hint, as the end of a message, about what the format ``kind`` asks of a model; "" for a SavedModel."""
    if kind == "keras":
        return _describe_missing_methods({})
    if kind == "onnx":
        return "; not all that TensorFlow computes has a counterpart there; use saved_model"
    return ""


def _format_saved_model_loading(inputs: Signature) -> str:
    """Return Python code that loads a SavedModel and predicts."""
    arguments = ", ".join(f"{name}=tf.constant({_name_variable(name)})" for name in inputs.names)
    return "\n".join(
        [
            "import tensorflow as tf",
            'served = tf.saved_model.load("saved_model").signatures["serving_default"]',
            f"predictions = served({arguments})",
        ]
    )


def _format_onnx_loading(inputs: Signature) -> str:
    """Return Python code that loads a file in the ONNX format and predicts."""
    arguments = ", ".join(f'"{name}": {_name_variable(name)}' for name in inputs.names)
    return "\n".join(
        [
            "import onnxruntime",
            'session = onnxruntime.InferenceSession("model.onnx")',
            f"predictions = session.run(None, {{{arguments}}})",
        ]
    )


def _name_variable(name: str) -> str:
    """Return the name of the variable that stands for the input ``name`` of a model in shown code.

    It is "x" for "inputs", the name that `make_signature` gives to a single input; any other name is returned as it is.
    """
    return "x" if name == "inputs" else name
