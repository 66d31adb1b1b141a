"""How much a sweep may train, in a line."""

from __future__ import annotations

from statistics import fmean

import pytest

from sweep.spec import parse_spec
from sweep.spec.work import describe_work, draw_lengths, find_max_length

FILE = """
name: some
trainable: trainables.digits_cnn:DigitsCNN
metric: {name: val_loss, goal: minimize}
parameters: {learning_rate: VALUES}
"""


@pytest.mark.parametrize(
    ("keys", "work"),
    [
        ("method: grid\nepochs: 10", "grid, 3 trials of at most 10 epochs, 30 together"),
        ("method: grid\nepochs: 1", "grid, 3 trials of at most 1 epoch, 3 together"),
        (
            "method: grid\nepochs: 2\nrepeats: 5",
            "grid, 15 trials of at most 2 epochs, 30 together",
        ),
        (
            "method: random\nepochs: 2\nbudget: {hours: 8, epochs: 100}",
            "random, trials of at most 2 epochs; it ends after 8 h or 100 epochs",
        ),
        (
            "method: random\nepochs: 2\nrun_cap: 4\nresources: {gpus: 1, price_per_gpu_hour: 2}\n"
            "budget: {gpu_hours: 1.5, money: 20}",
            "random, 4 trials of at most 2 epochs, 8 together; it ends after 1.5 GPU hours or a cost of 20",
        ),
        ("method: grid\nEPOCHS {values: [5, 50]}", "grid, 6 trials of at most 50 epochs"),
        (
            "method: random\nrun_cap: 4\nepochs: 7\nEPOCHS {distribution: int_uniform, min: 2, max: 9000}",
            "random, 4 trials of at most 9,000 epochs",
        ),
        (
            "method: grid\nepochs: 7\nEPOCHS {values: [2, 3], when: {learning_rate: 0.1}}",
            "grid, 4 trials of at most 7 epochs",
        ),
        (
            "method: pbt\nepochs: 8\npopulation: {size: 4, interval: 2}",
            "pbt, 7 trials of at most 8 epochs, 32 together",
        ),
        (
            "method: grid\nbaseline: {learning_rate: 1, epochs: 80}\nEPOCHS {values: [5, 50]}",
            "grid, 7 trials of at most 80 epochs",
        ),
    ],
)
def test_the_work_of_a_sweep_in_a_line(keys: str, work: str) -> None:
    values = "{values: [0.1, 0.01, 0.001]}" if "grid" in keys else "{min: 0.001, max: 0.1}"
    file = FILE.replace("VALUES", values)
    keys, _, of_epochs = keys.partition("\nEPOCHS")
    if of_epochs:
        file = file.rstrip().removesuffix("}") + f", epochs: {of_epochs}}}\n"
    assert describe_work(parse_spec(file + keys, "some.yaml")) == work


@pytest.mark.parametrize(
    ("keys", "longest", "least", "most"),
    [
        ("epochs: 7", 7, 7, 7),
        ("minutes: 3", 100, 100, 100),
        ("\nEPOCHS {value: 27}", 27, 27, 27),
        ("\nEPOCHS {values: [10, 50]}", 50, 25, 35),
        ("epochs: 90\nEPOCHS {values: [10, 50]}", 50, 25, 35),
        # trials to which it does not apply train the sweep's epochs
        ("epochs: 90\nEPOCHS {value: 30, when: {kind: a}}", 90, 50, 70),
        ("baseline: {learning_rate: 0.1, kind: a, epochs: 80}\nEPOCHS {value: 5}", 5, 5, 5),
    ],
)
def test_the_length_of_the_trials(keys: str, longest: int, least: float, most: float) -> None:
    keys, _, of_epochs = keys.partition("\nEPOCHS")
    epochs = f", epochs: {of_epochs}" if of_epochs else ""
    file = (
        "trainable: a:B\nmethod: random\nrun_cap: 4\nparameters: "
        f"{{learning_rate: {{min: 0.01, max: 0.1}}, kind: {{values: [a, b]}}{epochs}}}\n{keys}"
    )
    spec = parse_spec(file, "some.yaml")
    assert find_max_length(spec) == longest
    assert least <= fmean(draw_lengths(spec)) <= most
