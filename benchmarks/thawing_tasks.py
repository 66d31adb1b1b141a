"""Five small trainings of different kinds in NumPy and scikit-learn, whose curves `thawing.py` records.

An epoch takes some milliseconds. Except for cosine schedules, nothing in them depends on the number of epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
    make_friedman1,
)
from sklearn.ensemble import GradientBoostingRegressor

Numbers = NDArray[np.float64]
Labels = NDArray[np.int64]
Train = Callable[[Any, Any], None]

EPOCHS = 81


class _Network:
    """A network of two layers, with ReLU and dropout between them, trained on cross-entropy by momentum or Adam."""

    def __init__(self, sizes: tuple[int, int, int], hp: Any, seed: int) -> None:
        inputs, hidden, outputs = sizes
        self.hp, self.rng = hp, np.random.default_rng(seed)
        self.weights = [
            self.rng.normal(size=(inputs, hidden)) * math.sqrt(2 / inputs),
            np.zeros(hidden),
            self.rng.normal(size=(hidden, outputs)) * math.sqrt(1 / hidden),
            np.zeros(outputs),
        ]
        self.first = [np.zeros_like(one) for one in self.weights]
        self.second = [np.zeros_like(one) for one in self.weights]
        self.updates = 0

    def epoch(self, x: Numbers, y: Labels, rate: float) -> None:
        order, batch = self.rng.permutation(len(x)), int(self.hp["batch_size"])
        for start in range(0, len(x), batch):
            rows = order[start : start + batch]
            self._update(x[rows], y[rows], rate)

    def _update(self, x: Numbers, y: Labels, rate: float) -> None:
        w1, b1, w2, b2 = self.weights
        keep = 1 - self.hp["dropout"]
        mask = (self.rng.random((len(x), len(b1))) < keep) / keep
        hidden = np.maximum(x @ w1 + b1, 0) * mask
        error = _softmax(hidden @ w2 + b2)
        error[np.arange(len(y)), y] -= 1
        error /= len(y)
        back = (error @ w2.T) * (hidden > 0) * mask
        gradients = [x.T @ back, back.sum(0), hidden.T @ error, error.sum(0)]
        self.updates += 1
        adam = self.hp["optimizer"] == "adam"
        for place, gradient in enumerate(gradients):
            gradient = gradient + self.hp["weight_decay"] * self.weights[place]
            self.first[place] = 0.9 * self.first[place] + (0.1 if adam else 1.0) * gradient
            step = self.first[place]
            if adam:
                self.second[place] = 0.999 * self.second[place] + 0.001 * gradient**2
                corrected = self.second[place] / (1 - 0.999**self.updates)
                step = step / (1 - 0.9**self.updates) / (np.sqrt(corrected) + 1e-8)
            self.weights[place] = self.weights[place] - rate * step

    def scores(self, x: Numbers, y: Labels) -> tuple[float, float]:
        """Return accuracy and cross-entropy."""
        w1, b1, w2, b2 = self.weights
        chances = _softmax(np.maximum(x @ w1 + b1, 0) @ w2 + b2)
        right = float((chances.argmax(1) == y).mean())
        return right, float(-np.log(np.maximum(chances[np.arange(len(y)), y], 1e-12)).mean())


def _softmax(scores: Numbers) -> Numbers:
    powers: Numbers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _fit(data: tuple[Numbers, Labels, Numbers, Labels], hp: Any, report: Any, metric: str) -> None:
    x, y, held_x, held_y = data
    network = _Network((x.shape[1], int(hp["hidden"]), int(y.max()) + 1), hp, report.seed)
    cosine = hp["lr_schedule"] == "cosine"
    for epoch in range(EPOCHS):
        factor = (1 + math.cos(math.pi * epoch / EPOCHS)) / 2 if cosine else 1.0
        with np.errstate(all="ignore"):
            network.epoch(x, y, hp["learning_rate"] * factor)
            accuracy, loss = network.scores(held_x, held_y)
        if not report(**{metric: accuracy if metric == "val_accuracy" else loss}):
            return


def _digits() -> tuple[Numbers, Labels, Numbers, Labels]:
    x, y = load_digits(return_X_y=True)
    return x[:600] / 16, y[:600], x[1000:] / 16, y[1000:]


def _noisy() -> tuple[Numbers, Labels, Numbers, Labels]:
    """Return a small classification data set for training and validation, with a tenth of the labels drawn at random.

    A long training memorizes the wrong labels, so its validation loss rises again.
    """
    x, y = make_classification(
        2400, 40, n_informative=8, n_classes=4, flip_y=0.1, class_sep=1.4, random_state=0
    )
    return x[:800], y[:800], x[1200:], y[1200:]


def _letters() -> tuple[Numbers, Labels, Numbers, Labels]:
    """Return characters of scikit-learn's dataset descriptions, four as inputs and the next one as target."""
    loaders = (load_digits, load_wine, load_breast_cancer, load_iris, load_diabetes)
    text = " ".join(" ".join(loader().DESCR.lower().split()) for loader in loaders)
    known = sorted({letter for letter in text if text.count(letter) > 40})
    codes = np.array([known.index(letter) for letter in text if letter in known])
    windows = np.stack([codes[place : place + 5] for place in range(len(codes) - 5)])
    chosen = windows[np.random.default_rng(0).permutation(len(windows))]
    x = np.eye(len(known))[chosen[:, :4]].reshape(len(chosen), -1)
    return x[:4000], chosen[:4000, 4], x[-2000:], chosen[-2000:, 4]


