"""`tools/density.py`: what it counts in a small file, its table, and the bounds that the packages stay within."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import density  # noqa: E402 - a tool, not part of the package

SAMPLE = '''"""A module.

Its docstring has three lines.
"""

# a comment


class Point:
    """A class."""

    x: int = 0
    """An attribute's docstring."""


def plain(numbers: list[int]) -> list[int]:
    """Return them doubled."""
    return [2 * number for number in numbers]  # one comprehension


def nested(rows):
    if rows:
        return [[cell if cell else 0 for cell in row] for row in rows]
    return sorted(rows, key=lambda row: row)
'''


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    path = tmp_path / "sample.py"
    path.write_text(SAMPLE)
    return path


def test_lines_comprehensions_and_nested_statements_are_counted(sample: Path) -> None:
    counts = density.measure([sample])
    assert counts.code_lines == 8  # neither docstrings, comments nor blank lines
    assert counts.comprehensions == 3
    assert counts.conditionals == 1
    assert counts.nested == [f"{sample}:{SAMPLE[: SAMPLE.index('return [[')].count(chr(10)) + 1}"]


def test_nodes_are_counted_without_annotations_docstrings_and_contexts(tmp_path: Path) -> None:
    path = tmp_path / "small.py"
    path.write_text('"""A docstring."""\nx: int = 1\n')
    assert density.measure([path]).nodes == 4  # Module, AnnAssign, Name, Constant


def test_names_count_if_several_modules_define_them(sample: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("class Point: ...\ndef plain(): ...\ndef lone():\n    def nested(): ...\n")
    counts = density.measure([tmp_path])
    assert density.in_several(counts.classes) == {"Point": [str(other), str(sample)]}
    assert list(density.in_several(counts.functions)) == ["plain"]  # not those inside of functions


def test_the_table_has_a_column_for_each_path(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    density.main([str(sample), "-v"])
    printed = capsys.readouterr().out
    assert "sample.py" in printed.splitlines()[0]
    assert "statements that nest them                      1" in printed
    assert printed.splitlines()[-1].startswith(str(sample))


def test_a_path_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        density.main(["absent"])
    assert "there is no absent" in capsys.readouterr().err


def test_the_packages_stay_within_the_bounds() -> None:
    whole = density.measure([ROOT / "sweep", ROOT / "trainables"])
    assert whole.nodes_per_line <= 5.5
    assert whole.per_1000_lines(whole.comprehensions) <= 30
    assert whole.per_1000_lines(whole.conditionals) <= 15


def test_no_statement_nests_them() -> None:
    nested = density.measure([ROOT / "sweep", ROOT / "trainables"]).nested
    assert not nested, "\n".join(nested)
