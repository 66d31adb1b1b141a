"""The test data: evaluated for those that could be the best and for the baseline, once, when the race is over."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from sweep.analysis import confirmation
from sweep.contract import Trainable
from sweep.errors import InputError, SweepError, first_line, printable
from sweep.events import ModelTested, Role, Status
from sweep.loading import offers
from sweep.runner import debug_log, restoring
from sweep.runner.trials import rules, runs
from sweep.space.domains import configuration
from sweep.spec import Spec
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Ledger
from sweep.store.log import Log
from sweep.store.tables import TableBuilder


def due(ledger: Ledger, spec: Spec) -> list[int]:
    """Return the trials with fresh seeds whose models are to be tested: none before the race is over, none twice."""
    if spec.confirm is None:
        return []
    found = confirmation.run(runs(ledger, spec), rules(spec, spec.confirm))
    if not found.over:
        return []
    chosen = {racer.key for racer in found.racers if racer.key in found.left or racer.is_baseline}
    return [
        one.number
        for one in ledger.trials.values()
        if one.role is Role.CONFIRM
        and one.status is Status.COMPLETED
        and configuration(one.params) in chosen
        and not one.tested
    ]


def evaluate(
    folder: ResultsFolder, spec: Spec, given: object = None, is_over: Callable[[], bool] = lambda: False
) -> int:
    """Evaluate their models and log it; how many. A trainable without test data is asked once and no more.

    No more begin when it ``is_over``: another session tests the rest. What cannot be tested is said and changes
    nothing. Raises `StoreError` where the log cannot be written.
    """
    ledger = Ledger(keep_epochs=False)
    for _ in ledger.follow(folder.log):
        pass
    trials = due(ledger, spec)
    trainable: Trainable | None = None
    count = 0
    if not trials or not _offers_test(folder, spec, given):
        return 0
    with (
        folder.lock(spec.checkpoint.sync_s) as copy,
        debug_log.redirected(folder.debug_log) as terminal,
        Log(folder.log, copy=copy, durable=spec.checkpoint.durable) as log,
    ):

        def say(text: str) -> None:
            terminal.write(f"note: {printable(text)}\n")

        for trial in trials:
            if is_over():
                break
            try:
                restored = restoring.begin(restoring.find(folder, trial), given, trainable)
                trainable = restored.trainable
                metrics = _tested(trainable)
            except InputError as error:
                say(f"trial {trial} is not tested: {error}")
                continue
            except SweepError:
                raise
            except Exception as error:  # the border to the user's code
                say(f"no test: {type(error).__name__}: {first_line(error)}")
                break
            if metrics is None:
                break
            log.append([ModelTested(trial=trial, metrics=metrics, time=time.time())])
            count += 1
        if count:
            builder = TableBuilder.of(folder)
            builder.follow(folder.log)
            builder.write(folder)
    return count


def _offers_test(folder: ResultsFolder, spec: Spec, given: object) -> bool:
    """Return whether its trainables have a `test` at all; one that cannot be imported says so where it begins."""
    try:
        return offers("test", spec.trainable, folder.read_info().import_folders or (), given)
    except Exception:  # the border to the user's code
        return True


def _tested(trainable: object) -> dict[str, float] | None:
    method = getattr(trainable, "test", None)
    found = method() if callable(method) else None
    if found is None:
        return None
    metrics = {str(name): float(value) for name, value in found.items()}
    if not any(map(math.isfinite, metrics.values())):
        raise ValueError(f"test() returned {metrics}, expected numbers by name")
    return metrics
