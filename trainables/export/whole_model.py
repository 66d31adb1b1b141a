"""A trained model as a whole, of raw inputs, where a trial was trained on what `features` gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tensorflow as tf

from trainables.data import checks, joining, node_cache, text
from trainables.export.plain_model import Plain
from trainables.loop.trial import Trial
from trainables.recipe import features
from trainables.recipe.author import Author


def of_raw_inputs(author: Author, trial: Trial, plain: Plain) -> Plain:
    """The author's frozen model in front of the one that was trained behind it.

    ``author`` must be as `data` has left it: `data` is called once more, for the inputs that are compared.
    """
    if not features.are_cached(author, trial.hp):
        return plain
    front = features.in_front(author, trial.hp)
    if front is None:
        return plain
    inputs = _inputs(author, trial)
    example = tf.nest.map_structure(lambda leaf: leaf[:1], inputs)
    model = features.chained(front, plain.model, example)
    return replace(plain, model=model, example=example, raw_inputs=inputs)


def _inputs(author: Author, trial: Trial) -> Any:
    """Those of the split that exports are compared on, as `data` gives them."""
    train, validation, *_ = author.data(trial.hp)
    if trial.assignment.fold is not None or trial.assignment.training.get("all_data", False):
        data = joining.joined(train, validation) if validation is not None else train
    else:
        data = train if validation is None else validation
    return tf.nest.map_structure(text.as_tensor, checks.arrays_of(node_cache.written(data))[0])
