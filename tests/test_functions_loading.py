"""The trainable's class, from the folders in their order."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from sweep.errors import InputError, TrainableError
from sweep.functions import TRAINABLE_METHODS, import_target, load_trainable, offers_method
from sweep.inspection import inspect


def write(folder: Path, name: str, methods: tuple[str, ...] = TRAINABLE_METHODS) -> Path:
    folder.mkdir(exist_ok=True)
    body = "".join(f"    def {method}(self): pass\n" for method in methods)
    (folder / f"{name}.py").write_text(f"class T:\n    WHERE = {folder.name!r}\n{body}")
    return folder


def test_the_first_folder_wins_as_it_does_when_the_source_is_inspected(tmp_path: Path) -> None:
    folders = [write(tmp_path / name, "found_twice") for name in ("a", "b")]
    sys.path.insert(0, str(folders[1]))  # as the current folder is, with python -m
    assert load_trainable("found_twice:T", folders).WHERE == "a"
    assert inspect("found_twice:T", folders).files["found_twice"] == folders[0] / "found_twice.py"


def test_another_module_of_the_same_name_is_not_trained_in_its_place(tmp_path: Path) -> None:
    folders = [write(tmp_path / name, "of_two_sweeps") for name in ("a", "b")]
    load_trainable("of_two_sweeps:T", folders[:1])
    place = r"/a/of_two_sweeps\.py, and so cannot import .*/b/of_two_sweeps\.py; rename one of them"
    with pytest.raises(TrainableError, match=f"has imported of_two_sweeps from .*{place}"):
        load_trainable("of_two_sweeps:T", folders[1:])
    with pytest.raises(InputError, match=r"has imported queue from .*/queue\.py"):
        import_target("queue:T", [write(tmp_path / "c", "queue")], "method")


def test_a_class_may_name_what_trains_its_objects(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", "wrapped")
    with (folder / "wrapped.py").open("a") as file:
        file.write(
            "    def __init__(self, author): self.author = author\n    def test(self): pass\n"
        )
        file.write("class Author:\n    __trainable__ = T\n    begin = 3\n")
        file.write(
            "class ByFunction:\n    __trainable__ = staticmethod(lambda author: T(author))\n"
        )
    for name in ("Author", "ByFunction"):
        made: Any = load_trainable(f"wrapped:{name}", [folder])()
        assert (type(made).__name__, type(made.author).__name__) == ("T", name)
        assert offers_method("test", f"wrapped:{name}", [folder])
    assert not offers_method("try_rates", "wrapped:Author", [folder])
    assert offers_method("try_rates", "wrapped:ByFunction", [folder])  # only an object could tell


def test_an_error_that_begins_with_an_empty_line_is_told(tmp_path: Path) -> None:
    (tmp_path / "raises_late.py").write_text("raise ValueError('\\nno data here')\n")
    with pytest.raises(
        InputError, match="raises_late:T cannot be imported: ValueError: no data here"
    ):
        import_target("raises_late:T", [tmp_path], "method")


def test_a_class_that_is_no_trainable_says_what_it_lacks(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", "half_made", TRAINABLE_METHODS[:3])
    with pytest.raises(TrainableError, match="half_made:T lacks the methods restore, facts"):
        load_trainable("half_made:T", [folder])


def test_asking_for_a_method_imports_as_training_does(tmp_path: Path) -> None:
    """What a module draws at its import, such as a split of the data, must be the same as in workers."""
    drawn = []
    (tmp_path / "splits.py").write_text(
        "import numpy as np\n\nDRAWN = np.random.random()\n\n\ndef train(hp, report): ...\n"
    )
    for asked in (False, True):
        sys.modules.pop("splits", None)
        if asked:
            assert not offers_method("test", "splits:train", [tmp_path], seed=3)
        load_trainable("splits:train", [tmp_path], seed=3)
        drawn.append(sys.modules["splits"].DRAWN)
    assert drawn[0] == drawn[1]
