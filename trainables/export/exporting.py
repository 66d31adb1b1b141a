"""Export of a trial's model: written in each format, loaded in a fresh process, and compared with the trial's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sweep.contract import Exported, NotExportable
from trainables.data.passes import VALIDATION_BATCH, Examples
from trainables.devices.replicas import get_replica_index
from trainables.export import fresh_process, model_files
from trainables.export.model_files import Signature, WrittenFile
from trainables.export.plain_model import Plain
from trainables.loop.trial import ReadyTrial
from trainables.numbers import seeds
from trainables.numbers.draws import EVALUATION
from trainables.recipe.refusals import list_overridden_methods
from trainables.replicas import slices
from trainables.state.program_variables import unwrap_variable


def check_exportable(trial: ReadyTrial, formats: Sequence[str]) -> None:
    """Raise NotExportable if a format is unknown or not available here, or the trial's model has no `call`.

    Nothing is built or written, so an export may still fail.
    """
    model_files.check_formats(formats)
    if not list_overridden_methods(trial.program.model, "call"):
        kind = type(trial.program.model).__name__
        raise NotExportable(
            f"{kind} defines no call(), so that there is nothing to predict with; give it one"
        )


def export(
    trial: ReadyTrial, plain: Plain, preprocessing: str, folder: Path, formats: Sequence[str]
) -> Exported:
    """Write ``plain``, the trial's model for inference, into ``folder`` in each format, and verify the files.

    Each file is loaded in a fresh process, where it must predict what the trial's model does. ``preprocessing`` becomes
    part of the result. Predictions of a model that draws random numbers cannot be verified; the result then has no
    differences, and a note says so. The validation data are evaluated once more for the result's metrics, which are
    empty if an evaluation changes variables or there is no validation data. After an error, written files stay.
    Raises: NotExportable: if a format cannot be written or loaded, a file predicts something else or too slowly, or the
    keras format would leave out variables of a model that draws random numbers, where no comparison would tell.
    """
    model = plain.model
    given = make_sample(trial, plain)
    if "keras" in formats and plain.unknown and not given.steady:
        raise NotExportable(
            f"model.keras would leave out {', '.join(plain.unknown[:3])}, which is no weight of its layer (use "
            "self.add_weight), and the model draws random numbers, so that nothing would tell; use --format saved_model"
        )
    metrics, drifting = evaluate_again(trial)
    signature = model_files.make_signature(model, plain.example)
    files = []
    for kind in formats:
        files.append(model_files.write_format(model, folder, kind, signature))
    found = compare_predictions(files, given, signature, on_gpu=trial.placement.on_gpu)
    return Exported(
        files={one.format: one.path.name for one in files},
        usage={one.format: one.usage for one in files},
        differences=found if given.steady else {},
        metrics={} if drifting else metrics,
        compared=given.name,
        data=_describe_model_and_data(trial, plain),
        preprocessing=preprocessing,
        needs=tuple(dict.fromkeys(module for one in files for module in one.own)),
        notes=tuple(_write_notes(trial, plain, files, given, drifting)),
    )


def _describe_model_and_data(trial: ReadyTrial, plain: Plain) -> Mapping[str, str]:
    """Return descriptions of the model and of its data, by "model", "training" and, if there is any, "validation"."""
    model, held_out = plain.model, trial.held_out
    parts = {
        "training": trial.walk.data,
        "validation": None if held_out is None else held_out.split,
    }
    descriptions = {}
    for name, split in parts.items():
        if split is not None:
            descriptions[name] = _describe_split(split, plain.example)
    return {
        "model": f"{model.name}, {model.count_params():,} parameters, {trial.dtype}",
        **descriptions,
    }


def _describe_split(split: Examples, inputs: Any) -> str:
    """Describe a data set in words: the number of its examples, and the type and shape of each array of an example.

    Its inputs are left out; those of the model, of which ``inputs`` is a batch, are described in their place. If the
    examples of a stream have not been counted, the text has no number.
    """
    example = inputs, *split.example()[1:]
    leaves = []
    for leaf in keras.tree.flatten(example):
        leaves.append(f"{leaf.dtype} {tuple(leaf.shape[1:])}")
    if split.counted:
        examples = f"{split.size:,} examples"
    else:  # `size` is only an upper bound
        examples = "a stream of examples"
    return f"{examples}: {', '.join(leaves)}"


def _write_notes(
    trial: ReadyTrial,
    plain: Plain,
    files: Sequence[WrittenFile],
    sample: Sample,
    drifting: Sequence[str],
) -> list[str]:
    """Return notes for the user on what an export differs in, or could not verify.

    ``drifting`` are the paths of variables that an evaluation changes.
    """
    notes = []
    if plain.raw_inputs is not None:
        notes.append(
            "the frozen model of features(), whose outputs were kept for training, stands in front"
        )
    if not plain.reads_data:
        notes.append(
            "the model does not read the data as they are: predictions were compared on inputs that are drawn"
        )
    if getattr(trial.program, "average", None) is not None:
        notes.append(
            "the weights are the averages over training with which the trial was validated"
        )
    if trial.dtype != "float32":
        notes.append(f"layers compute in {trial.dtype} as they were trained, outputs are float32")
    if any(one.holds_code for one in files):
        notes.append(
            "model.keras holds the Python code of Lambda layers, so that it loads with safe_mode=False alone"
        )
    if not sample.steady:
        notes.append(
            "the model draws random numbers when it predicts: predictions cannot be compared, and were not"
        )
    if drifting:
        notes.append(
            f"evaluating changes {', '.join(drifting[:3])}: the validation's metrics cannot be had once more and were "
            "not compared"
        )
    return notes


TOLERANCE = 1e-5
"""Tolerance of predictions, multiplied by the largest one if that is above 1; float32 has seven digits."""
MOST_EXAMPLES, MOST_BYTES = 10_000, 256 * 2**20  # limits of the examples that are compared
DRAWN = 64  # number of random inputs for a model that does not read the data
TIMEOUT_S = 1800  # of the fresh process


@dataclass(frozen=True)
class Sample:
    """Examples, with the predictions of the trial's model for them."""

    name: str  # such as "360 validation examples"
    inputs: Any
    outputs: list[Any]  # as a flat list
    batch_size: int
    steady: bool  # False if predicting again gives something else, because the model draws random numbers


