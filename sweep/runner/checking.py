"""Checks a sweep against the source of its trainable, before its first epoch.

Some settings are known to fail in every trial, even if the trainable reads all its parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sweep import standard_hyperparameters
from sweep.errors import InputError, Problem, refuse
from sweep.events import Params
from sweep.functions import RANKED_METHODS
from sweep.inspection import KERAS_TRAINABLE, Source, inspect
from sweep.inspection.unconditional import NameUse
from sweep.runner import features, without_effect
from sweep.space import domains
from sweep.space.domains import Categorical, Constant, Domain, Tied, list_choices
from sweep.space.early_terminate import AshaPromotion
from sweep.spec import Spec
from sweep.spec.automatic import stop_instead_of_pausing
from sweep.spec.validation import describe_value
from sweep.text import did_you_mean, guess, printable

READ_BY_SWEEP = frozenset({"epochs"})


def check_trainable(
    spec: Spec, where: str, folders: Sequence[Path], *, here: bool = True
) -> Source:
    """Check the sweep file against the source of its trainable, without importing it, and return the source.

    ``where`` names the sweep file in messages. The trainable is searched in ``folders``, then among the installed
    modules. ``here`` says whether the trials run on this machine; if so, it is an error if a module that the source
    imports is not installed here, if Keras would not use TensorFlow for a `KerasTrainable`, or if the sweep file asks
    for TPUs that cannot be used here, which may take minutes to find out. Raises `InputError` if the source is missing,
    or with all that certainly fails or has no effect.
    """
    try:
        source = inspect(spec.trainable, folders, list_own_optimizers(spec))
    except InputError as error:
        raise InputError(
            Problem(f"{where}: {p.where}", p.what, p.hint) for p in error.problems
        ) from error
    check_source(spec, where, source, here=here)
    return source


def adapt_to_source(spec: Spec, source: Source) -> Spec:
    """Return the spec, in which a rule that ``auto`` chose pauses trials only if they can resume.

    A chosen rule that pauses trials is replaced by one that stops them, and its line in `Spec.chosen` too, if the
    trainable is a function that certainly never reads `report.restored`, as paused trials could not resume then.
    Otherwise return ``spec`` itself.
    """
    rule = spec.early_terminate
    # the lines of `Spec.chosen` are on the method and on the rule, "" if ``auto`` has not chosen it
    was_chosen = len(spec.chosen) > 1 and bool(spec.chosen[1])
    if not was_chosen or not isinstance(rule, AshaPromotion) or not source.is_function:
        return spec
    if "restored" not in source.list_unread_trial_facts(["restored"]):
        return spec
    stopping, line = stop_instead_of_pausing(rule)
    return replace(spec, early_terminate=stopping, chosen=(spec.chosen[0], line))


def list_own_optimizers(spec: Spec) -> tuple[str, ...]:
    """Return the user's own optimizers (``module:Name``) among the values of parameter ``optimizer``; () if none."""
    optimizer_domains = []
    for parameter in spec.space.parameters:
        if parameter.name == "optimizer":
            optimizer_domains.append(parameter.domain)
    values = [
        value
        for optimizer_domain in optimizer_domains
        for value in list_choices(optimizer_domain) or ()
    ]
    return tuple(value for value in values if isinstance(value, str) and ":" in value)


def check_source(spec: Spec, where: str, source: Source, *, here: bool = True) -> None:
    """Raise `InputError` with everything in the sweep file or source that fails, or has no effect, in every trial.

    ``where`` names the sweep file in messages; `check_trainable` explains ``here``.
    """
    if here:
        missing = [
            *find_uninstalled_modules(source),
            *without_effect.find_other_backend(where, source),
            *_name_places(where, features.find_tpu_problems(spec)),
        ]
    else:
        missing = []
    wrong = [
        *_find_unread_parameters(spec, where, source),
        *without_effect.find_idle_settings(spec, where, source),
        *_find_unreported_metrics(spec, where, source),
    ]
    refuse([*missing, *wrong, *find_certain_failures(spec, where, source)])


def _find_unreported_metrics(spec: Spec, where: str, source: Source) -> Iterator[Problem]:
    """Yield a problem for each metric of an objective or a constraint that the trainable certainly never reports.

    ``where`` names the sweep file in messages. Yield nothing if the source does not show all metrics.
    """
    possible = source.possible_metrics()
    if possible is None:
        return
    needed = []  # (path in the sweep file, name of the metric)
    for index, metric in enumerate(spec.metrics):
        path = "metric.name" if len(spec.metrics) == 1 else f"metrics[{index}].name"
        needed.append((path, metric.name))
    for constraint in spec.constraints:
        for name in sorted(constraint.names):
            needed.append(("constraints", name))
    for path, name in needed:
        if not possible.may_report(name):
            place = spec.places.get(path, f"{where}: {path}")
            what = f"{spec.trainable} reports no metric {name!r}"
            yield Problem(place, what, did_you_mean(name, possible.known))


