"""As `rank_faults.Toy`, a net whose ranks wait for one another in each update."""

import os
import time

import keras
import numpy as np
from rank_faults import is_first, misbehave

from trainables.keras_trainable import KerasTrainable
from trainables.session import TrialSession


class Late(TrialSession):
    def join(self, devices, training):
        if os.environ.get("NEVER_COMES") == str(devices.ranks.rank) and is_first("coming"):
            time.sleep(3600)
        super().join(devices, training)


class Net(KerasTrainable):
    __trainable__ = Late

    def data(self, hp):
        random = np.random.default_rng(0)
        x = random.normal(size=(640, 6)).astype(np.float32)
        y = x[:, :3].argmax(axis=1).astype(np.int32)
        return (x[:600], y[:600]), (x[600:], y[600:])

    def model(self, hp):
        return keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)]
        )

    def on_epoch_end(self, epoch, logs, model, hp):
        if epoch == 2:
            ranks = self._session.trial.assignment.devices.ranks
            misbehave(hp["fault"], ranks.rank if ranks else 0)
