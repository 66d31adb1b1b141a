"""What can be known before the first epoch to fail in every trial, for all that the trainable reads its parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sweep import standard_hyperparameters
from sweep.doctor import probe
from sweep.errors import InputError, Problem, did_you_mean
from sweep.events import Params
from sweep.inspection import KERAS_TRAINABLE, Source
from sweep.inspection.unconditional import Place
from sweep.space import domains
from sweep.space.domains import Categorical, Constant, Domain, LogNormal, Normal, Tied
from sweep.spec import Spec
from sweep.spec.mistakes import show

RANKED = ("join", "leave")  # methods of `sweep.contract.Ranked`
SIGMAS = 5  # of a normal distribution: farther out lies one draw of 1.7 million, whose trial refuses it
PROBE_S = 300.0


def check(spec: Spec, where: str, source: Source) -> None:
    """Raise InputError for what no trial can be given: values that a standard hyperparameter may not have, none of
    what each reads, workers of a trainable that trains in one process, TPUs that nothing computes on.
    """
    problems = [*_values(spec, where, source), *_lacking(spec, where, source)]
    problems += [
        Problem(f"{where}: {one.where}", one.what, one.hint)
        for one in (*_workers(spec, source), *_fused(spec, source), *_tpus(spec))
    ]
    if problems:
        raise InputError(problems)


def _values(spec: Spec, where: str, source: Source) -> Iterator[Problem]:
    """Values outside of the bounds of a standard hyperparameter, where it is for sure `KerasTrainable` that reads it.

    A tied parameter, and one that a constraint may keep within its bounds, is left to the trials.
    """
    if not source.derives_from(KERAS_TRAINABLE):
        return
    constrained = frozenset[str]().union(*(one.names for one in spec.space.constraints))
    bound = {name: standard_hyperparameters.bounds(name) for name in spec.space.names if _is_bound(name, source)}
    for parameter in spec.space.parameters:
        name = parameter.name
        if name in bound and name not in constrained and (what := _outside(parameter.domain, bound[name])):
            place = spec.places.get(name, f"{where}: parameters.{name}")
            yield Problem(place, f"{what}, expected {standard_hyperparameters.expected(bound[name])}")
    given: list[tuple[str, Params]] = [(f"start_with[{index}]", one) for index, one in enumerate(spec.start_with)]
    given += [("baseline", spec.baseline)] if spec.baseline else []
    for place, params in given:
        for name, value in params.items():
            if name in bound and not bound[name].takes(value):
                path = f"{place}.{name}"
                what = f"{show(value)}, expected {standard_hyperparameters.expected(bound[name])}"
                yield Problem(spec.places.get(path, f"{where}: {path}"), what)


def _lacking(spec: Spec, where: str, source: Source) -> Iterator[Problem]:
    """Parameters that each trial reads without a default, and that the file does not have."""
    there = spec.space.names
    first: dict[str, Place] = {}
    for place in source.reads_surely():
        first.setdefault(place.name, place)
    for place in first.values():
        if not any(name == place.name or name.startswith(f"{place.name}.") for name in there):
            what = f"no {place.name!r}, which {source.where(place)} reads in every trial without a default"
            near = did_you_mean(place.name, there)
            hint = f'add it, or read it as hp.get("{place.name}", ...)'
            yield Problem(f"{where}: parameters", what, near if "mean" in near else hint)


def check_imports(source: Source) -> None:
    """Raise InputError where the trainable's modules import what this Python does not have."""
    problems = [
        Problem(
            source.where(place), f"imports {place.name!r}, and no such module is here", "install it, or leave it out"
        )
        for place in source.not_found()
    ]
    if problems:
        raise InputError(dict.fromkeys(problems))


def _is_bound(name: str, source: Source) -> bool:
    """Return whether a parameter means to `KerasTrainable` what its name says, whatever the author makes of it."""
    return name in standard_hyperparameters.FRAME or (
        standard_hyperparameters.is_standard(name) and not source.author_reads(name)
    )


def _outside(domain: Domain, bounds: standard_hyperparameters.Bounds) -> str | None:
    """Return what of a domain lies outside of some bounds, in words; None: nothing."""
    match domain:
        case Tied():
            return None
        case Constant() | Categorical():
            return next((show(value) for value in domains.choices(domain) or () if not bounds.takes(value)), None)
        case Normal(mu, sigma):
            ends = mu - SIGMAS * sigma, mu + SIGMAS * sigma
        case LogNormal(mu, sigma):
            ends = math.exp(mu - SIGMAS * sigma), math.exp(mu + SIGMAS * sigma)
        case _:
            ends = domains.bounds(domain)
    low, high = (domains.snap(domain, end) for end in ends)
    number = bounds.number if isinstance(bounds, standard_hyperparameters.Names) else bounds
    step = domains.quantum(domain)
    if isinstance(number, standard_hyperparameters.Number) and number.whole and (step is None or step != int(step)):
        return "numbers that are not whole"
    return None if bounds.takes(low) and bounds.takes(high) else f"numbers from {low:g} to {high:g}"


def _fused(spec: Spec, source: Source) -> list[Problem]:
    if spec.together == 1 or not source.lacks("group"):
        return []
    what = f"{spec.training['fuse']}, and {spec.trainable} trains one trial at a time"
    what += ": it is a function" if source.is_function else ": it has no group()"
    hint = "derive it from trainables.keras_trainable.KerasTrainable, or leave fuse out"
    return [Problem("training.fuse", what, hint)]


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
    found = probe.tpu(probe.run_command, PROBE_S)
    if isinstance(found, probe.Failure):
        what = f"tpu, and TensorFlow does not say whether it has TPUs: {found.reason}"
        return [Problem("training.strategy", what, "python -m sweep doctor looks at the machine")]
    if not found:
        return []
    hint = "install a TensorFlow that was built for TPUs (tensorflow-tpu, on a machine that has some), or write auto"
    return [Problem("training.strategy", f"tpu, but {' and '.join(found)}", hint)]
