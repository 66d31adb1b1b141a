"""What a GPU makes of the loop: ResNet-50 on images of CIFAR's shape, in at most ten minutes, as one table.

    python benchmarks/gpu.py            # on any machine with a GPU
    python benchmarks/gpu.py --cpu      # tiny shapes, to see that it runs

Images a second by precision, in this project's loop without and with XLA, and in `Model.fit` with XLA; seconds an
epoch of 50,000 images and hours for the grid of 27 trials by 50 epochs, one after the other; the gain of several GPUs,
and of several trials on one; how busy they were; what of an update runs on the host; and whether the losses are those
of the CPU. On GPUs each line is measured in a process of its own, since TensorFlow gives no memory back. The images are
noise: speed does not depend on them.

Never run on a GPU by its author.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLASSES, IMAGES, TRIALS, EPOCHS = 10, 50_000, 27, 50
TOGETHER_S, TOGETHER_TINY_S = 15.0, 3.0  # that trials on one GPU train at once
TOLERANCE = 2e-2  # of the first epoch's loss between a GPU and the CPU, in float32: other orders of sums, TF32


@dataclass(frozen=True)
class Shape:
    """The size of the training."""

    images: int
    batch: int
    epochs: int
    side: int
    depth: int


FULL = Shape(images=25_600, batch=512, epochs=4, side=32, depth=50)
TINY = Shape(images=32, batch=16, epochs=2, side=8, depth=2)


def main(arguments: list[str] | None = None) -> int:
    """Measure one line after the other, and print each as soon as it is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpu", action="store_true", help="tiny shapes on the CPU")
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="no further line is begun after these"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        sys.stdout.write(json.dumps(measured(**json.loads(given.one))) + "\n")
        return 0
    began, gpus = time.monotonic(), 0 if given.cpu else _gpus()
    if not given.cpu and not gpus:
        sys.stderr.write(
            "benchmarks/gpu.py: TensorFlow sees no GPU here, expected one; --cpu shows that it runs\n"
        )
        return 2
    _say(f"{'what':34}{'img/s':>10}{'s/epoch':>10}{'hours':>8}{'loss':>9}  rest")
    losses: dict[str, float] = {}
    for name, line in lines(gpus, tiny=given.cpu):
        if time.monotonic() - began > 60 * given.minutes:
            _say(f"{name:34} left out: {given.minutes:g} minutes are over")
            continue
        found = _packed(**line) if "at_once" in line else _apart(line) if gpus else measured(**line)
        losses[name] = found.get("loss", float("nan"))
        _say(_row(name, found))
    if gpus and {"loop float32, few images", "the same on the CPU"} <= losses.keys():
        apart = abs(losses["loop float32, few images"] - losses["the same on the CPU"])
        _say(
            f"equal to the CPU within {TOLERANCE:g}: {'yes' if apart <= TOLERANCE else 'NO'} ({apart:.2g})"
        )
    return 0


