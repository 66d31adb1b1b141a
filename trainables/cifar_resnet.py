"""ResNet-20 and ResNet-50 for CIFAR-10."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables.keras_trainable import KerasTrainable
from trainables.numbers.draws import Draws
from trainables.recipe import augmentation

PADDING = {"none": 0.0, "low": 2.0, "medium": 4.0, "high": 6.0}
# of the training images, per channel
MEAN, STDDEV = (
    (0.4914, 0.4822, 0.4465),
    (0.2470, 0.2435, 0.2616),
)


class CifarResNet(KerasTrainable):
    """A ResNet for CIFAR-10, which `keras.datasets` downloads once and caches.

    Besides the standard hyperparameters it reads ``depth`` (20 or 50), ``augmentation`` (none, low, medium or high:
    flips, and crops by up to 2, 4 or 6 pixels) and ``dropout``.
    """

    def data(self, hp: Hyperparameters) -> tuple[Any, Any]:
        """Return 50,000 training images and, for validation, the 10,000 test images as uint8, with int32 labels.

        The first call on a machine downloads them.
        """
        (x_train, y_train), (x_test, y_test) = keras.datasets.cifar10.load_data()
        return (x_train, y_train.ravel().astype(np.int32)), (
            x_test,
            y_test.ravel().astype(np.int32),
        )

    def model(self, hp: Hyperparameters) -> keras.Model:
        """Return a residual network that standardises its inputs and outputs float32 logits.

        It has ``depth`` layers, 20 by default. Raises ValueError if ``depth`` is neither 20 nor 50.
        """
        inputs = keras.Input((32, 32, 3), dtype="uint8")
        # (x / 255 - mean) / stddev for each channel
        x = keras.layers.Rescaling(
            [1 / (255 * s) for s in STDDEV], [-m / s for m, s in zip(MEAN, STDDEV, strict=True)]
        )(keras.ops.cast(inputs, "float32"))
        depth = hp.integer("depth", 20)
        if depth == 20:
            x = resnet20(x)
        elif depth == 50:
            x = resnet50(x)
        else:
            raise ValueError(f"depth is {depth}, expected 20 or 50")
        x = keras.layers.GlobalAveragePooling2D()(x)
        x = keras.layers.Dropout(self.dropout(hp))(x)
        return keras.Model(
            inputs, keras.layers.Dense(10, dtype="float32")(x), name=f"resnet{depth}"
        )

    def augment(self, x: Any, hp: Hyperparameters, draws: Draws) -> Any:
        """Flip about half of the images left to right, chosen at random, and shift all at random by a few pixels.

        They are shifted by at most 2, 4 or 6 pixels if ``augmentation`` is "low", "medium" or "high". They are
        unchanged if it is "none" or missing.
        """
        if "augmentation" not in hp:
            return x
        padding = tf.convert_to_tensor(hp.live("augmentation", meaning=PADDING))
        changed = augmentation.crop(augmentation.flip(x, draws), draws, padding)
        # Trials with any value share this graph; with "none", images must not be flipped either.
        return tf.where(padding > 0, changed, x)


class NoiseResNet(CifarResNet):
    """The same on noise of CIFAR-10's shape, to measure speed without a download.

    Also reads ``examples``, the number of training images.
    """

    def data(self, hp: Hyperparameters) -> tuple[Any, Any]:
        """Return ``examples`` (50,000) random images with random labels, and a fifth as many for validation.

        The images are uint8, the labels int32 from 0 to 9. They are the same at each call.
        """
        examples = hp.integer("examples", 50_000)
        random = np.random.default_rng(0)

        def draw(count: int) -> tuple[Any, Any]:
            images = random.integers(0, 256, (count, 32, 32, 3), np.uint8)
            labels = random.integers(0, 10, count, np.int32)
            return images, labels

        return draw(examples), draw(examples // 5)


def resnet20(x: Any) -> Any:
    """Apply a 3 x 3 convolution and three stages of three basic blocks, of 16 to 64 filters; return the feature maps.

    Source: He et al., Deep Residual Learning, section 4.2.
    """
    x = _convolution(x, 16, 3, 1)
    for stage, filters in enumerate((16, 32, 64)):
        for block in range(3):
            # each stage after the first one halves the images
            stride = 2 if stage and not block else 1
            y = _convolution(x, filters, 3, stride)
            y = _convolution(y, filters, 3, 1, activation=None)
            x = _add(x, y, filters, stride)
    return x


def resnet50(x: Any) -> Any:
    """Apply stages of 3, 4, 6 and 3 bottleneck blocks after a 3 x 3 stem for small images; return the feature maps.

    Source: He et al., Deep Residual Learning, table 1.
    """
    x = _convolution(x, 64, 3, 1)
    for stage, (blocks, filters) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            # each stage after the first one halves the images
            stride = 2 if stage and not block else 1
            y = _convolution(x, filters, 1, 1)
            y = _convolution(y, filters, 3, stride)
            y = _convolution(y, 4 * filters, 1, 1, activation=None)
            x = _add(x, y, 4 * filters, stride)
    return x


def _convolution(
    x: Any, filters: int, size: int, stride: int, activation: str | None = "relu"
) -> Any:
    """Apply a convolution without bias, batch normalisation and an activation (none if ``activation`` is None).

    The kernel has ``size`` x ``size`` pixels. With a ``stride`` of 2, the images are halved, and rounded up.
    """
    x = keras.layers.Conv2D(
        filters,
        size,
        strides=stride,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
    )(x)
    x = keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)
    if activation:
        return keras.layers.Activation(activation)(x)
    return x


def _add(x: Any, y: Any, filters: int, stride: int) -> Any:
    """Add the output ``y`` of a block to its input ``x`` and apply ReLU.

    ``filters`` is the number of channels of ``y``, and ``stride`` the stride of the block. If these change the shape, a
    1 x 1 convolution without activation gives ``x`` the same shape first.
    """
    if stride != 1 or x.shape[-1] != filters:
        x = _convolution(x, filters, 1, stride, activation=None)
    return keras.layers.Activation("relu")(keras.layers.Add()([x, y]))
