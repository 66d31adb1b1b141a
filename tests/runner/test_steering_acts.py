"""What a person adds to a sweep and changes in it: what comes of it, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from simulated import trials_of
from test_steered_sweeps import Workers, spec

import sweep
from sweep.contract import Devices
from sweep.errors import InputError, RefusedError, UnknownNameError
from sweep.events import ConfigurationsEnqueued, SweepChanged, TrialStarted, Value
from sweep.runner import additions
from sweep.runner.coordinator import Coordinator, Hooks
from sweep.runner.methods import build_searcher
from sweep.runner.steering import Act, Add, Change, Note, Request, Star
from sweep.schedulers.early_termination import build_scheduler
from sweep.space import Parameter, Space
from sweep.space.domains import Categorical, key
from sweep.spec import Spec, parse_spec
from sweep.store import log as store_log
from sweep.store.log import Log


class Driven:
    """A coordinator with workers, and its log."""

    def __init__(self, path: Path, given: Spec) -> None:
        self.path = path
        self.log = Log(path)
        self.changed: list[Spec] = []
        searcher = build_searcher(
            given.method,
            given.space,
            given.objectives,
            given.seed,
            given.trials_each,
            given.start_with,
        )
        scheduler = build_scheduler(given.early_terminate, given.objectives[0], given.epochs)
        hooks = Hooks(changed=self.changed.append)
        self.driver = Coordinator(given, Devices(), searcher, scheduler, self.log, hooks)
        self.driver.open()
        self.workers = Workers(given, self.driver, path, 1)
        self.count = 0

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            self.workers.step(0)

    def steer(self, act: Act) -> None:
        self.count += 1
        assert self.driver.steer(Request(f"r{self.count}", "ada", act))

    def add(self, **values: object) -> None:
        self.steer(Add.of([values], "add"))  # type: ignore[list-item]  # plain values

    def change(self, *assignments: str) -> None:
        self.steer(Change(assignments))

    def started(self) -> list[TrialStarted]:
        return [event for event in store_log.read(self.path) if isinstance(event, TrialStarted)]

    def tried(self) -> list[tuple[object, object]]:
        return [(event.params["a"], event.params["b"]) for event in self.started()]


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    """A grid of 3 x 3 configurations of 9 epochs, of which the second has begun."""
    made = Driven(tmp_path / "log.jsonl", spec(cap="null"))
    made.train(10)
    yield made
    made.log.close()


def test_an_added_configuration_is_tried_next_and_a_grid_leaves_it_out_later(
    driven: Driven,
) -> None:
    driven.add(a=1.0, b=3)
    driven.add(a=0.3, b=2)
    driven.train(200)
    assert driven.tried()[:5] == [(0.0, 1), (0.0, 2), (1.0, 3), (0.3, 2), (0.0, 3)]
    assert len(driven.tried()) == 10  # 9 of the grid, one of them added, and one beside it
    assert [event.enqueued_by for event in driven.started()][:5] == [None, None, "ada", "ada", None]
    assert driven.driver.left == 0


def test_a_wider_space_adds_what_is_missing_and_a_narrower_one_drops_the_rest(
    driven: Driven,
) -> None:
    assert driven.driver.left == 7
    driven.change("parameters.b.values=[1, 4]")
    driven.train(200)
    assert driven.tried() == [(0.0, 1), (0.0, 2), (0.0, 4), (0.5, 1), (0.5, 4), (1.0, 1), (1.0, 4)]
    assert [event.space_version for event in driven.started()] == [0, 0, 1, 1, 1, 1, 1]
    assert [one.space.parameters[1].domain for one in driven.changed] == [
        driven.driver.spec.space.parameters[1].domain
    ]
    assert driven.driver.left == 0


def test_numbers_of_another_type_are_searched_from_now_on(driven: Driven) -> None:
    driven.change("parameters.b.values=[1.0, 2.0, 3.0]")
    driven.train(200)
    types = [type(event.params["b"]) for event in driven.started()]
    assert types == [int, int, *[float] * 9]


def test_what_was_added_and_is_not_in_the_new_space_is_dropped(driven: Driven) -> None:
    driven.add(a=0.3, b=2)
    driven.add(a=0.3, b=3)
    driven.change("parameters.b.values=[1, 2]")
    (change,) = [event for event in store_log.read(driven.path) if isinstance(event, SweepChanged)]
    assert change.dropped == ({"a": 0.3, "b": 3},)
    driven.train(200)
    assert driven.tried()[2:] == [(0.3, 2), (0.5, 1), (0.5, 2), (1.0, 1), (1.0, 2)]


def test_a_cap_is_raised_and_lowered(tmp_path: Path) -> None:
    driven = Driven(tmp_path / "log.jsonl", spec("random", cap="3"))
    driven.train(10)
    with pytest.raises(
        RefusedError,
        match="is limited to 3 configurations, of which 1 may still be added; raise the",
    ):
        driven.steer(Add.of([{"a": 0.1, "b": 1}, {"a": 0.2, "b": 1}], "f.yaml"))
    driven.change("run_cap=4")
    driven.steer(Add.of([{"a": 0.1, "b": 1}, {"a": 0.2, "b": 1}], "f.yaml"))
    driven.train(200)
    assert driven.tried()[2:] == [(0.1, 1), (0.2, 1)]
    driven.log.close()


@pytest.mark.parametrize(
    ("cap", "more", "settings"),
    [
        ("null", "budget: {trials: 3}\n", "--set budget.trials=4"),
        ("9", "budget: {trials: 3}\n", "--set budget.trials=4"),
        ("3", "budget: {trials: 3}\n", "--set run_cap=4 --set budget.trials=4"),
        ("1", "", "--set run_cap=4"),  # lowered after two had begun
    ],
)
def test_the_limits_that_must_be_raised_to_add_more_are_named(
    tmp_path: Path, cap: str, more: str, settings: str
) -> None:
    driven = Driven(
        tmp_path / "log.jsonl", spec("random", cap="3" if cap == "1" else cap, more=more)
    )
    driven.train(10)
    if cap == "1":
        driven.change("run_cap=1")
    added = Add.of([{"a": 0.1, "b": 1}, {"a": 0.2, "b": 1}], "f.yaml")
    with pytest.raises(RefusedError) as refused:
        driven.steer(added)
    assert str(refused.value).endswith(f" {settings}")
    driven.change(*(one for one in settings.split() if one != "--set"))
    driven.steer(added)
    driven.log.close()


def test_repeats_of_what_was_added_follow_each_other(tmp_path: Path) -> None:
    driven = Driven(tmp_path / "log.jsonl", spec(repeats=2, cap="null"))
    driven.train(5)
    driven.add(a=0.3, b=2)
    driven.change("parameters.b.values=[1, 2]")
    driven.train(60)
    marks = [
        (event.params["a"], event.repeat, event.enqueued_by, event.space_version)
        for event in driven.started()
    ]
    assert marks[:4] == [
        (0.0, 0, None, 0),
        (0.0, 1, None, 0),
        (0.3, 0, "ada", 1),
        (0.3, 1, "ada", 1),
    ]
    driven.log.close()


def test_another_rule_knows_what_was_reported_before(tmp_path: Path) -> None:
    driven = Driven(tmp_path / "log.jsonl", spec(cap="null"))
    driven.train(18)  # two trials, whole
    driven.change("early_terminate={type: median, min_iter: 1, min_trials: 2}")
    driven.train(200)
    ends = {trial.number: trial.status.value for trial in trials_of(driven.path).values()}
    assert (ends[0], ends[1]) == ("completed", "completed")
    assert "pruned" in ends.values()  # by the median of the first two, among others
    driven.log.close()


def test_starting_points_that_are_left_stay_if_they_are_in_the_space(tmp_path: Path) -> None:
    more = "start_with: [{a: 0.1, b: 1}, {a: 0.1, b: 3}, {a: 0.2, b: 1}]\n"
    driven = Driven(tmp_path / "log.jsonl", spec("random", cap="5", more=more))
    driven.train(5)
    driven.change("parameters.b.values=[1, 2]")
    assert driven.driver.spec.start_with == ({"a": 0.1, "b": 1}, {"a": 0.2, "b": 1})
    driven.train(60)
    assert driven.tried()[:2] == [(0.1, 1), (0.2, 1)]
    assert all(b in (1, 2) for _, b in driven.tried())
    driven.log.close()


REFUSED = {
    "epochs=3": (RefusedError, "--set epochs: is 3, but the sweep began with 9"),
    "seed=3": (RefusedError, "--set seed: is 3, but the sweep began with 0"),
    "repeats=0": (InputError, "repeats: number 0, expected a whole number of at least 1"),
    "folds=2": (RefusedError, "--set folds: is 2, but the sweep began with not set"),
    "metric.goal=maximize": (RefusedError, "--set metric.goal: is maximize"),
    "metric.target=0.5": (
        RefusedError,
        "--set metric.target: is read once, when a session begins; first: python -m",
    ),
    "checkpoint.keep=3": (RefusedError, "--set checkpoint.keep: is read once"),
    "parameters.c={min: 0, max: 1}": (
        RefusedError,
        "--set parameters.c: is new, and the trials so far have other",
    ),
    "parameters.b=null": (InputError, "parameters.b"),
    "parameters.b.when={a: {max: 0.5}}": (
        RefusedError,
        "--set parameters.b.when: exists under another condition",
    ),
    "constraints=['score < 1']": (
        RefusedError,
        "--set constraints: constraints on metrics say what",
    ),
    "early_terminate.type=asha_promotion": (
        RefusedError,
        "early_terminate.type: a rule that pauses trials begins",
    ),
    "early_terminate=mine:Rule": (
        RefusedError,
        "early_terminate: a rule of your own begins with its sweep",
    ),
    "parameters.b.values=[]": (InputError, "parameters.b.values"),
    "run_cap=null": (RefusedError, "has these values already, there is nothing to change"),
}


@pytest.mark.parametrize("assignment", REFUSED)
def test_what_would_make_trials_mean_something_else_is_refused(
    driven: Driven, assignment: str
) -> None:
    error, words = REFUSED[assignment]
    before = driven.path.read_bytes()
    with pytest.raises(error, match=words):
        driven.change(assignment)
    assert driven.path.read_bytes() == before


def test_a_parameter_with_one_value_is_searched_from_the_next_session_on(tmp_path: Path) -> None:
    given = parse_spec(
        """