def _find_unread_parameters(spec: Spec, where: str, source: Source) -> Iterator[Problem]:
    """Yield a problem for each parameter of the sweep file, except ``epochs``, that the source certainly does not read.

    ``where`` names the sweep file in messages.
    """
    known = source.reads | READ_BY_SWEEP
    for name in list_unseen_reads(spec, source):
        if not source.may_read(name):
            place = spec.places.get(name, f"{where}: parameters.{name}")
            yield Problem(place, f"nothing in {spec.trainable} reads it", did_you_mean(name, known))


def check_inline(spec: Spec, where: str) -> None:
    """Raise `InputError` if trials have servers or several workers, so that a single process cannot train them.

    ``where`` is the option that asked for a single process, for the message.
    """
    workers = spec.resources.workers
    servers = spec.resources.servers
    if servers:  # first, because servers are further processes even if a trial has one worker
        processes = f"{servers} servers and {workers} workers (resources.servers)"
        what = f"trains in a single process, but a trial has {processes}"
        raise InputError.one(
            where, what, "leave it out, or the servers and strategy: parameter_server"
        )
    if workers > 1:
        what = f"trains in a single process, but a trial has {workers} workers (resources.workers)"
        raise InputError.one(where, what, "leave it out, or set resources.workers to 1")


def list_unseen_reads(spec: Spec, source: Source) -> tuple[str, ...]:
    """Return the parameters, except ``epochs``, for which no read was found in the source; they may be read even so."""
    return tuple(
        name
        for name in spec.space.names
        if name not in READ_BY_SWEEP and not source.reads_parameter(name)
    )


def list_notes(spec: Spec, source: Source) -> list[str]:
    """Return lines for the user, each of which begins with ``note: ``; [] if there is nothing to tell.

    They are about ignored keys of W&B files, unusual settings (`Spec.notes`), and parameters that may be unread.
    """
    unseen = list_unseen_reads(spec, source)
    notes = []
    if spec.ignored_keys:
        notes.append(f"{', '.join(spec.ignored_keys)}: without effect here")
    notes += spec.notes
    if unseen:
        notes.append(
            f"{', '.join(unseen)}: may be unused: no read found in the source; the first trial will check"
        )
    return [printable(f"note: {note}") for note in notes]


SIGMAS = 5  # standard deviations of a normal that are checked; 1 draw in 1.7 million lies outside, its trial is refused


def find_certain_failures(spec: Spec, where: str, source: Source) -> Iterator[Problem]:
    """Yield a problem for everything that would fail in every trial, with ``where`` as the name of the sweep file.

    These are invalid values of standard hyperparameters, missing parameters, several workers or fused trials of a
    trainable that cannot have them, and the settings of `without_effect.ignored`.
    """
    yield from _find_wrong_values(spec, where, source)
    yield from _find_missing_parameters(spec, where, source)
    yield from _name_places(where, _check_workers(spec, source))
    yield from _name_places(where, _check_fused(spec, source))
    yield from _name_places(where, without_effect.ignored(spec, source))


