"""A trial's Keras model out of its checkpoint."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

from sweep.api import trainables
from sweep.api.process import kept_process
from sweep.errors import InputError
from sweep.functions import FunctionTrainable
from sweep.runner import restoring
from sweep.runner.restoring import Which
from sweep.store.folder import ResultsFolder


def model(folder: ResultsFolder, trial: int | None, epoch: Which, trainable: object) -> Any:
    """The model of a trial, or of the best one, as it was after an epoch; warns of what may make it another one.

    Raises `InputError` where there is no such checkpoint, or the trainable makes no model.
    """
    kept = restoring.find(folder, restoring.winner(folder) if trial is None else trial, epoch)
    target = kept.sweep.spec.trainable
    given = trainables.again(target) if trainable is None else trainables.taken(trainable)
    spec = replace(kept.sweep.spec, trainable=given.target)
    folders = (*kept.sweep.import_folders, *given.folders)
    with kept_process():
        changed = replace(kept, sweep=replace(kept.sweep, spec=spec, import_folders=folders))
        restored = restoring.begin(changed, given.itself)
        for note in restored.notes:
            warnings.warn(f"{kept.where}: {note}", stacklevel=4)
        make = getattr(restored.trainable, "trained_model", None)
        if make is None:
            kind = "a function" if isinstance(restored.trainable, FunctionTrainable) else "no KerasTrainable"
            what = f"{given.target} is {kind}, and sweep knows no model of it"
            raise InputError.one(kept.where, what, f"what it saved is in {kept.checkpoint}")
        return make()