def lines(gpus: int, *, tiny: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the arguments of each line to measure, the most important first."""
    half = ("mixed_bfloat16",)
    for precision in ("float32", *half):
        for jit_compile in (False, True):
            name = f"loop {precision}{' + XLA' if jit_compile else ''}"
            yield (
                name,
                {
                    "gpus": min(gpus, 1),
                    "precision": precision,
                    "tiny": tiny,
                    "jit_compile": jit_compile,
                },
            )
    for precision in ("float32", *half):
        yield (
            f"fit, XLA, {precision}",
            {"gpus": min(gpus, 1), "precision": precision, "tiny": tiny, "fit": True},
        )
    for count in (1, 2, 4) if gpus else (2,):
        yield (
            f"{count} at a time on one GPU",
            {"at_once": count, "precision": half[0], "tiny": tiny, "on_gpu": gpus > 0},
        )
    if not gpus:
        return
    yield "loop float32, few images", {"gpus": min(gpus, 1), "precision": "float32", "tiny": True}
    yield "the same on the CPU", {"gpus": 0, "precision": "float32", "tiny": True}
    count = 2
    while count <= gpus:
        # as trials have it
        given = {
            "gpus": count,
            "precision": half[0],
            "tiny": tiny,
            "jit_compile": "auto",
        }
        yield f"loop mixed_bfloat16, {count} GPUs", given
        count *= 2
    yield (
        "loop bfloat16, deterministic",
        {"gpus": 1, "precision": half[0], "tiny": tiny, "deterministic": True},
    )


def measured(
    *,
    gpus: float,
    precision: str,
    tiny: bool,
    fit: bool = False,
    deterministic: bool = False,
    beside: str | None = None,
    at_once: int = 1,
    jit_compile: bool | str = False,
) -> dict[str, Any]:
    """Return the images per second and other figures of one line. On GPUs it runs in a process of its own."""
    shape = TINY if tiny else FULL
    if fit:
        return _fit(shape, int(gpus), precision)
    training = {"precision": precision, "deterministic": deterministic, "jit_compile": jit_compile}
    others = (
        Beside(Path(beside), at_once, TOGETHER_TINY_S if tiny else TOGETHER_S) if beside else None
    )
    return _loop(shape, gpus, training, others)


class Beside:
    """Keeps trials in several processes training until all of them have trained at the same time for a while."""

    def __init__(self, folder: Path, count: int, seconds: float) -> None:
        self._folder, self._count, self._seconds = folder, count, seconds
        self._since: float | None = None
        self._given_up = time.monotonic() + 300

    def goes_on(self) -> bool:
        """Return whether to train another epoch. It must be called after each epoch."""
        (self._folder / str(os.getpid())).touch()
        if self._since is None and sum(1 for _ in self._folder.iterdir()) >= self._count:
            self._since = time.monotonic()
        now = time.monotonic()
        return now < self._given_up and (
            self._since is None or now < self._since + 2 * self._seconds
        )


def _packed(*, at_once: int, precision: str, tiny: bool, on_gpu: bool) -> dict[str, Any]:
    """Train several trials on one GPU, each with its share, and return their common speed while all of them train."""
    from sweep.runner import gpu_sharing

    share = 1 / at_once
    with tempfile.TemporaryDirectory() as folder:
        line = {
            "gpus": share if on_gpu else 0,
            "precision": precision,
            "tiny": tiny,
            "beside": folder,
        }
        running = [_begun({**line, "at_once": at_once}) for _ in range(at_once)]
        found = [_ended(one) for one in running]
    if failed := next((one for one in found if "failed" in one), None):
        return failed
    epochs = [
        gpu_sharing.EpochsOnShare(trial, "", share, *epoch)
        for trial, one in enumerate(found)
        for epoch in one.pop("epochs")[1:]
    ]
    speed = gpu_sharing.measure_speeds(epochs, at_once, at_once).get("")
    if speed is None:
        return {"failed": "they never trained at the same time"}
    return {**found[0], "images_per_s": at_once * speed}


def _loop(
    shape: Shape, gpus: float, training: dict[str, Any], beside: Beside | None = None
) -> dict[str, Any]:
    from sweep.contract import Assignment, Devices, EpochReported
    from trainables.devices import kernels
    from trainables.keras_trainable import KerasTrainable, session_of

    class Net(KerasTrainable):
        def data(self, hp: Any) -> tuple[Any, Any]:
            return _images(shape), None

        def model(self, hp: Any) -> Any:
            return _model(shape)

    params = {"batch_size": shape.batch, "learning_rate": 0.05, "optimizer": "sgd", "momentum": 0.9}
    devices = Devices(cpus=2, gpus=gpus)
    net, epochs = Net(), list[EpochReported]()
    count = shape.epochs if beside is None else 10**6
    net.begin(
        Assignment(trial=0, params=params, seed=0, epochs=count, devices=devices, training=training)
    )

    def report(epoch: EpochReported) -> bool:
        epochs.append(epoch)
        return beside is None or beside.goes_on()

    net.train(report)
    graphs = [
        traced.graph
        for traced in session_of(net).trial.program.train_chunk._list_all_concrete_functions()
    ]
    best = max(epochs[1:], key=lambda epoch: epoch.examples_per_s or 0.0)
    gauges = (
        "gpu_utilization",
        "gpu_sm_activity",
        "gpu_power_w",
        "gpu_memory_peak_bytes",
        "energy_j",
    )
    return {
        "images_per_s": best.examples_per_s,
        "loss": epochs[0].metrics["loss"],
        "compile_s": epochs[0].measures["compile_s"],
        **{
            f"{name}_s": seconds
            for name, seconds in net.facts().overhead_s.items()
            if name == "xla"
        },
        "not_compiled": net.facts().numerics.get("xla_reason", ""),
        "data_wait_s": best.measures["data_wait_s"],
        "on_host": sorted(
            {line for graph in graphs for line in kernels.find_host_operations(graph)}
        ),
        **{name: best.measures[name] for name in gauges if name in best.measures},
        **(
            {"epochs": [(e.time - e.time_s, e.time, e.examples_per_s) for e in epochs]}
            if beside
            else {}
        ),
    }


def _fit(shape: Shape, gpus: int, precision: str) -> dict[str, Any]:
    import keras
    import tensorflow as tf

    if gpus:
        tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[:gpus], "GPU")
    keras.config.set_dtype_policy(precision)
    model = _model(shape)
    keras.config.set_dtype_policy("float32")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(
        keras.optimizers.SGD(0.05, momentum=0.9), loss, metrics=["accuracy"], jit_compile=True
    )
    x, y = _images(shape)
    data = tf.data.Dataset.from_tensor_slices((x, y)).cache().shuffle(len(x), seed=0)
    data = data.batch(shape.batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    times, losses = [], []
    for _ in range(shape.epochs):
        began = time.perf_counter()
        losses += model.fit(data, epochs=1, verbose=0, shuffle=False).history["loss"]
        times.append(time.perf_counter() - began)
    updates = len(x) // shape.batch
    return {
        "images_per_s": updates * shape.batch / min(times[1:]),
        "loss": losses[0],
        "compile_s": times[0],
    }


def _images(shape: Shape) -> tuple[Any, Any]:
    import numpy as np

    random = np.random.default_rng(0)
    x = random.integers(0, 256, (shape.images, shape.side, shape.side, 3), np.uint8)
    return x, random.integers(0, CLASSES, shape.images).astype(np.int32)


def _model(shape: Shape) -> Any:
    import keras

    from trainables.cifar_resnet import resnet50

    inputs = keras.Input((shape.side, shape.side, 3), dtype="uint8")
    x = keras.layers.Rescaling(1 / 128, -1.0)(keras.ops.cast(inputs, "float32"))
    x = resnet50(x) if shape.depth == 50 else keras.layers.Conv2D(4, 3, activation="relu")(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, keras.layers.Dense(CLASSES, dtype="float32")(x))


def _apart(line: dict[str, Any]) -> dict[str, Any]:
    return _ended(_begun(line))


def _begun(line: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__)), "--one", json.dumps(line)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _ended(running: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = running.communicate()
    if running.returncode:
        return {"failed": (err.strip().splitlines() or [f"exit code {running.returncode}"])[-1]}
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


_APART = ("images_per_s", "loss", "on_host", "not_compiled")


def _row(name: str, found: dict[str, Any]) -> str:
    if "failed" in found:
        return f"{name:34} failed: {found['failed']}"
    speed = found["images_per_s"]
    epoch_s = IMAGES / speed
    known = {key: value for key, value in found.items() if key not in _APART}
    rest = [f"{key} {value:.3g}" for key, value in known.items()]
    rest += [f"without XLA: {found['not_compiled']}"] if found.get("not_compiled") else []
    rest += [f"on the host: {'; '.join(found['on_host'])}"] if found.get("on_host") else []
    hours = TRIALS * EPOCHS * epoch_s / 3600
    return (
        f"{name:34}{speed:10,.0f}{epoch_s:10.1f}{hours:8.1f}{found['loss']:9.4f}  {', '.join(rest)}"
    )


def _gpus() -> int:
    code = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return int(ran.stdout.split()[-1]) if ran.stdout.split() else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