name: one
trainable: none:None
metric: {name: score}
method: grid
parameters: {a: {values: [1, 2]}, b: {value: 1}, c: {value: 1, when: {a: 1}}}
epochs: 9
""",
        "f.yaml",
    )
    driven = Driven(tmp_path / "log.jsonl", given)
    driven.train(1)
    with pytest.raises(
        RefusedError,
        match=r"parameters.c.when.a: exists under another condition than in the trials so far",
    ):
        driven.change("parameters.c.when.a=2")
    with pytest.raises(
        RefusedError,
        match=r"parameters.b: has one value in all trials of the session that is running",
    ):
        driven.change("parameters.b={values: [1, 2]}")
    with pytest.raises(
        RefusedError, match=r"parameters.b.value: has another value than in all trials so far"
    ):
        driven.change("parameters.b.value=2")
    driven.log.close()


ADDED = {
    "a number that is too large": (
        {"a": 2.0, "b": 1},
        "add: a: number 2.0, expected a number from 0 to 1",
    ),
    "no such parameter": ({"a": 0.5, "b": 1, "c": 1}, "add: c: no parameter 'c'"),
    "a parameter is missing": (
        {"a": 0.5},
        "add: lacks b, expected a value for each parameter that varies",
    ),
    "all at once": (
        {"a": 2.0, "c": 1},
        r"(?s)add: a: number 2.0.*add: c: no parameter.*add: lacks b",
    ),
    "begun before": ({"a": 0.0, "b": 2}, "steered: this configuration is that of trial 1 already"),
}


@pytest.mark.parametrize("case", ADDED)
def test_what_cannot_be_added(driven: Driven, case: str) -> None:
    values, words = ADDED[case]
    with pytest.raises(InputError, match=words):
        driven.add(**values)
    assert not [
        event for event in store_log.read(driven.path) if isinstance(event, ConfigurationsEnqueued)
    ]


def test_it_is_added_once(driven: Driven) -> None:
    driven.add(a=0.3, b=2)
    with pytest.raises(RefusedError, match="this configuration was added already, and waits"):
        driven.add(a=0.3, b=2)
    with pytest.raises(InputError, match=r"f.yaml: \[1\]: stands there already"):
        driven.steer(Add.of([{"a": 0.4, "b": 2}, {"a": 0.4, "b": 2}], "f.yaml"))


def test_what_it_may_leave_out(tmp_path: Path) -> None:
    given = parse_spec(
        """
