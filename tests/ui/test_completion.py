"""What may stand at the cursor of a sweep file that is being typed."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.errors import InputError
from sweep.spec import parse_spec
from sweep.spec.blocks import Training
from sweep.spec.distributions import DISTRIBUTIONS, ParameterBlock
from sweep.spec.search_methods import METHODS
from sweep.standard_hyperparameters import OPTIMIZERS, SCHEDULES, STANDARD
from sweep.ui.completion import ACTIVATIONS, NOTHING, Completion, Known, Proposal, propose

CURSOR = "¦"
KNOWN = Known(
    parameters=frozenset({"units", "augment.shift", "learning_rate", "layer_rates.*"}),
    metrics=("val_loss", "top 5"),
    sweeps=("first", "last week"),
)
TWO = "parameters:\n  kind: {values: [cnn, 'rnn']}\n  lr: {min: 0.1, max: 1.0}\n"


def ask(marked: str, known: Known = NOTHING) -> Completion:
    at = marked.index(CURSOR)
    return propose(marked.replace(CURSOR, "", 1), at, known)


def labels(marked: str, known: Known = NOTHING) -> list[str]:
    return [one.label for one in ask(marked, known).proposals]


def take(marked: str, label: str, known: Known = NOTHING) -> str:
    """The text after a proposal was taken."""
    found = ask(marked, known)
    chosen = next(one for one in found.proposals if one.label == label)
    text = marked.replace(CURSOR, "", 1)
    return text[: found.start] + chosen.insert + text[found.end :]


TRAINING = [*Training.model_fields]
PARAMETER = [*ParameterBlock.model_fields, "parameters"]
ASHA = ["min_iter", "max_iter", "eta", "brackets"]
RULES = ["asha", "asha_promotion", "pasha", "freeze_thaw", "hyperband", "median", "none"]

ROWS: dict[str, tuple[str, list[str]]] = {
    # keys
    "a word at the top": ("met¦", ["method", "metric", "metrics", "parameters"]),
    "the middle of a word": ("rep¦eats", ["repeats"]),
    "a word in a line below": ("epochs: 3\nrun_c¦\nseed: 1", ["run_cap"]),
    "a key that is there is not proposed": ("run_cap: 3\nrun¦", []),
    "a key may be replaced by another": ("ep¦ochs: 3", ["epochs", "repeats"]),
    "metrics exclude metric": ("metrics: []\nmetri¦", []),
    "nested, in a block": ("training:\n  ¦", TRAINING),
    "nested, in braces": ("training: {pre¦}", ["precision"]),
    "nested, in braces that are not closed": ("training: {loop: own, pat¦", ["patience"]),
    "nested, in braces over several lines": (
        "training: {\n  loop: own,\n  pat¦\n}\nepochs: 3",
        ["patience"],
    ),
    "braces that are not closed end at the next key": ("metric: {name: a,\nmeth¦", ["method"]),
    "the block around it": ("training:\n  loop: own\nbud¦", ["budget"]),
    "below a scalar": ("epochs: 10\n  ¦", []),
    "resources": ("resources:\n  cp¦", ["cpus"]),
    "a price for each market": (
        "resources: {price_per_gpu_hour: {A100: {¦}}}",
        ["on_demand", "spot"],
    ),
    "budget, behind another key": (
        "budget: {hours: 8, ¦}",
        ["trials", "gpu_hours", "epochs", "money"],
    ),
    "a rule's type comes first": ("early_terminate: {¦}", ["type"]),
    "a rule's keys": ("early_terminate: {type: asha, ¦}", ASHA),
    "a rule's keys, before its type": ("early_terminate: {¦, type: asha}", ASHA),
    "a rule's keys, in quotes": ("early_terminate:\n  type: 'asha'\n  ¦", ASHA),
    "an item of a list": ("metrics:\n  - name: a\n    go¦", ["goal"]),
    "an item beside the key of its list": ("metrics:\n- name: a\n  go¦", ["goal"]),
    "an item without its dash": (
        "metrics:\n  - name: a\n    goal: minimize\n  ¦",
        ["name", "goal", "target", "impute", "impute_while_running"],
    ),
    "the second item": (
        "metrics:\n  - name: a\n  - ¦",
        ["name", "goal", "target", "impute", "impute_while_running"],
    ),
    "a list's first line": ("notify:\n  comm¦", ["command"]),
    "JSON": ('{"epochs": 3, "run¦"}', ["run_cap", "training", "prior"][:1]),
    # parameters
    "a parameter's keys": (
        "parameters:\n  x: {¦}",
        PARAMETER,
    ),
    "a parameter's keys by its distribution": (
        "parameters:\n  x: {distribution: beta, ¦}",
        ["a", "b", "count", "when"],
    ),
    "a parameter's keys by its bounds": (
        "parameters:\n  x:\n    min: 1\n    ¦",
        ["distribution", "max", "q", "count", "when"],
    ),
    "a group's other key": ("parameters:\n  x:\n    parameters: {y: {value: 1}}\n    ¦", ["when"]),
    "standard hyperparameters": ("parameters:\n  lr_sch¦", ["lr_schedule"]),
    "conditions name other parameters": (f"{TWO}  x: {{value: 1, when: {{¦}}}}", ["kind", "lr"]),
    "conditions do not name themselves": ("parameters:\n  x: {value: 1, when: {¦}}", []),
    "conditions in a nested group": (
        f"{TWO}  g:\n    parameters:\n      y:\n        when:\n          ki¦",
        ["kind"],
    ),
    # values
    "methods": ("method: ¦", [*METHODS]),
    "a method": ("method: gri¦", ["grid"]),
    "a method that is typed": ("method: grid¦", []),
    "goals": ("metric: {name: a, goal: m¦}", ["minimize", "maximize"]),
    "rules": ("early_terminate:\n  type: ¦", RULES),
    "distributions": ("parameters:\n  x: {distribution: q_beta¦}", []),
    "precisions": ("training: {precision: mixed¦}", ["mixed_bfloat16", "mixed_float16"]),
    "booleans": ("training:\n  deterministic: ¦", ["true", "false"]),
    "a number or a word": ("training:\n  fuse: ¦", ["auto", "false"]),
    "a default": ("epochs: ¦", ["10"]),
    "words of a standard hyperparameter": (
        "parameters:\n  class_weights: {values: [none, ¦]}",
        ["none", "balanced"],
    ),
    "flags among them": ("parameters:\n  shuffle:\n    values:\n      - ¦", ["true", "false"]),
    "values of another parameter": (
        f"{TWO}  x: {{value: 1, when: {{kind: [cnn, ¦]}}}}",
        ["cnn", "rnn", "true", "false"],
    ),
    "a starting point's names": (f"{TWO}start_with:\n  - lr: 1\n    ¦", ["kind"]),
    "a starting point's values": (f"{TWO}start_with: [{{kind: ¦}}]", ["cnn", "rnn"]),
    "how sure a belief is": (
        f"{TWO}prior: {{lr: {{value: 1, confidence: ¦}}}}",
        ["low", "medium", "high"],
    ),
    "the baseline": (f"{TWO}baseline: {{¦}}", ["kind", "lr"]),
    "what a population changes": (f"{TWO}population: {{perturb: [¦]}}", ["kind", "lr"]),
    # expressions
    "names of a constraint": (f"{TWO}constraints:\n  - l¦ < 1", ["lr"]),
    "metrics of a constraint": (
        f"metric: {{name: val_x}}\n{TWO}constraints: ['lr < v¦']",
        ["val_x"],
    ),
    "a tied value": (f"{TWO}  x: {{value: '= 2 * ¦'}}", ["kind", "lr"]),
    # nothing
    "a comment": ("# method: ¦", []),
    "a comment behind a value": ("method: grid # ¦", []),
    "a comment in braces": ("training: {loop: own, # ¦\n}", []),
    "prose": ("description: |\n  met¦\n", []),
    "a name": ("name: ¦", []),
    "an unknown block": ("models:\n  ¦", []),
    "behind what is complete": ("training: {loop: own} ¦", []),
}


@pytest.mark.parametrize("name", ROWS)
def test_proposals(name: str) -> None:
    marked, expected = ROWS[name]
    assert labels(marked) == expected


def test_a_group_may_have_a_condition_first() -> None:
    text = f"{TWO}  g:\n    when: {{kind: cnn}}\n    ¦"
    assert "parameters" in labels(text)
    whole = text.replace(CURSOR, "parameters: {y: {values: [1, 2]}}")
    parse_spec(f"trainable: m:M\nmethod: random\nrun_cap: 2\n{whole}\n", "s.yaml")
    assert "parameters" not in labels(f"{TWO}  g:\n    value: 1\n    ¦")


def test_the_top_has_all_keys_but_those_of_another_server() -> None:
    found = labels("¦")
    assert {"trainable", "parameters", "early_terminate", "training", "resources"} <= set(found)
    assert "apiVersion" not in found


def test_a_key_has_its_description_and_its_default() -> None:
    (found,) = ask("epo¦").proposals[:1]
    assert found == Proposal(
        label="epochs",
        insert="epochs: ",
        about="Epochs per trial; a parameter called epochs takes its place.",
        default="10",
    )
    assert all(one.about for one in ask("¦").proposals)
    assert all(one.about for one in ask("training: {¦}").proposals)
    assert all(one.about for one in ask("early_terminate: {¦}").proposals)


def test_values_say_what_they_do() -> None:
    about = {one.label: one.about for one in ask("method: ¦").proposals}
    assert about["grid"].startswith("Chooses configurations: every combination once")
    assert "](" not in "".join(about.values())
    assert all(one.about for one in ask("parameters: {x: {distribution: ¦}}").proposals)
    assert [one.label for one in ask("parameters: {x: {distribution: ¦}}").proposals] == [
        *DISTRIBUTIONS
    ]
    assert [one.default for one in ask("training: {loop: ¦}").proposals] == ["own", ""]


@pytest.mark.parametrize(
    ("marked", "label", "text"),
    [
        ("epo¦", "epochs", "epochs: "),
        ("ep¦ochs: 3", "epochs", "epochs: 3"),
        ("method:¦", "grid", "method: grid"),
        ("method: gr¦ # how", "grid", "method: grid # how"),
        ("training: {loop:¦}", "fit", "training: {loop: fit}"),
        ('method: "r¦andom"', "random", 'method: "random"'),
        ("metrics:\n  -¦", "name", "metrics:\n  - name: "),
        ("metrics:\n  ¦", "name", "metrics:\n  - name: "),
        (
            "early_terminate: ¦\nepochs: 3",
            "{type: median}",
            "early_terminate: {type: median}\nepochs: 3",
        ),
        (f"{TWO}constraints: ['li < l¦r']", "lr", f"{TWO}constraints: ['li < lr']"),
        (
            "constraints: [to¦]\nmetrics: [{name: top 5}]",
            "top 5",
            "constraints: [`top 5`]\nmetrics: [{name: top 5}]",
        ),
    ],
)
def test_what_is_taken_replaces_the_word(marked: str, label: str, text: str) -> None:
    assert take(marked, label) == text


def test_what_is_known_of_the_trainable() -> None:
    assert labels("parameters:\n  ¦", KNOWN) == [
        "augment.shift",
        "units",
        "learning_rate",
        "layer_rates.",
        "epochs",
    ]
    assert labels("parameters:\n  augment:\n    parameters:\n      ¦", KNOWN) == ["shift"]
    assert labels("metric: {name: ¦}", KNOWN) == ["val_loss", "top 5"]
    assert take("metric: {name: ¦}", "top 5", KNOWN) == 'metric: {name: "top 5"}'
    assert labels("warm_start: [¦]", KNOWN) == ["first", "last week"]
    assert set(labels("parameters:\n  ¦")) == {name.removesuffix("*") for name in STANDARD} | {
        "epochs"
    }


def test_only_read_hyperparameters_are_proposed_where_they_are_known() -> None:
    assert labels("parameters:\n  momen¦") == ["momentum", "ema_momentum"]
    assert labels("parameters:\n  momen¦", KNOWN) == []


def test_whole_parameters_are_proposed() -> None:
    found = labels("parameters:\n  class_weights: ¦")
    assert found[0] == "{values: [none, balanced]}"
    for form in found:
        parse_spec(
            f"trainable: m:M\nmethod: random\nrun_cap: 2\nparameters: {{x: {form}}}", "s.yaml"
        )


WHOLE = """\
# a comment
name: whole
trainable: m:M
method: random
metric: {name: val_loss, goal: minimize}
parameters:
  kind: {values: [a, b]}
  rate: {distribution: log_uniform_values, min: 1e-4, max: 1e-1, when: {kind: a}}
