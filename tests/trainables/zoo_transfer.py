"""The zoo: optimizers by name, layers with rates and optimizers of their own, phases."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers
from zoo import Animal, entry

from trainables.keras_trainable import Group, KerasTrainable, Phase

OWN = "layers or phases with rates of their own: test_groups.py, test_phases.py"
BY_NAME = "test_optimizer_table.py compares it"


class Based(Animal):
    """A base with normalisation, noise and a nested block below a head."""

    def model(self, hp: Any) -> keras.Model:
        block = keras.Sequential(
            [layers.Dense(5, activation="tanh", name="inner"), layers.Dropout(0.2)], name="block"
        )
        base = keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(8, name="stem"),
                layers.BatchNormalization(name="norm"),
                block,
            ],
            name="base",
        )
        inputs = keras.Input((6,))
        return keras.Model(inputs, layers.Dense(3, name="head")(base(inputs)))


PHASED = {
    "frozen_layers": ["base/stem", "base/norm"],
    "frozen_epochs": 2,
    "fine_tune_learning_rate": 0.01,
}


@entry(fast=True, fit=OWN, params=PHASED)
class Phased(Based):
    pass


@entry(fit=OWN, params={**PHASED, "frozen_epochs": 1, "ema_momentum": 0.8, "lr_schedule": "cosine"})
class PhasedWithAverages(Based):
    pass


@entry(fit=OWN, params={**PHASED, "frozen_epochs": 1, "swa_from": 2})
class PhasedWithMeans(Based):
    pass


@entry(fit=OWN)
class PhasedByAuthor(Based):
    """A norm that is frozen throughout, another optimizer's numbers, hooks that count."""

    def phases(self, hp: Any) -> list[Phase]:
        return [
            Phase(1, {"frozen_layers": "base", "learning_rate": 0.1, "batch_size": 20}),
            Phase(1, {"frozen_layers": "base/norm", "sam_rho": 0.02}),
            Phase(None, {"frozen_layers": "base/norm", "layer_decay": 0.5}),
        ]

    def model(self, hp: Any) -> keras.Model:
        self.counted = keras.Variable(0.0, trainable=False, name="counted")
        return super().model(hp)

    def on_epoch_end(self, epoch: int, logs: Any, model: Any, hp: Any) -> None:
        self.counted.assign_add(float(epoch))
        logs["counted"] = float(self.counted.numpy())
        self.memory["epochs"] = [*self.memory.get("epochs", []), epoch]


@entry(
    fast=True, fit=OWN, params={"layer_decay": 0.8, "layer_rates.head": 2.0, "global_clipnorm": 0.5}
)
class Layered(Based):
    def groups(self, hp: Any, model: keras.Model) -> Any:
        rate = hp.live("inner", 0.5)
        adam = keras.optimizers.Adam(0.01)
        return [Group("base/block", adam, rate=rate, weight_decay=0.1), *super().groups(hp, model)]


@entry(rated=False)
class SeveralOfKeras(Animal):
    def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
        found = keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.1, momentum=0.9))
        found[".*bias"] = keras.optimizers.RMSprop(keras.optimizers.schedules.CosineDecay(0.01, 12))
        return keras.optimizers.MultiOptimizer(found)


class ByName(Animal):
    optimizer = KerasTrainable.optimizer


@entry(fit=BY_NAME, params={"optimizer": "nadam", "beta_1": 0.8, "weight_decay": 0.1})
class Nadam(ByName):
    """Keeps a variable that is none of its own."""


@entry(fit=BY_NAME, params={"optimizer": "muon", "weight_decay": 0.1}, tolerance=1e-5)
class Muon(ByName):
    pass


@entry(fit=BY_NAME, params={"optimizer": "adafactor", "relative_step": False})
class Adafactor(ByName):
    pass
