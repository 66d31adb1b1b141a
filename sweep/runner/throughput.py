"""Measures the training throughput by batch size, precision, micro-batches and replicas, in examples per second.

For `plan --tune-throughput`. One setting is changed at a time, starting from the sweep file. Each combination is
measured in a process of its own, so that its memory is separate and running out of it does no harm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from sweep.backends import memory
from sweep.contract import Assignment, Devices
from sweep.errors import TrainableError, in_short
from sweep.events import EpochReported, Params, Value
from sweep.functions import load_trainable
from sweep.runner.trials import Terms
from sweep.spec import Spec

EXAMPLES = 4096
"""Approximate number of examples in a measured epoch; its number of updates follows from this."""
EPOCHS, LEAST_S = 12, 1.0
"""Largest number of measured epochs after a first one, and seconds after which measuring stops earlier."""
FASTER = 1.05
"""Minimum ratio of throughput for preferring a setting; smaller differences are noise."""
DOUBLINGS = 8


@dataclass(frozen=True, slots=True)
class SettingsCombination:
    """One combination of the settings whose throughput is measured."""

    batch_size: int
    precision: str
    micro_batches: int
    replicas: int

    def params(self, others: Params) -> dict[str, Value]:
        """Return the hyperparameters of a trial with this batch size, these micro-batches and short epochs.

        An epoch has about `EXAMPLES` examples, but at least 4 updates (``steps_per_epoch``). The other hyperparameters
        are from ``others``, except ``per_replica_batch_size``, which is left out.
        """
        params = dict(others)
        params.pop("per_replica_batch_size", None)  # it would set the batch size as well
        params["batch_size"] = self.batch_size
        params["micro_batches"] = self.micro_batches
        params["steps_per_epoch"] = max(math.ceil(EXAMPLES / self.batch_size), 4)
        return params


@dataclass(frozen=True, slots=True)
class Measured:
    """The throughput and memory of a combination; or why it failed."""

    way: SettingsCombination
    examples_per_s: float = 0.0
    memory_bytes: float | None = None
    failed: str = ""

    @property
    def fits(self) -> bool:
        """Whether the combination trained without error and reported how many examples per second it trains."""
        return not self.failed


@dataclass(frozen=True, slots=True)
class Throughput:
    """The combinations in the order in which they were measured, the sweep file's first, and the fastest."""

    tried: tuple[Measured, ...]
    fastest: Measured

    @property
    def times(self) -> float:
        """The throughput with the fastest settings, divided by the throughput with the settings of the sweep file."""
        return self.fastest.examples_per_s / self.tried[0].examples_per_s


Measure = Callable[[SettingsCombination], Measured]


def measure_throughput(
    spec: Spec, devices: Devices, folders: Sequence[Path], params: Params, most_replicas: int
) -> Throughput:
    """Measure the throughput of the configuration ``params`` with various settings, and find the fastest ones.

    The settings are precision, batch size, micro-batches and replicas, of which there are up to ``most_replicas``. The
    first combination is that of ``params`` and the sweep file; `find_fastest` says which others follow. Each is
    measured in a new process, one after another. ``devices`` are those of a trial by the sweep file, and ``folders``
    are searched for the trainable.

    Raises:
        TrainableError: if the settings of the sweep file fail.
    """
    assignment = Terms(spec).trial(0, dict(params), devices)

    def measure(way: SettingsCombination) -> Measured:
        """Measure the throughput of a combination of settings, called ``way``, in a new process."""
        if way.replicas > 1:  # a GPU for each; a single replica may have a share of one
            gpus = max(devices.gpus, float(way.replicas))
        else:
            gpus = devices.gpus
        training = {**assignment.training, "precision": way.precision}
        short_trial = replace(
            assignment,
            params=way.params(params),
            training=training,
            epochs=EPOCHS + 1,  # the first one, which compiles, is not measured
            devices=replace(devices, gpus=gpus),
        )
        return _measure_in_process(way, spec.trainable, folders, short_trial)

    # the combination of `params` and the sweep file
    replicas = max(int(devices.gpus), 1)
    micro_batches = params.get("micro_batches")
    if not isinstance(micro_batches, int):  # it is not set
        micro_batches = 1
    first = SettingsCombination(
        batch_size=memory.compute_batch_size(params, replicas) or memory.DEFAULT_BATCH,
        precision=str(spec.training.get("precision", "auto")),
        micro_batches=micro_batches,
        replicas=replicas,
    )
    return find_fastest(first, precisions(devices), most_replicas, measure)


