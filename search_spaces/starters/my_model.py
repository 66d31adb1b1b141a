"""A model to start from: replace the data and the layers with your own."""

import keras
from sklearn.datasets import load_wine

from trainables.keras_trainable import KerasTrainable


class MyModel(KerasTrainable):
    """Three kinds of wine, told apart by 13 measurements."""

    def data(self, hp):
        """Return training and validation data: arrays, a tf.data.Dataset, or files."""
        x, y = load_wine(return_X_y=True)
        x = ((x - x.mean(0)) / x.std(0)).astype("float32")
        y = y.astype("int32")
        return (x[::2], y[::2]), (x[1::2], y[1::2])

    def model(self, hp):
        """Return a Keras model. Integer targets and a last layer without activation need no loss of your own."""
        return keras.Sequential(
            [
                keras.Input((13,)),
                keras.layers.Dense(hp.integer("units"), activation="relu"),
                keras.layers.Dropout(self.dropout(hp)),  # changes without compiling again
                keras.layers.Dense(3),
            ]
        )