constraints:
  - rate < 0.01
early_terminate: {type: asha, min_iter: 1}
start_with:
  - {kind: a, rate: 1e-3}
run_cap: 3
training:
  precision: auto
"""


def test_each_key_of_a_file_is_proposed_at_its_place() -> None:
    """With the cursor in a key of the schema, that key is among the proposals: the place is understood."""
    lines = WHOLE.splitlines()
    for word in (
        "name",
        "trainable",
        "method",
        "metric",
        "parameters",
        "constraints",
        "early_terminate",
        "training",
    ):
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{word}:"))
        marked = "\n".join(
            [
                *lines[:at],
                lines[at].replace(word, word[:2] + CURSOR + word[2:], 1),
                *lines[at + 1 :],
            ]
        )
        assert word in labels(marked), word
    for word in ("goal", "distribution", "when", "min_iter", "precision"):
        assert word in labels(WHOLE.replace(word, word[:1] + CURSOR + word[1:], 1)), word


@given(st.data())
def test_no_text_is_too_broken(data: st.DataObject) -> None:
    cut, end = sorted(
        (data.draw(st.integers(0, len(WHOLE))), data.draw(st.integers(0, len(WHOLE))))
    )
    noise = data.draw(st.text(alphabet=" \n-:{}[]\"'#&*|>,ab=\\\t\ud800\U0001f600", max_size=12))
    text = WHOLE[:cut] + noise + WHOLE[end:]
    found = propose(text, cut + len(noise))
    assert 0 <= found.start <= cut + len(noise) <= found.end <= len(text)


def test_what_is_proposed_in_a_whole_file_is_accepted() -> None:
    """Each value that is proposed in place of the file's own passes the validator, but for what depends on others."""
    for marked in (
        "method: r¦andom",
        "goal: m¦inimize",
        "precision: a¦uto",
        "type: a¦sha",
        "{kind: ¦a, rate",
    ):
        plain = marked.replace(CURSOR, "")
        for label in labels(WHOLE.replace(plain, marked, 1)):
            text = take(WHOLE.replace(plain, marked, 1), label).replace(
                "  - rate < 0.01", "  - rate < 1"
            )
            try:
                parse_spec(text, "s.yaml")
            except InputError as error:
                assert "expected one of" not in str(error), (label, str(error))


