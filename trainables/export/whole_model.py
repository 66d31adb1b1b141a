"""A trained model as a whole, of raw inputs, where a trial was trained on what `features` gives."""

from __future__ import annotations

from dataclasses import replace

import tensorflow as tf

from trainables.export.plain_model import Plain
from trainables.loop.trial import Trial
from trainables.recipe import features
from trainables.recipe.author import Author
from trainables.recipe.author_data import AuthorData


def of_raw_inputs(author: Author, trial: Trial, plain: Plain, data: AuthorData) -> Plain:
    """The author's frozen model in front of the one that was trained behind it.

    ``author`` must be as `data` has left it: `data` runs once more, for the inputs that are compared.
    """
    if not features.are_cached(author, trial.hp):
        return plain
    front = features.in_front(author, trial.hp)
    if front is None:
        return plain
    inputs = data.inputs(author, trial.hp, trial.assignment)
    example = tf.nest.map_structure(lambda leaf: leaf[:1], inputs)
    model = features.chained(front, plain.model, example)
    return replace(plain, model=model, example=example, raw_inputs=inputs)
