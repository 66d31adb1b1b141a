"""A linear classifier of scikit-learn that learns epoch by epoch."""

from __future__ import annotations

from typing import Any

from sklearn.datasets import load_wine
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

SPACE = {
    "method": "grid",
    "metric": {"name": "val_accuracy", "goal": "maximize"},
    "parameters": {"alpha": {"values": [1e-4, 1e-1]}},
    "epochs": 2,
}


def wine() -> Any:
    x, y = load_wine(return_X_y=True)
    scaler = StandardScaler().fit(x[::2])
    return scaler.transform(x[::2]), y[::2], scaler.transform(x[1::2]), y[1::2]


def train(hp: Any, report: Any) -> None:
    x, y, v, w = wine()
    model = SGDClassifier(alpha=hp.number("alpha"), random_state=report.seed)
    while True:
        model.partial_fit(x, y, classes=range(3))
        if not report(val_accuracy=model.score(v, w)):
            return


def fit(model: Any, seed: int, hp: Any) -> dict[str, list[float]]:
    x, y, v, w = wine()
    model = SGDClassifier(alpha=hp.number("alpha"), random_state=seed)
    scores = [model.partial_fit(x, y, classes=range(3)).score(v, w) for _ in range(2)]
    return {"val_accuracy": scores}


TRAINABLE = train
