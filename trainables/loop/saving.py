"""Saving of a trial in a checkpoint, and the transfer of its weights from one phase to the next.

Checkpoints are the same whether the weights are in this process or on parameter servers. Between phases, weights and
their averages are matched by path and optimizers start again, as when a Keras model is compiled again after layers were
frozen or unfrozen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import keras
import numpy as np

from trainables.loop.program import Program
from trainables.loop.trial import ReadyTrial
from trainables.recipe.refusals import Refused
from trainables.state import checkpoint
from trainables.state.checkpoint import About
from trainables.state.program_variables import State, unwrap_variable

if TYPE_CHECKING:
    from trainables.recipe.averaging import Average


def save(
    folder: Path, trial: ReadyTrial, memory: dict[str, Any], data: str | None
) -> Callable[[], None]:
    """Copy the state of a trial and return a function that writes it as a checkpoint into ``folder``, which exists.

    The function can be called in another thread, while the trial goes on. Tables on parameter servers are written by
    the servers before this returns. The author's ``memory`` and the fingerprint ``data`` of the training data, None if
    there is none, are stored with the checkpoint.
    """
    about = {**trial.state(), "memory": memory, "data": data}
    if trial.program.served:
        about["tables"] = checkpoint.save_tables(folder, trial.program.tables)
    return checkpoint.save(folder, trial.program.state, about)


def restore(folder: Path, trial: ReadyTrial) -> About:
    """Restore weights and progress of a trial from a checkpoint that `save` wrote; return the progress.

    It is the dictionary that `ReadyTrial.state` returned, with ``memory`` and ``data``; the caller must restore
    ``memory`` and compare ``data``. The number of replicas may differ: all of them then get the first one's values. The
    number of parameter servers may differ. A checkpoint written on servers can be restored without
    them: tables are then joined, and optimizers start with new moments. Raises CheckpointError if the checkpoint is
    damaged or does not fit.
    """
    if trial.program.served:
        about = checkpoint.restore(folder, trial.program.state)
        checkpoint.restore_tables(folder, trial.program.tables, about.get("tables", {}))
    else:
        about, values = checkpoint.read(folder)
        if "tables" in about:
            from trainables.loop.joined_tables import assign_joined_tables

            assign_joined_tables(folder, trial, about, values)
        else:
            checkpoint.assign(folder, trial.program.state, values)
    trial.restore(about)
    return about


Values: TypeAlias = "dict[str, tuple[np.ndarray[Any, Any], ...]]"
"""Values by path, one for each replica."""


class CarriedWeights:
    """A copy of the weights and averages of one phase's program, to be assigned to the program of the next phase.

    Both phases may use the same program.
    """

    def __init__(self, program: Program) -> None:
        """Copy the values that ``program`` has now, with those of variables that hooks use or Keras does not track."""
        self._weights = _copy_values(program.state, _key_by_path(_list_weights(program)))
        self._untracked = _copy_values(program.state, _list_untracked_by_model(program))
        # by the kind of average: its values by the paths of the weights, and its `started`
        self._averages = {}
        for kind, average in _get_averages_by_type(program).items():
            copied = _copy_values(program.state, _list_average_variables(average))
            self._averages[kind] = (copied, average.started.numpy())

    def assign_to(self, program: Program) -> None:
        """Assign the copied weights and averages to a program in its initial state, by path.

        Optimizers and metrics are left as they are. Variables that Keras does not track are assigned by the order in
        which they were created. An average of a kind that was not copied, and the average of a weight that was not
        averaged before, starts at the weights. Raises Refused if the program has weights of other paths or shapes;
        nothing is assigned then.
        """
        program.state.will_train()
        present = _key_by_path(_list_weights(program))
        shapes = {path: values[0].shape for path, values in self._weights.items()}
        unlike = []
        for path in sorted({*present, *shapes}):
            if path not in present or shapes.get(path) != tuple(present[path].shape):
                unlike.append(path)
        if unlike:
            # without the number of `_key_by_path`
            named = ", ".join(path.rpartition("#")[0] for path in unlike[:3])
            raise Refused(
                f"model() makes another model in the next phase: {named} is not in both, or of another shape"
            )
        _assign(program.state, present, self._weights)
        _assign(program.state, _list_untracked_by_model(program), self._untracked)
        for kind, average in _get_averages_by_type(program).items():
            average.reset()  # the average of a weight that was not trained before is the weight itself
            if kind in self._averages:
                values, started = self._averages[kind]
                _assign(program.state, _list_average_variables(average), values)
                average.started.assign(started)


def _list_weights(program: Program) -> list[keras.Variable]:
    """Return the variables of all networks, and those that the author's hooks use; some may occur twice."""
    return [v for network in program.networks for v in network.variables] + list(
        program.hook_variables
    )


def _list_untracked_by_model(program: Program) -> dict[str, Any]:
    """Return variables made in the author's `model` that Keras does not track, such as a `tf.Variable` in a layer.

    The keys are their positions, as texts, among all variables that the method has created, tracked ones included.
    Variables of the optimizer, of metrics and of hooks are left out.
    """
    model = program.model
    # An optimizer that `model` has made starts anew in each phase, so its variables are not carried over.
    known = [*_list_weights(program), *program.parts.optimizer.variables, *model.metrics_variables]
    taken = set()
    for variable in known:
        taken.add(id(unwrap_variable(variable)))
    untracked = {}
    for position, raw in enumerate(program.parts.created_by_model):
        if id(raw) not in taken:
            untracked[str(position)] = raw
    return untracked


def _get_averages_by_type(program: Program) -> Mapping[type[Average], Average]:
    """Return the program's averages of the weights by their class: over updates, and over epochs."""
    averages: dict[type[Average], Average] = {}
    for average in program.averages:
        averages[type(average)] = average
    return averages


def _list_average_variables(average: Average) -> dict[str, Any]:
    """Return the variables that hold an average, each under the key that `_key_by_path` gives the averaged weight."""
    return dict(zip(_key_by_path(average.weights), average.variables, strict=True))


def _key_by_path(variables: Iterable[Any]) -> dict[str, Any]:
    """Return variables, each once, by ``path#1``; others with the same path are ``path#2`` and so on.

    In place of the path, a variable that is no Keras variable has its name.
    """
    found: dict[str, Any] = {}
    times: Counter[str] = Counter()
    for variable in {id(unwrap_variable(v)): v for v in variables}.values():
        if isinstance(variable, keras.Variable):
            path = variable.path
        else:
            path = str(variable.name)
        times[path] += 1
        found[f"{path}#{times[path]}"] = variable
    return found


def _copy_values(state: State, variables: Mapping[str, Any]) -> Values:
    """Return copies of the values of ``variables`` under the same keys, without those that ``state`` does not hold."""
    copies = {}
    for path, variable in variables.items():
        values = state.read(unwrap_variable(variable))
        if values is not None:
            copies[path] = values
    return copies


def _assign(state: State, variables: Mapping[str, Any], values: Values) -> None:
    """Assign to each of ``variables`` the values under its key in ``values``.

    A variable that ``values`` lacks, or that ``state`` does not hold, is skipped. Raises ValueError if there are not as
    many values as replicas.
    """
    for path, variable in variables.items():
        raw = unwrap_variable(variable)
        # `read` returns None for a variable that `state` does not hold
        if path in values and state.read(raw) is not None:
            state.set_values(raw, values[path])