def test_it_is_quick() -> None:
    """A request has 50 ms; this is processor time, so that a busy machine makes no difference."""
    more = "".join(
        f"  p{number}: {{values: [1, 2, 3], when: {{kind: a}}}}\n" for number in range(180)
    )
    marked = WHOLE.replace("constraints:", f"{more}constraints:").replace(
        "- {kind: a", f"- {{{CURSOR}kind: a"
    )
    assert len(marked.splitlines()) > 190
    took = []
    for _ in range(5):
        began = time.process_time()
        assert ask(marked).proposals
        took.append(time.process_time() - began)
    assert min(took) < 0.05


@pytest.mark.parametrize(
    "text",
    [
        "a" + 100_000 * " ",
        100_000 * "- ",
        100_000 * "{",
        50_000 * "[{a: ",
        100_000 * "a:",
        "'" * 99_999,
    ],
)
def test_long_lines_take_no_longer(text: str) -> None:
    began = time.process_time()
    propose(text, len(text))
    assert time.process_time() - began < 1


def test_very_long_texts_are_left_alone() -> None:
    assert propose("epo" + 400_000 * "\n", 3).proposals == ()


# ---- what a person asks for -----------------------------------------------------------------------------------------


def labels_asked_for(marked: str, known: Known = NOTHING) -> list[str]:
    at = marked.index(CURSOR)
    return [
        one.label for one in propose(marked.replace(CURSOR, "", 1), at, known, asked=True).proposals
    ]


