"""The features of a session that few trials use: their modules are imported when a trial uses one.

| feature | takes part | room |
| --- | --- | --- |
| several trials as one program | `training.fuse` | `fused` |
| the model without the loop, and as files | somebody asks for it | `export` |

Rooms below this module may not import it. They import the following modules only when a trial needs them:

| feature | takes part | module |
| --- | --- | --- |
| `Model.fit`, parameter servers | `training.loop`, `training.strategy` | `loop.fit_program`, `loop.served_program` |
| an author's own training step | the author has `train_step` | `loop.own_step` |
| weights that only a model's own step creates | layers lack weights | `loop.first_trace` |
| a frozen model in front of the trained one | the author has `features` | `recipe.features` |
| recomputed activations | `gradient_checkpointing` | `replicas.recomputation` |
| averages of weights | `ema_momentum`, `swa_from` | `recipe.averaging`, `loop.epoch_average` |
| a check of a batch's parts | several replicas, `micro_batches` | `replicas.additivity` |
| streams, batches of a `PyDataset` | `data` returns one | `data.streams`, `data.batches` |
| mixup, cutmix, random erasing | the trial has their hyperparameters | `recipe.mixing`, `recipe.augmentation` |
| a checkpoint of parameter servers, without them | it is restored | `loop.joined_tables` |
| caches of what XLA and CUDA compile | GPUs, or the file has `jit_compile` | `devices.compile_cache` |
| the meters and the memory of GPUs | GPUs, real or simulated | `devices.nvml`, `devices.gpu_memory` |
| updates by XLA | they are asked for | `devices.gpu_support` |
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.contract import Exported, Group
from trainables.loop.trial import ReadyTrial
from trainables.recipe.author import Author
from trainables.recipe.author_data import AuthorData

if TYPE_CHECKING:
    from trainables.export.plain_model import Plain as Plain
    from trainables.fused.group import SuspendableSession


def make_group(session: SuspendableSession) -> Group:
    """Return a new, empty group that trains several trials of one structure together, with the session's program."""
    from trainables.fused.group import FusedGroup

    return FusedGroup(session)


def rebuild_model(author: Author, trial: ReadyTrial) -> Plain:
    """Build the author's model again, without the training loop, and return it with the weights used for validation.

    ``author`` must have the attributes that `data` has left; its attribute `live` is replaced, and `model` runs. Raises
    NotExportable if the new model cannot take over the weights, and whatever `model` raises.
    """
    from trainables.export import plain_model

    return plain_model.rebuild_model(author, trial)


def add_features(author: Author, trial: ReadyTrial, plain: Plain, data: AuthorData) -> Plain:
    """Return ``plain``, a model that was built again, with the frozen model of `features` in front of it.

    ``plain`` itself is returned if there is no frozen model. The same holds if the outputs of the frozen model were not
    cached, because ``plain`` then contains it already. Otherwise a new one is returned, and `data` runs once more for
    the inputs on which exports are compared.
    """
    from trainables.export import plain_model

    return plain_model.add_features(author, trial, plain, data)


def check_exportable(trial: ReadyTrial, formats: Sequence[str]) -> None:
    """Raise NotExportable if one of ``formats`` is unknown or not available here, or the trial's model has no `call`.

    Nothing is built or written, so an export may still fail.
    """
    from trainables.export import exporting

    exporting.check_exportable(trial, formats)


def export(
    trial: ReadyTrial, plain: Plain, preprocessing: str, folder: Path, formats: Sequence[str]
) -> Exported:
    """Write a model that was built again into ``folder`` in each of ``formats``, and verify the files' predictions.

    ``preprocessing`` is the author's text on how inputs are prepared, which becomes part of the result. The files are
    loaded in a fresh process. If the model draws random numbers, predictions are not verified, which the result notes.
    Raises NotExportable if the model cannot be written or loaded, or a file predicts something else.
    """
    from trainables.export import exporting

    return exporting.export(trial, plain, preprocessing, folder, formats)