def make_sample(trial: ReadyTrial, plain: Plain) -> Sample:
    """Predict the first validation examples with the trial's model, and return the inputs and outputs.

    At most 10,000 examples or about 256 MiB are taken, of the training data if there is no validation data. Predictions
    are made twice, to find out whether the model is random. If ``plain`` has raw inputs, the result has those of the
    same examples as its inputs, because exported files read them. A model that does not read the data, such as the
    generator of a GAN, is compared on random inputs.
    """
    held_out = trial.held_out
    if held_out is None:
        split = trial.walk.data
        batch_size = VALIDATION_BATCH
    else:
        split = held_out.split
        batch_size = held_out.part_size
    if plain.reads_data:
        inputs = plain.select_inputs(_take_first_examples(split))
    else:
        inputs = _draw_inputs(plain.example)
    size = len(keras.tree.flatten(inputs)[0])
    if not split.counted:  # `split.size` is only an upper bound
        number = f"the first {size:,}"
    elif size == split.size:
        number = f"{size:,}"
    else:
        number = f"the first {size:,} of {split.size:,}"
    if plain.reads_data:
        name = f"{number} {'training' if held_out is None else 'validation'} examples"
    else:
        name = f"{size} drawn inputs"
    with trial.swapping_average(), computing_exact_products():
        # A random model draws by the numbers of batches, so it gives something else with others.
        outputs = _predict(trial, inputs, batch_size, first_batch=0)
        outputs_again = _predict(trial, inputs, batch_size, first_batch=10**6)
    steady = _are_equal(outputs, outputs_again)
    if plain.raw_inputs is not None:
        inputs = tf.nest.map_structure(lambda leaf: leaf[:size], plain.raw_inputs)
    return Sample(name, inputs, outputs, batch_size, steady)


