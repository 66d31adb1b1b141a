"""Whether a search was worth it, in words."""

from __future__ import annotations

import math

from sweep.analysis.ranking import compute_sampling_error
from sweep.analysis.search_efficiency import (
    BestByBudget,
    Control,
    Correlation,
    RungPrediction,
    SearchEfficiency,
)
from sweep.render.tables import efficiency_lines, held_out_lines

NAN = math.nan
FOUND = BestByBudget(
    "epochs", (10.0, 20.0, 40.0), (NAN, 0.5, 0.9), (0.4, 0.6, 0.9), (0.1, 0.5, 0.9), (0.9, 0.9, 0.9)
)


def worth(control: Control | None, *rungs: RungPrediction) -> SearchEfficiency:
    return SearchEfficiency("one", "acc", "maximize", (FOUND,), control, rungs)


def test_a_sweep_in_three_lines() -> None:
    agrees = Correlation(12, 0.37, 0.1, 0.6)
    told = efficiency_lines(
        [
            worth(
                Control(2, 0.8, 0.1, 9, 40),
                RungPrediction(1, agrees, 3, 21),
                RungPrediction(2, Correlation(3, 1.0, None, None), 11, 12),
            )
        ]
    )
    assert list(told) == [
        "one: 20 of 40 epochs found acc 0.5000, 0.6000 in random order (0.5000 .. 0.9000); all of them 0.9000",
        "one: the leader after epoch 1 ended as rank 2, 0.1 behind; training only it takes 9 of 40 epochs",
        "one: the best was 3rd of 21 after epoch 1 (rank correlation with the end 0.37), 11th of 12 after epoch 2",
    ]


def test_what_is_not_known_is_not_told() -> None:
    short = SearchEfficiency(
        "two",
        "acc",
        "maximize",
        (BestByBudget("hours", (1.0,), (0.5,), (0.5,), (0.5,), (0.5,)),),
        None,
        (),
    )
    assert list(efficiency_lines([short])) == []
    assert "same score" in list(efficiency_lines([worth(Control(2, 0.9, 0.0, 9, 40))]))[1]
    assert "as the best" in list(efficiency_lines([worth(Control(1, 0.9, 0.0, 9, 40))]))[1]
    assert list(held_out_lines(None)) == []
    assert (
        "0.9000 on these 1000 examples, by which the best was chosen, is 0.8798 .. 0.9171 on others"
        in next(held_out_lines(compute_sampling_error("acc", 0.9, 1000)))
    )
