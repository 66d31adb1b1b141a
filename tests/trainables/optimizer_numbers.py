"""Numbers for every optimizer of Keras."""

from __future__ import annotations

from typing import Any

NUMBERS: dict[str, dict[str, Any]] = {
    "adadelta": {"rho": 0.8, "epsilon": 1e-4},
    "adafactor": {
        "beta_2_decay": -0.6,
        "epsilon_1": 1e-12,
        "epsilon_2": 1e-2,
        "clip_threshold": 0.7,
    },
    "adagrad": {"epsilon": 1e-3, "initial_accumulator_value": 0.3},
    "adam": {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-4, "amsgrad": True},
    "adamax": {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-4},
    "adamw": {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-4, "amsgrad": True},
    "ftrl": {
        "learning_rate_power": -0.6,
        "initial_accumulator_value": 0.2,
        "l1_regularization_strength": 1e-3,
        "l2_regularization_strength": 1e-2,
        "l2_shrinkage_regularization_strength": 1e-2,
        "beta": 0.1,
    },
    "lamb": {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-4},
    "lion": {"beta_1": 0.8, "beta_2": 0.95},
    "muon": {
        "adam_beta_1": 0.8,
        "adam_beta_2": 0.95,
        "adam_weight_decay": 0.1,
        "epsilon": 1e-4,
        "exclude_layers": ["head"],
        "exclude_embeddings": False,
        "muon_a": 3.3,
        "muon_b": -4.5,
        "muon_c": 2.0,
        "adam_lr_ratio": 0.5,
        "momentum": 0.8,
        "ns_steps": 3,
        "nesterov": False,
        "rms_rate": 0.3,
    },
    "nadam": {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-4},
    "rmsprop": {"rho": 0.8, "momentum": 0.7, "epsilon": 1e-4, "centered": True},
    "schedule_free_adamw": {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-4},
    "sgd": {"momentum": 0.8, "nesterov": True},
}
"""Of each optimizer all arguments, none of them Keras's default."""
OFF = {"relative_step": False}