def precisions(devices: Devices) -> tuple[str, ...]:
    """Return the names of the precisions that are worth measuring on ``devices``; float16 only on real GPUs."""
    half = ("mixed_float16",) if devices.real_gpus else ()
    return ("float32", "mixed_bfloat16", *half)


def find_fastest(
    first: SettingsCombination, precisions: Sequence[str], most_replicas: int, measure: Measure
) -> Throughput:
    """Change one setting at a time from ``first``, keep each change that is faster, and return all measurements.

    First, each of ``precisions`` is tried. Then the batch size is doubled, at most `DOUBLINGS` times, until that is not
    faster or fails; if it fails, it is tried once more with twice the micro-batches. Then the replicas, and the batch
    size with them, are doubled up to ``most_replicas``. Only a change that is more than `FASTER` times as fast counts.
    ``measure`` measures one combination. Raises `TrainableError` if ``first`` itself fails.
    """
    tried = [measure(first)]
    best = tried[0]
    if not best.fits:
        raise TrainableError(f"the throughput cannot be measured: {best.failed}")

    def look(way: SettingsCombination) -> Measured:
        """Measure a combination of settings, and add the result to ``tried``."""
        tried.append(measure(way))
        return tried[-1]

    for precision in precisions:
        if precision != first.precision:
            best = _choose_faster(best, look(replace(best.way, precision=precision)))
    start = best.way
    for power in range(1, DOUBLINGS + 1):
        way = replace(start, batch_size=start.batch_size * 2**power)
        found = look(way)
        if not found.fits:
            smaller = replace(way, micro_batches=2 * way.micro_batches)  # which takes less memory
            best = _choose_faster(best, look(smaller))
            break
        better = _choose_faster(best, found)
        if better is best:
            break
        best = better
    for replicas in _list_doublings(best.way.replicas, most_replicas):
        factor = replicas // best.way.replicas  # above 2 if the doublings before were not faster
        spread = replace(best.way, replicas=replicas, batch_size=best.way.batch_size * factor)
        best = _choose_faster(best, look(spread))
    return Throughput(tuple(tried), best)


def _choose_faster(known: Measured, found: Measured) -> Measured:
    """Return ``found`` if it trained and is more than `FASTER` times as fast as ``known``, else ``known``."""
    if found.fits and found.examples_per_s > FASTER * known.examples_per_s:
        return found
    return known


def _list_doublings(first: int, most: int) -> Iterator[int]:
    """Yield ``first`` times 2, 4, 8 and so on, up to ``most``, which may be among them; nothing if twice is too many.

    ``first`` must be above 0.
    """
    count = 2 * first
    while count <= most:
        yield count
        count *= 2


def _measure_in_process(
    way: SettingsCombination, trainable: str, folders: Sequence[Path], assignment: Assignment
) -> Measured:
    """Measure a combination of settings in a new process; if that is killed, return that as the failure.

    ``assignment`` is a trial with the combination.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        try:
            return process.submit(
                _measure_here, way, trainable, tuple(folders), assignment
            ).result()
        except BrokenProcessPool:
            return Measured(
                way, failed="its process was killed, as by a machine that is out of memory"
            )


def _measure_here(
    way: SettingsCombination, trainable: str, folders: Sequence[Path], assignment: Assignment
) -> Measured:
    """Measure a combination of settings in this process by training a few short epochs; the first one does not count.

    The result has the median of the epochs' examples per second and, in bytes, the peak of GPU memory that the last
    epoch reports, else that of other memory, else None. Measuring ends after `LEAST_S` seconds of counted epochs or
    with the epochs of ``assignment``. An error of the user's code, or a trainable that reports no ``examples_per_s``,
    is returned as the failure.
    """
    heard: list[EpochReported] = []

    def report(epoch: EpochReported) -> bool:
        """Keep a report of the trainable; return whether it is to train on."""
        heard.append(epoch)
        # without the first, which compiles
        return sum(one.time_s for one in heard[1:]) < LEAST_S

    try:
        made = load_trainable(trainable, folders, seed=assignment.data_seed)()
        made.begin(assignment)
        made.train(report)
    except Exception as error:  # any error of the user's code
        if memory.is_out_of_memory(error):
            reason = "out of memory"
        else:
            reason = in_short(error)
        return Measured(way, failed=reason)
    speeds = []
    for one in heard[1:]:
        if one.examples_per_s is not None:
            speeds.append(one.examples_per_s)
    if not speeds:
        return Measured(
            way, failed=f"{trainable} reports no examples_per_s, as trainables of KerasTrainable do"
        )
    last = heard[-1].measures
    return Measured(
        way, median(speeds), last.get("gpu_memory_peak_bytes", last.get("memory_peak_bytes"))
    )