def evaluate_again(trial: ReadyTrial) -> tuple[dict[str, float], tuple[str, ...]]:
    """Evaluate the validation data again; return the metrics and the paths of variables that the evaluation changes.

    Metrics are named ``val_...``; their own variables do not count as changed. All variables are restored afterwards,
    also after an error. Both results are empty if there is no validation data.
    """
    if trial.held_out is None:
        return {}, ()
    state = trial.program.state
    before = state.copy_all()
    try:
        with trial.placement.replicas.scope():
            found = trial.program.evaluate(
                trial.held_out, seed=trial.assignment.seed, epoch=trial.epoch
            ).metrics
        after = state.copy_all()
    finally:
        state.assign(before)
    metric_variables = set()
    for variable in trial.program.model.metrics_variables:
        metric_variables.add(id(unwrap_variable(variable)))
    changed = []
    for path, values in after.items():  # the values of a variable on each replica
        if id(state[path].raw) not in metric_variables and not _are_equal(values, before[path]):
            changed.append(path)
    return {f"val_{name}": value for name, value in found.items()}, tuple(changed)


def _are_equal(arrays: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether each array equals the one of ``others`` at its position; NaN equals NaN.

    Raises ValueError if there are more of one than of the other.
    """
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(arrays, others, strict=True))


def compare_predictions(
    files: Sequence[WrittenFile], sample: Sample, signature: Signature, *, on_gpu: bool
) -> dict[str, float]:
    """Predict with all files in one fresh process; return by format the largest difference to the sample's outputs.

    The difference is divided by the largest absolute number of the sample's output if that is above 1. It is infinite
    if others than the sample's numbers are not finite. Without ``on_gpu``, the process sees no GPU.
    Raises: NotExportable: if a file does not load or brings down the process, gives outputs of other shapes or of
    narrower floats than float32, or, for a sample that is steady, predicts something else. Also if the process takes
    longer than 30 minutes.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _write_request(folder, files, sample, signature)
        own = any(written.own for written in files)
        last_line = _run_fresh_process(folder, with_own=own, on_gpu=on_gpu)
        differences = {}
        for written in files:
            differences[written.format] = _compare_file(folder, written, sample, last_line)
        return differences


@contextmanager
def computing_exact_products() -> Iterator[None]:
    """Turn off TensorFloat-32 in this process inside the block, so that results of different devices can be compared.

    TensorFloat-32 rounds the factors of a product to 10 bits. Its former setting is restored afterwards.
    """
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)


