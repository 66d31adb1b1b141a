"""Random trials for `fuzz.py`, each of which depends only on its number."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

RATES = {
    "adadelta": 0.5,
    "adafactor": 0.01,
    "adagrad": 0.02,
    "adam": 0.003,
    "adamax": 0.003,
    "adamw": 0.003,
    "ftrl": 0.02,
    "lamb": 0.003,
    "lion": 0.0005,
    "muon": 0.005,
    "nadam": 0.003,
    "rmsprop": 0.002,
    "schedule_free_adamw": 0.003,
    "sgd": 0.03,
}
"""Every optimizer, with a learning rate at which a few updates stay small."""
SCHEDULES = (
    "linear",
    "polynomial",
    "exponential",
    "cosine",
    "cosine_restarts",
    "one_cycle",
    "step",
    "plateau",
)
BODIES = (
    *(
        "dense",
        "bn",
        "dropout",
        "norm",
        "gaussian",
        "spectral",
        "l2",
        "activity",
        "counter",
        "moving",
        "batch_mean",
    ),
    *("noise", "same_noise", "add_loss", "training_loss", "sum_loss"),
)
CARRIERS = (
    *(
        "number",
        "list",
        "table",
        "set",
        "deque",
        "nested",
        "array",
        "class attribute",
        "class list",
        "closure",
    ),
    *("default", "cache", "optimizer", "metric", "variable", "numpy"),
)
"""The places of `fuzz_kept.py` in which authors keep state between trials; `MOMENTS` are the times of its changes."""
MOMENTS = ("data", "model", "callbacks", "schedule", "on_epoch_begin", "on_epoch_end")
KEEPS = 0.5
"""The share of trials that keep state."""
HALF = {"mixed_bfloat16": 2.0**-8, "mixed_float16": 2.0**-11}


@dataclass(frozen=True)
class Recipe:
    """A trial, and another way to train it that must give the same result."""

    number: int
    author: str
    params: dict[str, Any]
    precision: str
    epochs: int
    micro: int
    replicas: int
    jit: bool
    resumed: bool
    twin: dict[str, Any] | None
    """Parameters of an earlier trial of the worker; None for a fresh worker."""

    @property
    def exact(self) -> bool:
        """True if the other way gives the same bits, as an earlier trial or an interruption changes nothing."""
        return self.micro == 1 and self.replicas <= 1 and not self.jit

    @property
    def tolerance(self) -> float:
        """The tolerance relative to an array's scale, for a dozen updates in float32, or two roundings to half."""
        return 2e-6 if self.precision == "float32" else 2 * HALF[self.precision]

    @property
    def nudge(self) -> float:
        """A relative change of the inputs by about one rounding."""
        return 2.0**-22 if self.precision == "float32" else HALF[self.precision]

    def said(self) -> str:
        """Return the recipe in words, without ways that are the default."""
        ways = {
            "micro": self.micro > 1,
            "replicas": self.replicas,
            "jit": self.jit,
            "resumed": self.resumed,
        }
        other = [f"{name}={getattr(self, name)}" for name, there in ways.items() if there]
        worker = f" after {self.twin}" if self.twin is not None else ""
        return f"{self.author} {self.precision} epochs={self.epochs} {self.params} [{' '.join(other)}]{worker}"


def draw(number: int) -> Recipe:
    """Return the trial of this number."""
    rng = random.Random(number)
    author = rng.choices(
        ("compiled", "augmented", "stepped", "turns", "at_once", "of_the_model"), (8, 1, 3, 1, 1, 1)
    )[0]
    params = _data(rng) | _numbers(rng)
    if rng.random() < 0.7:
        params |= _draw_rare_parameters(rng, params)
    precision = rng.choices(("float32", *HALF), (8, 1, 1))[0]
    if author == "of_the_model" and "activity" in params["layers"]:
        # Keras 3.15 cannot add a loss of a layer in half precision to one in float32
        precision = "float32"
    twin = None
    kind = rng.choices(("worker", "parts", "all"), (4, 4, 2))[0]
    if kind != "parts":
        twin = _twin(rng, params) if rng.random() < 0.75 else None
    resumed = kind != "parts" and (twin is None or rng.random() < 0.4)
    several = kind != "worker"
    made = Recipe(
        number,
        author,
        params,
        precision,
        epochs=rng.choice((2, 3)),
        micro=rng.choice((1, 1, 2, 3, 4)) if several else 1,
        replicas=rng.choice((0, 1, 2, 2, 3, 4, 5, 6, 7, 8)) if several else 0,
        jit=rng.random() < 0.08,
        resumed=resumed,
        twin=twin,
    )
    return _keeping(rng, made) if rng.random() < KEEPS else made