DIGITS, NOISY, LETTERS = _digits(), _noisy(), _letters()


def digits(hp: Any, report: Any) -> None:
    """Classify digits; report the accuracy."""
    _fit(DIGITS, hp, report, "val_accuracy")


def noisy(hp: Any, report: Any) -> None:
    """Classify four classes with partly wrong labels; report the cross-entropy, which rises with overfitting."""
    _fit(NOISY, hp, report, "val_loss")


def letters(hp: Any, report: Any) -> None:
    """Predict the next character; report the cross-entropy."""
    _fit(LETTERS, hp, report, "val_loss")


X, Y = make_friedman1(1200, noise=1.0, random_state=0)


def boosting(hp: Any, report: Any) -> None:
    """Boost three trees per epoch; report the squared error. Small learning rates begin slowly and end well."""
    model = GradientBoostingRegressor(
        learning_rate=hp["learning_rate"],
        max_depth=int(hp["max_depth"]),
        subsample=hp["subsample"],
        min_samples_leaf=int(hp["min_leaf"]),
        n_estimators=3,
        warm_start=True,
        random_state=report.seed,
    )
    for _ in range(EPOCHS):
        model.fit(X[:400], Y[:400])
        model.n_estimators += 3
        if not report(val_loss=float(((model.predict(X[600:]) - Y[600:]) ** 2).mean())):
            return


def _ratings() -> tuple[NDArray[np.int64], Numbers]:
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(120, 4)), rng.normal(size=(80, 4))
    pairs = np.stack([rng.integers(0, 120, 4000), rng.integers(0, 80, 4000)], axis=1)
    return pairs, (users[pairs[:, 0]] * items[pairs[:, 1]]).sum(1) + 0.7 * rng.normal(size=4000)


PAIRS, RATINGS = _ratings()


def ratings(hp: Any, report: Any) -> None:
    """Factorize a matrix of ratings; report the squared error."""
    rng, rank = np.random.default_rng(report.seed), int(hp["rank"])
    users, items = (hp["spread"] * rng.normal(size=(count, rank)) for count in (120, 80))
    rate, decay = hp["learning_rate"], hp["weight_decay"]
    for epoch in range(EPOCHS):
        with np.errstate(all="ignore"):
            for rows in np.split(rng.permutation(2400), 2400 // int(hp["batch_size"])):
                who, what = PAIRS[rows].T
                wrong = (users[who] * items[what]).sum(1) - RATINGS[rows]
                step_users = wrong[:, None] * items[what] + decay * users[who]
                step_items = wrong[:, None] * users[who] + decay * items[what]
                np.add.at(users, who, -rate * hp["fading"] ** epoch * step_users)
                np.add.at(items, what, -rate * hp["fading"] ** epoch * step_items)
            held = (users[PAIRS[2400:, 0]] * items[PAIRS[2400:, 1]]).sum(1) - RATINGS[2400:]
        if not report(val_loss=float((held**2).mean())):
            return


_NETWORK = {
    "learning_rate": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1.0},
    "weight_decay": {"distribution": "log_uniform_values", "min": 1e-6, "max": 1e-1},
    "dropout": {"min": 0.0, "max": 0.6},
    "hidden": {"values": [16, 32, 64]},
    "batch_size": {"values": [20, 50, 200]},
    "optimizer": {"values": ["sgd", "adam"]},
    "lr_schedule": {"values": ["constant", "cosine"]},
}
TASKS: Mapping[str, tuple[Train, Mapping[str, Any], Mapping[str, Any]]] = {
    "digits": (digits, {"name": "val_accuracy", "goal": "maximize"}, _NETWORK),
    "noisy": (noisy, {"name": "val_loss", "goal": "minimize"}, _NETWORK),
    "letters": (letters, {"name": "val_loss", "goal": "minimize"}, _NETWORK),
    "boosting": (
        boosting,
        {"name": "val_loss", "goal": "minimize"},
        {
            "learning_rate": {"distribution": "log_uniform_values", "min": 5e-3, "max": 1.0},
            "max_depth": {"min": 1, "max": 7},
            "subsample": {"min": 0.3, "max": 1.0},
            "min_leaf": {"distribution": "int_log_uniform_values", "min": 1, "max": 30},
        },
    ),
    "ratings": (
        ratings,
        {"name": "val_loss", "goal": "minimize"},
        {
            "learning_rate": {"distribution": "log_uniform_values", "min": 1e-3, "max": 0.2},
            "weight_decay": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1.0},
            "spread": {"distribution": "log_uniform_values", "min": 1e-2, "max": 1.0},
            "fading": {"min": 0.9, "max": 1.0},
            "rank": {"min": 1, "max": 12},
            "batch_size": {"values": [20, 100, 400]},
        },
    ),
}
