"""What can be known before the first epoch to fail in every trial, for all that the trainable reads its parameters."""

from __future__ import annotations

from sweep.doctor import commands, probe
from sweep.errors import InputError, Problem
from sweep.inspection import Source
from sweep.spec import Spec

RANKED = ("join", "leave")  # methods of `sweep.contract.Ranked`
PROBE_S = 300.0


def check(spec: Spec, where: str, source: Source) -> None:
    """Raise InputError for workers of a trainable that trains in one process, and for TPUs that nothing computes on."""
    problems = [*_workers(spec, source), *_tpus(spec)]
    if problems:
        raise InputError(Problem(f"{where}: {one.where}", one.what, one.hint) for one in problems)


def _workers(spec: Spec, source: Source) -> list[Problem]:
    workers = spec.resources.workers
    missing = source.lacks(*RANKED) if workers > 1 else ()
    if not missing:
        return []
    what = f"a trial has {workers} workers, and {spec.trainable} "
    if source.is_function:
        what += "is a function, which trains in one process"
    else:
        what += f"trains in one process: it has no {' and no '.join(f'{name}()' for name in missing)}"
    hint = "derive it from trainables.keras_trainable.KerasTrainable, give it the methods of sweep.contract.Ranked, "
    return [Problem("resources.workers", what, f"{hint}or leave workers out")]


def _tpus(spec: Spec) -> list[Problem]:
    if spec.training.get("strategy") != "tpu":
        return []
    found = probe.tpu(commands.run, PROBE_S)
    if isinstance(found, probe.Failure):
        what = f"tpu, and TensorFlow does not say whether it has TPUs: {found.reason}"
        return [Problem("training.strategy", what, "python -m sweep doctor looks at the machine")]
    if not found:
        return []
    hint = "install a TensorFlow that was built for TPUs (tensorflow-tpu, on a machine that has some), or write auto"
    return [Problem("training.strategy", f"tpu, but {' and '.join(found)}", hint)]
