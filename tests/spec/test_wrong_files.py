"""Every wrong file of the corpus is refused with exactly the messages written under it.

A case is a title after ``=====``, a file, ``-----`` and the messages. Files lack what they do not
need: `_DEFAULTS` are appended, unless the title says "(whole)" or the corpus file begins with "whole
files". A line ``#! --set a=1`` or ``#! SWEEP_SET a=1`` is an override. The last line says whether the
JSON Schema refuses the file too. ``SWEEP_REGENERATE=1 pytest tests/spec/test_wrong_files.py`` rewrites
the messages: read the difference before you commit it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jsonschema
import pytest

from sweep.errors import InputError
from sweep.spec import json_schema, parse_spec
from sweep.spec.yaml_reader import parse_document

FOLDER = Path(__file__).parent / "wrong"
REGENERATE = os.environ.get("SWEEP_REGENERATE") == "1"
SCHEMA = jsonschema.Draft202012Validator(json_schema())

_DEFAULTS = {
    "trainable": "my_model:MyModel",
    "method": "random",
    "run_cap": "9",
    "parameters": "{a: {values: [1, 2]}}",
}


@dataclass(frozen=True)
class Case:
    title: str
    text: str  # as written in the corpus
    expected: str
    whole: bool

    @property
    def file(self) -> str:
        if self.whole:
            return self.text
        lines = self.text.splitlines()
        missing = [
            key for key in _DEFAULTS if not any(line.startswith(f"{key}:") for line in lines)
        ]
        return self.text + "".join(f"{key}: {_DEFAULTS[key]}\n" for key in missing)

    def overrides(self, label: str) -> list[str]:
        start = f"#! {label} "
        return [
            line.removeprefix(start) for line in self.text.splitlines() if line.startswith(start)
        ]

    def outcome(self) -> str:
        error = refusal(self)
        try:
            document = parse_document(self.file, "s.yaml")
        except InputError:
            return str(error)
        if document.mistakes or "#!" in self.text:
            return str(error)
        return f"{error}\nschema: {'accepts' if SCHEMA.is_valid(document.data) else 'refuses'}"


@cache
def refusal(case: Case) -> InputError:
    """The mistakes of a case, found once for all tests."""
    with pytest.raises(InputError) as caught:
        parse_spec(
            case.file, "s.yaml", case.overrides("--set"), " ".join(case.overrides("SWEEP_SET"))
        )
    return caught.value


def cases(path: Path) -> list[Case]:
    preamble, *chunks = f"\n{path.read_text()}".split("\n===== ")
    found = []
    for chunk in chunks:
        title, _, rest = f"{chunk.rstrip()}\n".partition("\n")
        text, _, expected = rest.partition("-----\n")
        whole = "whole files" in preamble or title.endswith("(whole)")
        found.append(Case(title, text, expected.strip("\n"), whole))
    return found


CORPUS = {path.stem: cases(path) for path in sorted(FOLDER.glob("*.txt"))}


def test_the_corpus_is_large() -> None:
    titles = [(topic, case.title) for topic, found in CORPUS.items() for case in found]
    assert len(titles) >= 120
    assert len(set(titles)) == len(titles)


@pytest.mark.skipif(not REGENERATE, reason="only with SWEEP_REGENERATE=1")
@pytest.mark.parametrize("topic", CORPUS)
def test_regenerate(topic: str) -> None:
    path = FOLDER / f"{topic}.txt"
    preamble = "whole files\n" if path.read_text().startswith("whole files") else ""
    path.write_text(
        preamble
        + "".join(f"===== {c.title}\n{c.text}-----\n{c.outcome()}\n" for c in CORPUS[topic])
    )


@pytest.mark.skipif(REGENERATE, reason="being rewritten")
@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=f"{topic}: {c.title}") for topic, found in CORPUS.items() for c in found],
)
def test_messages(case: Case) -> None:
    assert case.outcome() == case.expected


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=f"{topic}: {c.title}") for topic, found in CORPUS.items() for c in found],
)
def test_each_message_is_one_line_with_a_place(case: Case) -> None:
    for problem in refusal(case).problems:
        assert problem.where.startswith(("s.yaml", "--set ", "SWEEP_SET"))
        assert len(str(problem).splitlines()) == 1
        assert len(str(problem)) < 400
