"""From devices that were tried to findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sweep.doctor.findings import Finding, Level
from sweep.doctor.probe import MODULE, Failure, Trained, Tried

GOOD, POOR = 0.8, 0.5  # share of perfect scaling


def device(name: str, tried: Tried | Failure) -> Iterator[Finding]:
    """One device alone."""
    if isinstance(tried, Failure):
        todo = f"see it fail: python -m {MODULE} device {name}; leave this device out until it works"
        yield Finding("device", Level.ERROR, f"{name}: {tried.reason}", todo)
        return
    times = ", ".join(f"{step} {1e3 * seconds:.2g} ms" for step, seconds in tried.seconds.items())
    found = f"{name}: {times} ({tried.tflops:.2g} TFLOP/s)" + (f", cuDNN {tried.cudnn}" if tried.cudnn else "")
    if tried.wrong:
        todo = "trust no result of this device; test it with its maker's tools"
        yield Finding("device", Level.ERROR, f"{found}; wrong results from {', '.join(tried.wrong)}", todo)
    else:
        yield Finding("device", Level.OK, found)


def pace(tried: Mapping[str, Tried | Failure]) -> Iterator[Finding]:
    """Devices far slower than the fastest: a trial over all of them goes at their pace."""
    speeds = {name: one.tflops for name, one in tried.items() if isinstance(one, Tried)}
    fastest = max(speeds.values(), default=0.0)
    slow = [f"{name} ({speed:.2g} TFLOP/s)" for name, speed in speeds.items() if speed < GOOD * fastest]
    if slow:
        found = f"{', '.join(slow)}: slower than the fastest device ({fastest:.2g} TFLOP/s)"
        todo = "look for heat and power limits (nvidia-smi -q -d PERFORMANCE) and for other users"
        yield Finding("device", Level.WARNING, found, todo)


def together(several: Trained | Failure, *, count: int, simulated: bool) -> Iterator[Finding]:
    """Several devices in one trial: whether they add up."""
    what = f"{count} {'logical CPU devices' if simulated else 'GPUs'}"
    expected = count * (count + 1) / 2
    if isinstance(several, Failure):
        todo = f"see it fail: python -m {MODULE} train {count}{' --simulated' if simulated else ''}"
        if not simulated:
            todo += "; try NCCL_P2P_DISABLE=1, or training.cross_device: hierarchical_copy, or one GPU a trial"
        yield Finding("together", Level.ERROR, f"{what}: {several.reason}", todo)
    elif several.sums != (expected,) * count:
        found = f"{what} summed to {list(several.sums)}, expected {expected} on each"
        yield Finding("together", Level.ERROR, found, "train on one GPU a trial; NCCL_DEBUG=INFO shows what was chosen")
    elif simulated:
        yield Finding("together", Level.OK, f"{what} sum and train (a rehearsal: they share the CPU)")
    else:
        yield Finding("together", Level.OK, f"{what} sum and train")


def scaling(alone: Trained | Failure, several: Trained | Failure, count: int) -> Iterator[Finding]:
    """What several GPUs gain over one."""
    if isinstance(alone, Failure) or isinstance(several, Failure):
        return
    factor = several.examples_per_s / alone.examples_per_s
    found = f"{count} GPUs train {factor:.2f} times the examples per second of one"
    if factor < POOR * count:
        todo = "one GPU a trial and more trials at a time gain more than several GPUs in one trial"
        yield Finding("scaling", Level.WARNING, found, todo)
    elif factor < GOOD * count:
        todo = "larger models and batches scale better; one GPU a trial always does"
        yield Finding("scaling", Level.NOTE, found, todo)
    else:
        yield Finding("scaling", Level.OK, found)


def alone(trained: Trained | Failure) -> Iterator[Finding]:
    """The first GPU in a trial of its own."""
    if isinstance(trained, Failure):
        todo = f"see it fail: python -m {MODULE} train 1"
        yield Finding("training", Level.ERROR, f"one GPU does not train: {trained.reason}", todo)
    else:
        yield Finding("training", Level.OK, f"one GPU trains: {trained.examples_per_s:,.0f} examples/s of a wide net")
