"""What an author calls his own attributes and methods is his: a sweep calls the session, not the author's object."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small import Small, assignment, go_on, metrics, train

from sweep.contract import Stopped
from sweep.functions import make_trainable_factory
from trainables.session import TrialSession

pytestmark = pytest.mark.keras


class Own(Small):
    """Takes the names of the session's methods for its own attributes and methods."""

    def __init__(self) -> None:  # without the call of the class that it derives from
        self.begin = self.restore = "mine"

    def data(self, hp: Any) -> Any:
        self.train, self.test = super().data(hp)
        self.facts, self.join, self.leave = 1, 2, 3
        return self.train, self.test, self.test

    def save(self) -> str:
        return "mine"

    def export(self) -> None:
        raise AssertionError

    def trained_model(self) -> None:
        raise AssertionError

    def on_epoch_end(self, epoch: int, logs: dict[str, float], *_: Any) -> None:
        logs["examples"] = float(len(self.train[0]))
        if epoch == 2:
            self.stop(self.save())


def test_an_author_s_names_harm_nothing(tmp_path: Path) -> None:
    expected = metrics(train(Small(), assignment(epochs=4)))[:2]
    session = make_trainable_factory(Own, "Own")()
    assert isinstance(session, TrialSession)
    session.begin(assignment(epochs=4))
    assert session.facts().train_s == 0.0
    epochs = go_on(session, pause_after=2)
    with pytest.raises(Stopped, match="mine"):
        go_on(session)
    found = metrics(epochs)
    assert [epoch.pop("examples") for epoch in found] == [70.0, 70.0]
    assert found == expected
    session.save(tmp_path)()
    again = make_trainable_factory(Own, "Own")()
    assert isinstance(again, TrialSession)
    again.begin(assignment(epochs=4))
    assert again.restore(tmp_path) == 2
    tested = again.test()
    assert tested is not None
    assert tested["loss"] == pytest.approx(found[-1]["val_loss"])
    assert again.trained_model().count_params() > 0
    assert again.export(tmp_path, ["keras"]).differences["keras"] <= 1e-6


def test_before_a_trial_there_is_none() -> None:
    with pytest.raises(RuntimeError, match="no trial has begun"):
        TrialSession(Small()).facts()


SEEN: list[tuple[str, int]] = []


class Numbered(Small):
    """Knows which trial it is, where the trial's own things are made."""

    where = ""

    def _look(self, where: str) -> None:
        if not self.where or where == self.where:
            SEEN.append((where, self.trial_number))

    def data(self, hp: Any) -> Any:
        if self.where == "data":
            self._look("data")
        return super().data(hp)

    def loss(self, hp: Any, model: Any) -> Any:
        if self.where == "loss":
            self._look("loss")
        return super().loss(hp, model)

    def callbacks(self, hp: Any) -> list[Any]:
        self._look("callbacks")
        return []

    def on_epoch_end(self, epoch: int, logs: Any, model: Any, hp: Any) -> None:
        self._look("on_epoch_end")


def test_a_trial_knows_its_number_where_no_later_trial_would_keep_it() -> None:
    trainable = Numbered()
    for number in (3, 4):
        SEEN.clear()
        train(trainable, replace(assignment(epochs=1), trial=number))
        assert [("callbacks", number), ("on_epoch_end", number)] == SEEN


@pytest.mark.parametrize("where", ["data", "loss"])
def test_the_number_is_refused_where_it_would_stay_in_what_later_trials_use(where: str) -> None:
    trainable = Numbered()
    trainable.where = where
    with pytest.raises(
        RuntimeError, match=r"trial_number is read where data, a model or a step are made"
    ):
        train(trainable, assignment(epochs=1))