def _name_places(where: str, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield each problem with the name of the sweep file, ``where``, before its key."""
    for one in problems:
        yield Problem(f"{where}: {one.where}", one.what, one.hint)


def _find_wrong_values(spec: Spec, where: str, source: Source) -> Iterator[Problem]:
    """Yield a problem for each domain of a standard hyperparameter with values outside its bounds.

    Also yield one for each such value in `start_with` and `baseline`. Only hyperparameters that `KerasTrainable` itself
    certainly reads are checked, and none if the trainable is no `KerasTrainable`. A domain that is tied, or of a
    parameter in a constraint of the space, is not checked. ``where`` names the sweep file in messages.
    """
    if not source.derives_from(KERAS_TRAINABLE):
        return
    # a constraint of the space may keep the values of its parameters within their bounds
    constrained = frozenset[str]().union(*(one.names for one in spec.space.constraints))
    # of the parameters that are checked
    bounds_by_name = {
        name: standard_hyperparameters.get_standard_bounds(name)
        for name in spec.space.names
        if _has_standard_meaning(name, source)
    }
    for parameter in spec.space.parameters:
        name = parameter.name
        if name not in bounds_by_name or name in constrained:
            continue
        # None for a tied domain, too, so that it is left out
        what = _describe_values_outside(parameter.domain, bounds_by_name[name])
        if what:
            place = spec.places.get(name, f"{where}: parameters.{name}")
            expected = standard_hyperparameters.expected(bounds_by_name[name])
            yield Problem(place, f"{what}, expected {expected}")
    given: list[tuple[str, Params]] = []  # (path in the sweep file, configuration)
    for index, one in enumerate(spec.start_with):
        given.append((f"start_with[{index}]", one))
    if spec.baseline:
        given.append(("baseline", spec.baseline))
    for path, params in given:
        for name, value in params.items():
            if name in bounds_by_name and not bounds_by_name[name].accepts(value):
                place = spec.places.get(f"{path}.{name}", f"{where}: {path}.{name}")
                expected = standard_hyperparameters.expected(bounds_by_name[name])
                yield Problem(place, f"{describe_value(value)}, expected {expected}")


def _find_missing_parameters(spec: Spec, where: str, source: Source) -> Iterator[Problem]:
    """Yield a problem for each parameter that every trial reads without a default and that the sweep file lacks.

    ``epochs`` and ``updates`` are never missing. ``group`` is not missing if the sweep file has a parameter such as
    ``group.name``. ``where`` names the sweep file in messages. The problem names the first place that reads it.
    """
    names = spec.space.names
    first_reads: dict[str, NameUse] = {}
    for use in source.list_certain_reads():
        if use.name not in standard_hyperparameters.LENGTHS:
            first_reads.setdefault(use.name, use)
    for read_name, use in first_reads.items():
        has_parameter = any(name == read_name or name.startswith(f"{read_name}.") for name in names)
        if not has_parameter:
            what = f"no {read_name!r}, which {source.where(use)} reads in every trial without a default"
            hint = guess(read_name, names) or f'add it, or read it as hp.get("{read_name}", ...)'
            yield Problem(f"{where}: parameters", what, hint)


def find_uninstalled_modules(source: Source) -> Iterator[Problem]:
    """Yield a problem for each import of the trainable that certainly fails, as its module is not installed here."""
    for use in source.list_missing_imports():
        what = f"imports {use.name!r}, and no such module is here"
        yield Problem(source.where(use), what, "install it, or leave it out")


def _has_standard_meaning(name: str, source: Source) -> bool:
    """Return whether a parameter of a `KerasTrainable` certainly has its standard meaning, so that its bounds apply.

    This holds for those that `KerasTrainable` itself always reads (`standard_hyperparameters.FRAME`), and for other
    standard ones that the author's own code does not read. The caller must check that ``source`` is that of a
    `KerasTrainable`.
    """
    return name in standard_hyperparameters.FRAME or (
        standard_hyperparameters.is_standard(name) and not source.author_reads_parameter(name)
    )


def _describe_values_outside(domain: Domain, bounds: standard_hyperparameters.Bounds) -> str | None:
    """Return in words that values of a domain lie outside the bounds; None if none does, or if the domain is tied.

    The words are the first such choice or, for a range, the whole range, such as ``numbers from 0 to 2``, or that its
    numbers are not whole. An unbounded domain is checked up to `SIGMAS` standard deviations from its mean.
    """
    match domain:
        case Tied():
            return None
        case Constant() | Categorical():
            for value in domains.list_choices(domain) or ():
                if not bounds.accepts(value):
                    return describe_value(value)
            return None
    # all others are ranges
    low, high = (domains.snap(domain, end) for end in domains.get_finite_bounds(domain, SIGMAS))
    # the values of a range are numbers, and of `Names`, which take a name or a number, only the number matters here
    number = bounds.number if isinstance(bounds, standard_hyperparameters.Names) else bounds
    must_be_whole = isinstance(number, standard_hyperparameters.Number) and number.whole
    step = domains.get_quantum(domain)
    has_fractions = step is None or step != int(step)
    if must_be_whole and has_fractions:
        return "numbers that are not whole"
    if bounds.accepts(low) and bounds.accepts(high):  # then all numbers in between are accepted too
        return None
    return f"numbers from {low:g} to {high:g}"


def _check_fused(spec: Spec, source: Source) -> Iterator[Problem]:
    """Yield a problem if trials are to be fused, but the trainable certainly trains one at a time, without group()."""
    if spec.together == 1 or not source.list_lacking_methods("group"):
        return
    what = f"{spec.training['fuse']}, and {spec.trainable} trains one trial at a time"
    if source.is_function:
        what += ": it is a function"
    else:
        what += ": it has no group()"
    hint = "derive it from trainables.keras_trainable.KerasTrainable, or leave fuse out"
    yield Problem("training.fuse", what, hint)


def _check_workers(spec: Spec, source: Source) -> Iterator[Problem]:
    """Yield one problem if trials have several workers, but the trainable certainly trains in one process.

    That is so if it lacks one of the methods in `RANKED_METHODS`, as a function does.
    """
    workers = spec.resources.workers
    if workers > 1:
        missing = source.list_lacking_methods(*RANKED_METHODS)
    else:
        missing = ()
    if not missing:
        return
    what = f"a trial has {workers} workers, and {spec.trainable} "
    if source.is_function:
        what += "is a function, which trains in one process"
    else:
        what += (
            f"trains in one process: it has no {' and no '.join(f'{name}()' for name in missing)}"
        )
    hint = "derive it from trainables.keras_trainable.KerasTrainable, give it the methods of sweep.contract.Ranked, "
    yield Problem("resources.workers", what, f"{hint}or leave workers out")
