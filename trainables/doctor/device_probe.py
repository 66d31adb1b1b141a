"""Tests of TensorFlow on this machine, with the result as one JSON object on the last line of standard output.

`sweep doctor` runs this module in separate processes, because a faulty device may abort its process or make it hang. On
standard error, lines that begin with ``probe:`` name the step that was started last.

    python -m trainables.doctor.device_probe describe
    python -m trainables.doctor.device_probe device gpu:0
    python -m trainables.doctor.device_probe train 2 [--simulated]
    python -m trainables.doctor.device_probe meet HOST:PORT,HOST:PORT RANK [--gpu]
    python -m trainables.doctor.device_probe share
    python -m trainables.doctor.device_probe tpu
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from sweep.contract import Assignment, Devices, EpochReported, Ranks, cpus
from trainables.data.residence import Packed, pack
from trainables.devices import nvml
from trainables.devices.placement import list_tpu_problems
from trainables.devices.replicas import Replicas, get_replica_index, sum_over_replicas

STEPS, EPOCHS = 8, 4  # batches of an epoch, and epochs, that `train` trains
# `meet`: seconds within which all ranks must join, how often each sum is timed, and numbers of the large sum
MEETING_S, TIMES, LARGE = 60.0, 12, 2**22


def describe() -> dict[str, Any]:
    """Return the versions of libraries, the GPU architectures of the build, and the GPUs that TensorFlow can use.

    The keys are ``tensorflow``, ``cuda`` and ``cudnn`` (both None without CUDA), ``architectures``, ``gpus`` (``name``
    and ``capability`` of each, [major, minor] or None if unknown), ``gauges`` (see `nvml.list_supported_gauges`; {}
    without GPUs), ``keras`` and ``backend``. If Keras cannot be imported, the last two are None, and ``keras_error``
    says why.
    """
    build = tf.sysconfig.get_build_info()
    gpus = []
    for gpu in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        capability = details.get("compute_capability")
        gpus.append(
            {
                "name": details.get("device_name", "GPU"),
                "capability": capability and list(capability),
            }
        )
    return {
        "tensorflow": tf.__version__,
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
        "architectures": list(build.get("cuda_compute_capabilities", [])),
        "gpus": gpus,
        "gauges": nvml.list_supported_gauges() if gpus else {},
        **_describe_keras(),
    }


def try_device(name: str) -> dict[str, Any]:
    """Test ``cpu:0`` or ``gpu:I`` alone: matrix product, convolution, gathering of rows, and XLA.

    The steps are named matmul, convolution, gather and xla. Return ``seconds`` of each step by name, ``wrong``, the
    names of steps with wrong results, and ``tflops``, the speed of the matrix product in 10**12 operations per second.
    Other GPUs are hidden from this process. Raises IndexError if TensorFlow has no such GPU, and what TensorFlow raises
    if a step fails.
    """
    kind, _, index = name.partition(":")
    if kind == "gpu":
        gpu = tf.config.list_physical_devices("GPU")[int(index)]
        tf.config.set_visible_devices([gpu], "GPU")
        tf.config.experimental.set_memory_growth(gpu, True)
    if kind == "gpu":
        size, side = 4096, 128
    else:
        size, side = 512, 32
    with tf.device(f"/{kind}:0"):
        square, images = tf.ones((size, size)), tf.ones((16, side, side, 32))
        # Packed, as data is on GPUs. The last number of the last row is 255, because 8 * size is a multiple of 256.
        rows = Packed(
            *map(tf.constant, pack((np.arange(8 * size) % 256).astype(np.uint8).reshape(size, 8)))
        )
        last = tf.constant([size - 1, 0], tf.int64)
        kernel = tf.ones((3, 3, 32, 32))
        compiled = tf.function(lambda x: tf.reduce_sum(x * 2 + 1), jit_compile=True)
        # Each step has one number as its result, which is whole and small enough to be exact on any device.
        tried = {
            "matmul": _timed("matmul", lambda: (square @ square)[0, 0], size),
            "convolution": _timed(
                "convolution", lambda: tf.nn.conv2d(images, kernel, 1, "SAME")[0, 1, 1, 0], 9 * 32
            ),
            "gather": _timed("gather", lambda: tf.cast(rows.rows(last), tf.float32)[0, -1], 255),
            "xla": _timed("xla", lambda: compiled(square[0]), 3 * size),
        }
    return {
        "seconds": {step: seconds for step, (seconds, _) in tried.items()},
        "wrong": [step for step, (_, right) in tried.items() if not right],
        "tflops": 2 * size**3 / tried["matmul"][0] / 1e12,
    }


def train(count: int, *, simulated: bool) -> dict[str, Any]:
    """Sum numbers over ``count`` devices, then train a wide network on them as a trial would.

    The devices are GPUs or, if ``simulated``, logical CPU devices. Returns ``sums``, the result of
    `sum_replica_numbers`, and ``examples_per_s`` of the fastest epoch after the first one. Sums are not checked here.
    Raises DeviceError if there are fewer GPUs.
    """
    from trainables.devices.placement import place

    devices = Devices(cpus=cpus(), gpus=count, simulated=simulated)
    placement = place(devices)
    _say(f"all-reduce over {', '.join(placement.devices)}")
    sums = sum_replica_numbers(placement.replicas)
    _say(f"training on {', '.join(placement.devices)}")
    rates = _examples_per_s(devices, (64, 256) if simulated else (2048, 8192))
    return {"sums": sums, "examples_per_s": max(rates[1:])}


def share() -> dict[str, Any]:
    """Limit this process to a quarter of the first GPU, as a trial would, and ask for more.

    Return ``limit_bytes``, and whether exceeding the limit was ``refused`` and the GPU ``works`` afterwards. Raises
    DeviceError if there is no GPU, or its memory is unknown.
    """
    from trainables.devices import gpu_memory
    from trainables.devices.placement import place

    devices = Devices(cpus=cpus(), gpus=0.25)
    place(devices)
    limit_bytes = gpu_memory.get_limit_bytes(devices) or 0.0
    refused = False
    with tf.device("/gpu:0"):
        _say("filling half of the share")
        half = tf.zeros([int(limit_bytes / 2)], tf.int8)
        try:
            _say("asking for more than the share")
            # Numbers of four bytes fill the whole share, of which `half` already holds a half.
            float(tf.reduce_max(tf.zeros([int(limit_bytes / 4)], tf.float32)))
        except tf.errors.ResourceExhaustedError:
            refused = True
        _say("going on")
        # refers to `half`, to keep it until here
        works = float(tf.reduce_sum(tf.ones(1024))) == 1024 and len(half) > 0
    return {"limit_bytes": limit_bytes, "refused": refused, "works": works}


def meet(addresses: list[str], rank: int, *, gpus: int) -> dict[str, Any]:
    """Join the processes at ``addresses`` as rank ``rank``, with ``gpus`` GPUs (0 or 1), and sum numbers over them.

    ``addresses`` has the address of every process, also of this one, by rank. Waits until all have joined, for at most
    60 s. Returns ``latency_s``, the median seconds of a sum of one number, and ``bytes_per_s`` of a large one, of 16
    MiB. Raises ValueError if a sum is wrong.
    """
    from trainables.devices.placement import place

    _say("meeting the other ranks")
    ranks = Ranks(tuple(addresses), rank, register_s=MEETING_S)
    replicas = place(Devices(gpus=gpus, ranks=ranks)).replicas

    # Each rank gives its number, counted from 1, so the sum is 1 + 2 + ... over all ranks.
    expected = len(addresses) * (len(addresses) + 1) / 2

    def time_sum(size: int) -> float:
        """Return the median seconds of a sum of ``size`` numbers per rank; raises ValueError if a sum is wrong."""

        def sum_on_replica() -> tf.Tensor:
            mine = tf.cast(get_replica_index()[1], tf.float32) + tf.ones(size)
            return tf.reduce_max(sum_over_replicas([mine])[0])

        function = tf.function(lambda: replicas.run(sum_on_replica), autograph=False)
        taken = []
        for _ in range(TIMES):
            began = time.perf_counter()
            found = float(replicas.first(function()))
            taken.append(time.perf_counter() - began)
            if found != expected:
                raise ValueError(f"the sum is {found}, expected {expected}")
        # the median, without the first run, which is traced
        return sorted(taken[1:])[TIMES // 2 - 1]

    _say("summing one number")
    latency_s = time_sum(1)
    _say(f"summing {LARGE // 2**18} MiB")  # numbers of four bytes
    return {"latency_s": latency_s, "bytes_per_s": 4 * LARGE / time_sum(LARGE)}


def sum_replica_numbers(replicas: Replicas) -> list[float]:
    """Return the sum 1 + 2 + ... over all replicas as each replica of this process computes it; all should be equal."""

    def sum_on_replica() -> tf.Tensor:
        mine = tf.cast(get_replica_index()[1], tf.float32) + 1
        return sum_over_replicas([mine])[0]

    sums = tf.function(lambda: replicas.run(sum_on_replica))()
    return [float(value) for value in replicas.of_each(sums)]


def _examples_per_s(devices: Devices, shape: tuple[int, int]) -> list[float]:
    """Train a network for `EPOCHS` epochs and return the examples per second of each epoch.

    ``shape`` is (units per layer, examples of a batch per device).
    """
    import keras

    from trainables.keras_trainable import KerasTrainable

    units, batch_per_device = shape
    batch = int(batch_per_device * devices.gpus)

    class Wide(KerasTrainable):
        def data(self, hp: Any) -> tuple[Any, Any]:
            x = np.random.default_rng(0).normal(size=(STEPS * batch, 64)).astype(np.float32)
            return (x, (x[:, 0] > 0).astype(np.int32)), None

        def model(self, hp: Any) -> keras.Model:
            hidden = []
            for _ in range(4):
                hidden.append(keras.layers.Dense(units, activation="relu"))
            return keras.Sequential(
                [keras.Input((64,)), *hidden, keras.layers.Dense(2, dtype="float32")]
            )

    given = Assignment(
        trial=0,
        params={"optimizer": "sgd", "learning_rate": 1e-3, "batch_size": batch},
        seed=0,
        epochs=EPOCHS,
        devices=devices,
    )
    rates: list[float] = []

    def report(epoch: EpochReported) -> bool:
        rates.append(epoch.examples_per_s or 0.0)
        return True  # go on

    wide = Wide()
    wide.begin(given)
    wide.train(report)
    return rates


def _timed(step: str, compute: Callable[[], tf.Tensor], expected: float) -> tuple[float, bool]:
    """Return the seconds of the fastest of three runs after a first one, and whether the first run's result is right.

    It is right if it equals ``expected`` exactly. Writes the name of the step to standard error.
    """
    _say(step)
    right = float(compute()) == expected
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        float(compute())  # waits for the device
        taken.append(time.perf_counter() - began)
    return min(taken), right


def _describe_keras() -> dict[str, Any]:
    """Return ``keras`` (its version), ``backend`` and, if Keras cannot be imported, ``keras_error``."""
    try:
        import keras
    except ImportError as error:  # a backend that is not installed
        return {"keras": None, "backend": None, "keras_error": str(error)}
    return {"keras": keras.__version__, "backend": keras.backend.backend()}


def _say(text: str) -> None:
    """Write a line ``probe: TEXT`` to standard error at once."""
    sys.stderr.write(f"probe: {text}\n")
    sys.stderr.flush()


def main(arguments: list[str]) -> dict[str, Any]:
    """Run the test that the command line asks for, and return its result; ``arguments`` are without the program's name.

    Raises: ValueError: if the arguments are unknown. Whatever the test raises.
    """
    match arguments:
        case ["describe"]:
            return describe()
        case ["device", name]:
            return try_device(name)
        case ["train", count, *rest] if rest in ([], ["--simulated"]):
            return train(int(count), simulated=bool(rest))
        case ["meet", addresses, rank, *rest] if rest in ([], ["--gpu"]):
            return meet(addresses.split(","), int(rank), gpus=len(rest))
        case ["share"]:
            return share()
        case ["tpu"]:
            return {"missing": list_tpu_problems()}
    raise ValueError(
        f"unknown arguments {arguments}, expected describe, device NAME, train COUNT [--simulated], "
        "meet ADDRESSES RANK [--gpu], share or tpu"
    )


if __name__ == "__main__":
    answer = json.dumps(main(sys.argv[1:]))
    sys.stdout.write(answer + "\n")