ASKED = {
    "a misspelt key": ("metod¦", "method"),
    "a misspelt key that has a colon": ("metod¦: grid", "method"),
    "a misspelt value": ("method: gird¦", "grid"),
    "a misspelt hyperparameter": (
        "parameters:\n  lerning_rate¦: {min: 0.1, max: 1.0}",
        "learning_rate",
    ),
    "a misspelt optimizer": ("parameters: {optimizer: {values: [sdg¦]}}", "sgd"),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_misspelt_word_is_mended_from_its_end(name: str) -> None:
    marked, meant = ASKED[name]
    assert labels(marked) == []
    assert labels_asked_for(marked)[0] == meant


def test_a_complete_word_is_followed_by_what_may_stand_instead() -> None:
    assert labels("method: grid¦") == []
    found = labels_asked_for("method: grid¦")
    assert found[0] == "grid"
    assert set(found) == set(METHODS) | {"bayes"}
    found = labels_asked_for("parameters: {optimizer: {value: adam¦}}")
    assert found[0] == "adam"
    assert {"adamw", "adamax", "nadam"} <= set(found[:5])
    assert {"sgd", "lion"} <= set(found)


def test_a_part_of_a_word_is_completed_as_while_it_is_typed() -> None:
    assert labels_asked_for("early_termi¦") == labels("early_termi¦") == ["early_terminate"]
    assert labels_asked_for("a: b¦c¦d".replace("¦d", "d")) == []


@pytest.mark.parametrize(
    ("marked", "words"),
    [
        ("parameters: {optimizer: {values: [¦]}}", OPTIMIZERS),
        ("parameters: {lr_schedule: {value: ¦}}", SCHEDULES),
        ("parameters: {nesterov: {value: ¦}}", ("true", "false")),
        ("parameters: {dense_activation: {values: [¦]}}", ACTIVATIONS),
        ("parameters: {clipnorm: {value: ¦}}", ("0",)),
        ("parameters: {units: {value: ¦}}", ()),
    ],
)
def test_values_of_hyperparameters(marked: str, words: tuple[str, ...]) -> None:
    assert labels(marked) == list(words)


def test_a_hyperparameter_is_offered_with_all_its_words() -> None:
    assert labels("parameters:\n  optimizer: ¦")[0] == f"{{values: [{', '.join(OPTIMIZERS)}]}}"


def test_trainables_that_were_found_are_offered() -> None:
    known = Known(
        trainables={
            "my_model:MyModel": "In my_model.py.",
            "trainables.digits_cnn:DigitsCNN": "Ours.",
        }
    )
    assert labels("trainable: ¦", known) == [*known.trainables]
    assert labels("trainable: digits¦", known) == ["trainables.digits_cnn:DigitsCNN"]
    assert labels_asked_for("trainable: my_model:MyModle¦", known) == ["my_model:MyModel"]