name: left_out
trainable: none:None
metric: {name: score}
method: random
run_cap: 9
parameters:
  a: {min: 0.0, max: 1.0}
  half: "=a / 2"
  fixed: {value: 7}
  kind: {values: [sgd, adam]}
  momentum: {min: 0.0, max: 1.0, when: {kind: sgd}}
constraints: ["a * momentum < 0.5"]
epochs: 9
""".replace('half: "=a / 2"', 'half: {value: "=a / 2"}'),
        "f.yaml",
    )
    driven = Driven(tmp_path / "log.jsonl", given)
    driven.add(a=0.5, kind="adam")
    (event,) = [
        event for event in store_log.read(driven.path) if isinstance(event, ConfigurationsEnqueued)
    ]
    assert event.configurations == ({"a": 0.5, "half": 0.25, "fixed": 7, "kind": "adam"},)
    driven.add(a=0.25, kind="adam", half=0.125, fixed=7.0)  # as a table of trials has them
    for values, words in (
        ({"a": 0.5, "kind": "sgd"}, "lacks momentum"),
        (
            {"a": 0.5, "kind": "adam", "momentum": 0.1},
            "momentum: does not apply with the other values; remove it",
        ),
        (
            {"a": 0.5, "kind": "adam", "half": 0.3},
            "half: is tied to other parameters: a / 2; remove it",
        ),
        ({"a": 0.5, "kind": "adam", "fixed": 8}, "fixed: number 8, expected 7"),
        (
            {"a": 1.0, "kind": "sgd", "momentum": 0.9},
            r"does not meet the constraint 'a \* momentum < 0.5'",
        ),
    ):
        with pytest.raises(InputError, match=words):
            driven.add(**values)
    driven.log.close()


def test_notes_and_stars_are_on_trials_that_have_begun(driven: Driven) -> None:
    driven.steer(Note("good", 1))
    driven.steer(Star(0))
    with pytest.raises(UnknownNameError, match="steered: has no trial 2; it has trials 0 to 1"):
        driven.steer(Star(2))
    trials = trials_of(driven.path)
    assert (trials[1].note, trials[0].starred) == ("good", True)


def test_configurations_of_a_file(tmp_path: Path) -> None:
    nothing_known = Space(())
    path = tmp_path / "more.yaml"
    path.write_text("- {a: 1e-3, b: [1, 2]}\n- {a: 2}\n")
    assert additions.read_file(path, nothing_known) == [{"a": 0.001, "b": [1, 2]}, {"a": 2}]
    path = tmp_path / "more.json"
    path.write_text('{"a": 1}')
    assert additions.read_file(path, nothing_known) == [{"a": 1}]
    path = tmp_path / "more.csv"
    path.write_text("a,kind\n1e-3,adam\n2,\n")
    assert additions.read_file(path, nothing_known) == [{"a": 0.001, "kind": "adam"}, {"a": 2}]
    path.write_text("trial,param.a,metric.loss\n0,3,0.5\n")
    assert additions.read_file(path, nothing_known) == [{"a": 3}]
    path.write_text('param.a,param.b,param.c,null_params\n3,,,"[""b""]"\n4,5,,\n')
    assert additions.read_file(path, nothing_known) == [{"a": 3, "b": None}, {"a": 4, "b": 5}]
    path.write_bytes(b"a,kind\r1e-3,adam\r2,\r")  # lines end as on an old Mac
    assert additions.read_file(path, nothing_known) == [{"a": 0.001, "kind": "adam"}, {"a": 2}]
    for text, words in (
        ("a\n", "no line below the names"),
        ("a\n1,2\n", "line 2: has more cells than there are names"),
        ("a\n\n1\n[1\n", "line 4, a: "),  # of the file, whose empty lines are no rows
        ('a\n"1\n', "is no valid CSV after line 1: unexpected end of data"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            additions.read_file(path, nothing_known)
    path = tmp_path / "more.yaml"
    path.write_text("- 1\n")
    with pytest.raises(
        InputError, match=r"more.yaml: \[0\]: number 1, expected a mapping of parameters"
    ):
        additions.read_file(path, nothing_known)
    with pytest.raises(
        InputError, match=r"(?s)add: 'a', expected NAME=VALUE.*add: b is given twice"
    ):
        additions.read_assignments(["a", "b=1", "b=2"])


def test_from_python(tmp_path: Path) -> None:
    from curves import FILE, TRAINABLE, resume, run

    (tmp_path / "curve.py").write_text(TRAINABLE)
    loaded = sweep.load(run(tmp_path, FILE).folder.path)
    loaded.change({"parameters.a.values": [3, 1, 2, 4, 5]})
    loaded.add({"a": 5})
    loaded.note("wider")
    loaded.star(1)
    with pytest.raises(
        InputError, match=r"add\(\): \[0\].a: number 9, expected one of 3, 1, 2, 4, 5"
    ):
        loaded.add({"a": 9})
    assert resume(tmp_path).completed == 5
    again = sweep.load(loaded.folders[0].path)
    assert again.trials["param.a"].tolist() == [3, 1, 2, 5, 4]
    assert again.trials["space_version"].fillna(0).tolist() == [0, 0, 0, 1, 1]
    assert again.ranking().other_space == (
        "The space was changed 1 time while it was searched: 3 of its 5 configurations were chosen before, and had no "
        "chance of the new values."
    )
    first = again.info["first_spec"]
    assert isinstance(first, dict)
    assert first["parameters"]["a"]["values"] == [3, 1, 2]


@pytest.mark.parametrize(
    ("choices", "value", "cell"),
    [
        *((text, text, text) for text in ("1e3", "yes", "null", "007", "~", "a: b", "[1", "'q'")),
        ("-x", "-x", "'-x"),  # as `export csv` has it, for spreadsheets
        ([None, "null"], "null", "null"),
        ([1, "1e2"], "1e2", "1e2"),
        ([1, "1e2"], "1e2", '"1e2"'),  # a column with numbers and texts is JSON
        (["-1", "a", 1], "-1", '"-1"'),
        ([-1, "a"], -1, "'-1"),
        ([True, "true"], True, "true"),
        ([[1, 2], [3]], [1, 2], "[1, 2]"),
    ],
)
def test_a_cell_is_read_as_a_value_of_its_parameter(
    tmp_path: Path, choices: Value, value: Value, cell: str
) -> None:
    values = choices if isinstance(choices, list) else [choices, "else"]
    space = Space((Parameter("kind", Categorical(tuple(values))),))
    quoted = cell.replace('"', '""')
    path = tmp_path / "trials.csv"
    path.write_text(f'trial,param.kind\n0,"{quoted}"\n')
    (found,) = additions.read_file(path, space)
    assert key(found) == key({"kind": value})