def _take_first_examples(split: Examples) -> Any:
    """Return the inputs of the first examples: at most `MOST_EXAMPLES`, of about `MOST_BYTES` bytes."""
    row_bytes = 0
    for leaf in keras.tree.flatten(split.example()[0]):
        row_bytes += int(np.prod(leaf.shape[1:], dtype=np.int64)) * 8  # at most 8 bytes a number
    fitting = max(MOST_BYTES // max(row_bytes, 1), 1)
    return split.examples(min(split.size, MOST_EXAMPLES, fitting))[0]


def _draw_inputs(example: Any) -> Any:
    """Return 64 inputs in the structure, shapes and types of ``example``, which is a batch of inputs.

    They are random normal numbers for floats, the same in each call, and zeros for other types, whose valid values are
    unknown.
    """
    draws = np.random.default_rng(0)

    def draw_leaf(leaf: Any) -> Any:
        shape = (DRAWN, *leaf.shape[1:])
        if leaf.dtype.kind == "f":
            return draws.normal(size=shape).astype(leaf.dtype)
        return np.zeros(shape, leaf.dtype)

    return keras.tree.map_structure(draw_leaf, example)


def _predict(trial: ReadyTrial, inputs: Any, batch_size: int, first_batch: int) -> list[Any]:
    """Return the outputs of the trial's model in inference mode, computed over all replicas, as a flat list of arrays.

    Floats of any type become float32. Inputs are predicted in batches of ``batch_size``, of which the first has the
    number ``first_batch``. Random draws depend on these numbers. The model's state is not changed by its generators.
    """
    model = trial.program.model
    replicas = trial.placement.replicas

    # Predict this replica's part of the batch `x`, which has the number `number`; return the outputs, and how many of
    # their rows count.
    def on_replica(x: Any, number: Any) -> tuple[Any, Any]:
        parts, replica = get_replica_index()
        part = slices.cut(tf.shape(tf.nest.flatten(x)[0])[0], replica, parts)
        part.draw(tf.constant(seeds.truncate_seed(trial.assignment.seed)), number, EVALUATION)
        part.seeds = "keyed"  # other draws for each batch, without advancing the model's generators
        rows = tf.nest.map_structure(lambda leaf: leaf[part.start : part.stop], x)
        with slices.entering(part):
            outputs = keras.tree.flatten(model(rows, training=False))
        return [_cast_floats(output) for output in outputs], part.count

    @tf.function(autograph=False, reduce_retracing=True)  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def predict(x: Any, number: Any) -> Any:
        return replicas.run(on_replica, x, number)

    by_batch: list[list[Any]] = []
    size = len(keras.tree.flatten(inputs)[0])
    with replicas.scope():
        for start in range(0, size, batch_size):
            rows = tf.nest.map_structure(
                lambda leaf, s=start: tf.constant(leaf[s : s + batch_size]), inputs
            )
            outputs, counts = predict(rows, tf.constant(first_batch + start // batch_size))
            # A replica without an example of its own has computed another one's, which counts 0.
            counts_by_replica = [int(count) for count in replicas.of_each(counts)]
            outputs_by_replica = [replicas.of_each(output) for output in outputs]
            by_batch.append([_join_rows(parts, counts_by_replica) for parts in outputs_by_replica])
    return [np.concatenate(batches) for batches in zip(*by_batch, strict=True)]


def _cast_floats(output: tf.Tensor) -> tf.Tensor:
    """Return a tensor of any floats as float32; other tensors unchanged."""
    if output.dtype.is_floating:
        return tf.cast(output, tf.float32)
    return output


def _join_rows(parts: Sequence[Any], counts: Sequence[int]) -> Any:
    """Return the first rows of each replica's part, as many as its count, as one array."""
    return np.concatenate([part.numpy()[:count] for part, count in zip(parts, counts, strict=True)])


def _write_request(
    folder: Path, files: Sequence[WrittenFile], sample: Sample, signature: Signature
) -> None:
    """Write what `fresh_process.main` reads: the inputs to ``inputs.npz``, and all else to ``request.json``."""
    leaves = keras.tree.flatten(sample.inputs)
    arrays = {}
    for i, leaf in enumerate(leaves):
        for ending, array in _encode_leaf(leaf).items():
            arrays[f"{i:03d}{ending}"] = array
    np.savez(folder / "inputs.npz", **arrays)
    models = []
    for written in files:
        models.append(
            {
                "format": written.format,
                "file": str(written.path.resolve()),
                "own": written.own,
                "code": written.holds_code,
            }
        )
    request = {
        "models": models,
        "batch_size": sample.batch_size,
        "names": signature.names,
        "dtypes": signature.dtypes,
        "structure": signature.structure,
        # the process has another working directory
        "path": [str(Path(entry).resolve()) for entry in sys.path],
    }
    (folder / "request.json").write_text(json.dumps(request))


def _encode_leaf(leaf: Any) -> dict[str, Any]:
    """Return an array of inputs as arrays for `fresh_process`, by the ending of their name in the file.

    Texts in an array of Python objects become their lengths (ending "") and the joined bytes (ending ".texts"), because
    NumPy would pickle them. Other arrays have the ending "".
    """
    array = np.asarray(leaf)
    if array.dtype.kind != "O":
        return {"": array}
    texts = [_encode_text(text) for text in array.ravel()]
    lengths = np.array([len(text) for text in texts], np.int64).reshape(array.shape)
    return {"": lengths, ".texts": np.frombuffer(b"".join(texts), np.uint8)}


def _encode_text(text: Any) -> bytes:
    """Return `bytes` as they are, and anything else as the UTF-8 bytes of its text."""
    if isinstance(text, bytes):
        return text
    return str(text).encode()


def _run_fresh_process(folder: Path, *, with_own: bool, on_gpu: bool) -> str:
    """Run `fresh_process`, which predicts with the exported files and writes its results into ``folder``.

    ``folder`` has the files of `_write_request`. With ``with_own``, the process may import the author's modules and
    sweep; without ``on_gpu``, it sees no GPU. Returns the last line that it wrote to standard error, or a text with its
    exit code if it wrote none. Waits for its end. Raises NotExportable after 30 minutes; a failure of the process
    raises nothing.
    """
    # Memory growth, because this process still holds a part of the GPU's memory.
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    if not on_gpu:  # compute where the trial did, on the CPU
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    command = [sys.executable, str(Path(fresh_process.__file__)), str(folder / "request.json")]
    command += ["--with-own"] if with_own else []
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise NotExportable(
            f"the exported models have not predicted within {TIMEOUT_S} s"
        ) from error
    lines = done.stderr.strip().splitlines()
    if lines:
        return lines[-1]
    return f"exit code {done.returncode}"


def _compare_file(folder: Path, written: WrittenFile, sample: Sample, last_line: str) -> float:
    """Return the largest difference between what a written file has predicted and the sample's outputs.

    The predictions are read from ``folder``, where the fresh process has left them. ``last_line`` is what it said last.
    Raises: NotExportable: as `compare_predictions`.
    """
    name = written.path.name
    failure = folder / f"{written.format}.txt"
    if failure.exists():
        raise NotExportable(
            f"{name} does not load in a fresh process: {failure.read_text().splitlines()[0]}{written.hint}"
        )
    answer = folder / f"{written.format}.npz"
    if not answer.exists():
        raise NotExportable(f"{name} has brought down the process that loaded it: {last_line}")
    with np.load(answer, allow_pickle=False) as file:
        found = [file[key] for key in sorted(file.files)]
    if [a.shape for a in found] != [b.shape for b in sample.outputs]:
        shapes = ", ".join(str(a.shape) for a in found)
        expected = ", ".join(str(a.shape) for a in sample.outputs)
        raise NotExportable(
            f"{name} gives outputs of shapes {shapes}, the trial's model {expected}"
        )
    # NumPy does not know bfloat16, which is of the kind V when it is read from a file.
    narrow = {str(a.dtype) for a in found if a.dtype.kind in "fV"} - {"float32", "float64"}
    if narrow:
        raise NotExportable(f"{name} gives {', '.join(sorted(narrow))}, expected float32")
    largest = max(
        (_distance(a, b) for a, b in zip(found, sample.outputs, strict=True)), default=0.0
    )
    if sample.steady and not largest <= TOLERANCE:  # also if it is NaN
        raise NotExportable(
            f"{name} predicts something else than the trial's model: they differ by {largest:.3g} on {sample.name}, "
            f"expected at most {TOLERANCE:g}{written.hint}"
        )
    return largest


def _distance(predicted: Any, expected: Any) -> float:
    """Return the largest difference of two arrays, divided by the largest absolute expected number if that is above 1.

    Returns infinity if one array is finite where the other is not. Positions where both are not finite are ignored; if
    there are no others, the result is 0. The arrays have the same shape.
    """
    predicted = predicted.astype(np.float64)
    expected = expected.astype(np.float64)
    finite = np.isfinite(expected)
    if not np.array_equal(np.isfinite(predicted), finite):
        return float("inf")
    if not finite.any():
        return 0.0
    difference = np.abs(predicted[finite] - expected[finite]).max()
    return float(difference / max(1.0, np.abs(expected[finite]).max()))
