"""Every key of the sweep file and every standard hyperparameter by kind of trainable: does it act, or is that said?

One table, which the documentation shows and tests compare with what happens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

KINDS = (
    "compiled",
    "train_step",
    "model_step",
    "own_optimizers",
    "fit",
    "servers",
    "workers",
    "fused",
    "function",
)
"""A model with a loss; a train_step() of the trainable; one of the model, with the trial's optimizer, and with its own;
`loop: fit`; on parameter servers; in several processes; several trials as one program; a function."""

YES, REFUSED, READ = "yes", "refused", "if read"
"""It acts; the sweep is refused at `plan`, or its first trial before the first epoch; the same unless it is read."""
MIXED = "one-hot"
"""It acts on targets that are one-hot; the first trial is refused with others."""


class Row(NamedTuple):
    """Some names that act alike, with the cell of each kind in the order of `KINDS`."""

    names: tuple[str, ...]
    cells: tuple[str, ...]


def row(names: str, but: dict[str, str] | None = None) -> Row:
    """Return a row of what acts on all kinds of `KerasTrainable` ``but`` some, and on functions that read it."""
    cells = dict.fromkeys(KINDS, YES) | {"function": READ} | (but or {})
    return Row(tuple(names.split()), tuple(cells[kind] for kind in KINDS))


def refused(kinds: str, **more: str) -> dict[str, str]:
    """Return the cells of kinds that refuse."""
    return dict.fromkeys(kinds.split(), REFUSED) | more


ROWS = [
    row(
        "batch_size per_replica_batch_size validation_batch_size steps_per_epoch validation_steps shuffle"
    ),
    row("shuffle_buffer random_erasing class_weights frozen_layers dropout"),
    row("cache_features", refused("model_step own_optimizers")),
    row(
        "learning_rate lr_scaling reference_batch_size warmup_epochs warmup_steps lr_schedule lr_final lr_initial "
        "lr_power lr_lengthening lr_drop_factor lr_rise lr_restarts lr_drops lr_patience lr_drop_epochs",
        refused("own_optimizers"),
    ),
    row("clipnorm global_clipnorm clipvalue", refused("own_optimizers")),
    row(
        "optimizer weight_decay adam_weight_decay beta_1 beta_2 adam_beta_1 adam_beta_2 rho momentum epsilon epsilon_1 "
        "epsilon_2 clip_threshold adam_lr_ratio initial_accumulator_value l1_regularization_strength "
        "l2_regularization_strength l2_shrinkage_regularization_strength beta_2_decay learning_rate_power beta muon_a "
        "muon_b muon_c rms_rate ns_steps nesterov centered relative_step exclude_embeddings exclude_layers",
        refused("own_optimizers"),
    ),
    row("amsgrad layer_decay layer_rates.*", refused("own_optimizers servers")),
    row("frozen_epochs", refused("servers")),
    row("fine_tune_learning_rate", refused("own_optimizers servers")),
    row(
        "micro_batches ema_momentum swa_from sam_rho",
        refused("model_step own_optimizers fit servers"),
    ),
    row(
        "mixup cutmix", dict.fromkeys(("train_step", "model_step", "own_optimizers", "fit"), MIXED)
    ),
    row("label_smoothing loss_weights.*", refused("train_step model_step own_optimizers")),
    row("gradient_checkpointing", refused("train_step servers")),
    row("training.precision training.strategy training.data_seed training.all_data"),
    row("training.patience", {"function": YES}),
    row("folds"),
    row("minutes", refused("servers workers fused", function=YES)),
    row("training.deterministic"),
    row("training.cross_device", refused("servers")),
    row("training.jit_compile", refused("servers workers fused")),
    row("training.run_eagerly", refused("fused")),
    row("training.loop", refused("train_step servers workers fused")),
    row("training.fuse", refused("fit servers workers function")),
]

OF_THE_SERVICE = frozenset(
    {
        *(
            "name",
            "description",
            "trainable",
            "method",
            "population",
            "start_with",
            "prior",
            "baseline",
            "metric",
        ),
        *(
            "metrics",
            "parameters",
            "constraints",
            "epochs",
            "early_terminate",
            "run_cap",
            "repeats",
            "seed",
            "training",
        ),
        *(
            "confirm",
            "resources",
            "budget",
            "stop_when",
            "max_failures",
            "max_restarts",
            "retries",
            "checkpoint",
        ),
        *("warm_start", "notify"),
    }
)
"""Keys of the file by which the service works, which sees of a trial no more than what it reports."""

EXAMPLES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "batch_size": ({}, {"batch_size": 8}),
    "per_replica_batch_size": ({"batch_size": None}, {"per_replica_batch_size": 8}),
    "validation_batch_size": ({}, {"validation_batch_size": 3}),
    "micro_batches": ({}, {"micro_batches": 2}),
    "steps_per_epoch": ({}, {"steps_per_epoch": 1}),
    "validation_steps": ({"validation_batch_size": 4}, {"validation_steps": 1}),
    "shuffle": ({}, {"shuffle": False}),
    "swa_from": ({}, {"swa_from": 1}),
    "clipnorm": ({}, {"clipnorm": 1e-3}),
    "global_clipnorm": ({"optimizer": "sgd"}, {"global_clipnorm": 1e-3}),
    "clipvalue": ({"optimizer": "sgd"}, {"clipvalue": 1e-3}),
    "sam_rho": ({}, {"sam_rho": 0.5}),
    "mixup": ({}, {"mixup": 1.0}),
    "cutmix": ({}, {"cutmix": 1.0}),
    "ema_momentum": ({}, {"ema_momentum": 0.5}),
    "random_erasing": ({}, {"random_erasing": 0.9}),
    "frozen_layers": ({}, {"frozen_layers": 1}),
    "learning_rate": ({}, {"learning_rate": 0.5}),
    "lr_scaling": ({}, {"lr_scaling": "linear", "reference_batch_size": 4}),
    "reference_batch_size": (
        {"lr_scaling": "linear", "reference_batch_size": 4},
        {"reference_batch_size": 8},
    ),
    "warmup_epochs": ({}, {"warmup_epochs": 1}),
    "warmup_steps": ({}, {"warmup_steps": 2}),
    "lr_schedule": ({}, {"lr_schedule": "cosine"}),
    "lr_final": ({"lr_schedule": "cosine"}, {"lr_final": 0.5}),
    "optimizer": ({}, {"optimizer": "sgd"}),
    "weight_decay": ({}, {"weight_decay": 0.5}),
    "beta_1": ({}, {"beta_1": 0.1}),
    "amsgrad": ({}, {"amsgrad": True, "beta_2": 0.1}),
    "layer_decay": ({}, {"layer_decay": 0.1}),
    "layer_rates.hidden": ({}, {"layer_rates.hidden": 0.1}),
    "label_smoothing": ({}, {"label_smoothing": 0.5}),
    "class_weights": ({}, {"class_weights": "balanced"}),
    "frozen_epochs": ({"frozen_layers": 1}, {"frozen_epochs": 1}),
    "fine_tune_learning_rate": (
        {"frozen_layers": 1, "frozen_epochs": 1},
        {"fine_tune_learning_rate": 0.5},
    ),
    "dropout": ({}, {"dropout": 0.5}),
    "gradient_checkpointing": ({}, {"gradient_checkpointing": True}),
    "cache_features": ({"cache_features": True}, {"cache_features": False}),
    "shuffle_buffer": ({"shuffle_buffer": 10_000}, {"shuffle_buffer": 4}),
}