def _keeping(rng: random.Random, recipe: Recipe) -> Recipe:
    """Return the same trial with state that its author keeps between trials, also in the earlier trial."""

    def some() -> dict[str, str]:
        chosen = [f"{rng.choice(MOMENTS)}:{rng.choice(CARRIERS)}" for _ in range(rng.randint(1, 4))]
        return {"keeps": "+".join(chosen)}

    twin = None if recipe.twin is None else recipe.twin | some()
    return replace(recipe, params=recipe.params | some(), twin=twin)


def _data(rng: random.Random) -> dict[str, Any]:
    batch = rng.choice((1, 2, 3, 5, 8, 13, 16, 20, 32, 50, 64, 77, 100))
    found: dict[str, Any] = {
        "batch_size": batch,
        "examples": min(batch * rng.randint(1, 4) + rng.randint(0, batch - 1), 230)
        + 3 * (batch == 1),
        "inputs": rng.choices(("points", "series"), (5, 1))[0],
        "target": rng.choices(("labels", "shares", "numbers"), (3, 1, 1))[0],
        "weights": rng.choices(("none", "ones", "random", "some"), (5, 1, 2, 1))[0],
        "layers": "+".join(rng.choice(BODIES) for _ in range(rng.randint(1, 3))),
        "seed": rng.randint(0, 9),
    }
    for name, value, chance in (
        ("split", "drawn", 0.12),
        ("shuffle", False, 0.1),
        ("steps_per_epoch", rng.randint(2, 5), 0.08),
        ("validated", False, 0.06),
        ("validation_batch_size", rng.choice((7, 20)), 0.1),
    ):
        if rng.random() < chance:
            found[name] = value
    if found["target"] == "numbers" and rng.random() < 0.15:
        found["reduction"] = "sum"
    return found


def _numbers(rng: random.Random) -> dict[str, Any]:
    """Return parameters of the optimizer, the schedule and clipping."""
    optimizer = rng.choice(tuple(RATES))
    found: dict[str, Any] = {
        "optimizer": optimizer,
        "learning_rate": RATES[optimizer] * rng.choice((0.3, 1.0, 2.0)),
    }
    if optimizer in ("sgd", "rmsprop") and rng.random() < 0.5:
        found["momentum"] = rng.choice((0.0, 0.9))
    if rng.random() < 0.3:
        found["weight_decay"] = rng.choice((0.0, 0.01, 0.3))
    if rng.random() < 0.35:
        kind = rng.choice(("clipnorm", "global_clipnorm", "clipvalue"))
        found[kind] = rng.choice((0.0, 1e-6, 0.001, 0.01, 0.1, 0.1, 1.0, 1e6))
    if rng.random() < 0.2:
        found["lr_schedule"] = rng.choice(SCHEDULES)
    if rng.random() < 0.15:
        found["warmup_steps"] = rng.choice((0, 1, 3))
    return found


def _draw_rare_parameters(rng: random.Random, params: dict[str, Any]) -> dict[str, Any]:
    """Draw values for rarely used parameters; each is included with a small probability.

    Parameters that exclude each other or do not suit the target are dropped.
    """
    found: dict[str, Any] = {}
    for name, values, chance in (
        ("sam_rho", (0.0, 0.02, 0.1), 0.12),
        ("ema_momentum", (0.0, 0.5, 0.9), 0.12),
        ("swa_from", (1, 2), 0.1),
        ("mixup", (0.0, 0.2, 1.0), 0.12),
        ("label_smoothing", (0.0, 0.1), 0.15),
        ("class_weights", ("balanced",), 0.12),
        ("layer_decay", (0.5, 1.0), 0.08),
        ("frozen_layers", (0, 1), 0.08),
        ("gradient_checkpointing", (True, False), 0.06),
    ):
        if rng.random() < chance:
            found[name] = rng.choice(values)
    if "ema_momentum" in found:
        found.pop("swa_from", None)
    if params["target"] != "labels":
        found.pop("label_smoothing", None)
    if params["target"] == "numbers":
        found.pop("class_weights", None)
    return found


def _twin(rng: random.Random, params: dict[str, Any]) -> dict[str, Any]:
    """Return another trial for the same worker, mostly of the same structure, because these share state."""
    found = {
        **params,
        "seed": params["seed"] + rng.randint(0, 1),
        "learning_rate": params["learning_rate"] * 3.0,
    }
    changes: dict[str, Any] = {
        "batch_size": max(1, params["batch_size"] // 2),
        "weights": rng.choice(("none", "random")),
        "validated": False,
        "target": rng.choice(("labels", "shares")),
        "examples": params["examples"] + 5,
        "learning_rate": 1e30,
        "label_smoothing": 0.2,
        "weight_decay": 0.1,
        "split": "drawn",
    }
    if not {"global_clipnorm", "clipvalue"} & set(params):
        changes["clipnorm"] = 0.05
    return found | {name: changes[name] for name in rng.sample(sorted(changes), rng.randint(0, 3))}
