"""What a trainable's source tells without being imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sweep.errors import InputError
from sweep.inspection import inspect, list_early_imports


def write(folder: Path, body: str, name: str = "mine.py") -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(body)
    return folder


@pytest.mark.parametrize(
    ("body", "reads"),
    [
        ("hp.a; hp['b']; hp.get('c', 1); hp.number('d'); 'e' in hp", {"a", "b", "c", "d", "e"}),
        ("hp.aug.kind", {"aug", "aug.kind"}),
        ("self.live.number('rate')", {"rate"}),
        ("hp.below('weights')", {"weights.*"}),
        ("other.a; other['b']; other.get('c')", set()),
    ],
)
def test_reads(tmp_path: Path, body: str, reads: set[str]) -> None:
    source = inspect(
        "mine:T", [write(tmp_path, f"class T:\n    def f(self, hp, other):\n        {body}\n")]
    )
    assert source.reads == reads


def test_an_annotated_argument_reads_whatever_its_name(tmp_path: Path) -> None:
    source = inspect(
        "mine:T", [write(tmp_path, "class T:\n  def f(self, p: Hyperparameters): return p.x\n")]
    )
    assert source.reads == {"x"}


def test_computed_names_are_unknown_unless_declared(tmp_path: Path) -> None:
    body = "class T:\n    def f(self, hp, name):\n        return hp.get(name, 0), hp.x\n"
    source = inspect("mine:T", [write(tmp_path, body)])
    assert (source.reads, source.doubts) == ({"x"}, ("mine:3: hp.get",))
    assert source.may_read("anything")
    source = inspect("mine:T", [write(tmp_path, 'READS = ("y", "z")\n' + body)])
    assert (source.reads, source.doubts) == ({"x", "y", "z"}, ())
    assert not source.may_read("anything")


def test_below_covers_what_is_below_it(tmp_path: Path) -> None:
    source = inspect(
        "mine:T", [write(tmp_path, "class T:\n  def f(self, hp): hp.below('a.b'), hp.x\n")]
    )
    assert [source.reads_parameter(n) for n in ("x", "a.b.c", "a.b.c.d", "a.b", "a.c")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_follows_imports_of_the_project_and_no_others(tmp_path: Path) -> None:
    write(tmp_path, "import json\nfrom parts import net\nclass T: pass\n")
    write(tmp_path, "from . import deep\n", "parts/net.py")
    write(tmp_path, "def f(hp): return hp.width\n", "parts/deep.py")
    write(tmp_path, "", "parts/__init__.py")
    source = inspect("mine:T", [tmp_path])
    assert set(source.files) == {"mine", "parts", "parts.net", "parts.deep"}
    assert source.reads == {"width"}
    before = source.digest()
    write(tmp_path, "def f(hp): return hp.depth\n", "parts/deep.py")
    assert inspect("mine:T", [tmp_path]).digest() != before


def test_the_digest_does_not_depend_on_the_place(tmp_path: Path) -> None:
    digests = {
        inspect("mine:T", [write(tmp_path / name, "class T: pass\n")]).digest()
        for name in ("a", "b")
    }
    assert len(digests) == 1


def test_nothing_is_imported(tmp_path: Path) -> None:
    write(tmp_path, "raise SystemExit\nclass T: pass\n")
    assert set(inspect("mine:T", [tmp_path]).files) == {"mine"}


@pytest.mark.parametrize(
    "body",
    [
        "try:\n    from nowhere import T\nexcept ImportError:\n    class T: pass\n",
        "import sys\nif sys.platform == 'linux':\n    def T(hp, report): pass\nelse:\n    T = None\n",
    ],
)
def test_what_a_branch_of_its_module_defines_is_there(tmp_path: Path, body: str) -> None:
    assert set(inspect("mine:T", [write(tmp_path, body)]).files) == {"mine"}


def test_what_a_package_imports_by_a_star_is_there(tmp_path: Path) -> None:
    write(tmp_path, "from .net import *\n", "mine/__init__.py")
    write(tmp_path, "class T:\n    def f(self, hp): return hp.x\n", "mine/net.py")
    source = inspect("mine:T", [tmp_path])
    assert {*source.files} == {"mine", "mine.net"}
    assert source.reads == {"x"}


@pytest.mark.parametrize(
    ("trainable", "message"),
    [
        ("nowhere:T", "no module 'nowhere'"),
        ("mine:Net", "defines no 'Net'; did you mean 'Nets'?"),
        ("broken:T", "is no valid Python"),
    ],
)
def test_mistakes(tmp_path: Path, trainable: str, message: str) -> None:
    write(tmp_path, "class Nets: pass\n")
    write(tmp_path, "class T(\n", "broken.py")
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        inspect(trainable, [tmp_path])


KERAS = "from trainables.keras_trainable import KerasTrainable\nclass Net(KerasTrainable): pass\n"


@pytest.mark.parametrize("with_init", [True, False])
def test_a_folder_of_ones_own_that_hides_sweeps_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_init: bool
) -> None:
    write(tmp_path, KERAS, "trainables/net.py")
    if with_init:
        write(tmp_path, "", "trainables/__init__.py")
    else:  # as in an editable installation, where a folder without a file of its own comes before sweep's
        monkeypatch.setattr(
            sys, "path", [entry for entry in sys.path if not (Path(entry) / "trainables").is_dir()]
        )
    write(tmp_path, KERAS)
    for trainable in ("trainables.net:Net", "mine:Net"):
        with pytest.raises(
            InputError, match=f"{tmp_path / 'trainables'} has the name of the package 'trainables'"
        ):
            inspect(trainable, [tmp_path])


@pytest.mark.parametrize("name", ["sweep.py", "sweep/__init__.py"])
def test_a_module_of_ones_own_that_hides_sweep_in_workers_is_refused(
    tmp_path: Path, name: str
) -> None:
    write(tmp_path, "def train(hp): return {'loss': hp.a}\n", "plain.py")
    write(tmp_path, "", "sweep/notes/plain.py")  # a folder without __init__.py hides nothing
    inspect("plain:train", [tmp_path])
    write(tmp_path, "", name)
    with pytest.raises(
        InputError,
        match=r"sweep.* has the name of the package 'sweep' that comes with sweep.* rename it",
    ):
        inspect("plain:train", [tmp_path])


def test_a_folder_of_ones_own_that_is_hidden_by_sweeps_is_named(tmp_path: Path) -> None:
    write(tmp_path, KERAS, "trainables/net.py")
    root = Path(__file__).parents[2]
    with pytest.raises(InputError, match=r"has the name of the package 'trainables' .* rename it"):
        inspect("trainables.net:Net", [tmp_path, root])


def test_a_folder_of_that_name_without_need_of_sweeps_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "from trainables import parts\nclass Net: pass\n", "trainables/net.py")
    write(tmp_path, "", "trainables/parts.py")
    write(tmp_path, "", "trainables/__init__.py")
    assert set(inspect("trainables.net:Net", [tmp_path]).files) == {
        "trainables",
        "trainables.net",
        "trainables.parts",
    }


def test_parents_of_a_module_are_code_and_so_is_what_lies_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "src", "", "helper/__init__.py")
    write(tmp_path / "src", "import numpy\n", "helper/deep/net.py")
    monkeypatch.syspath_prepend(tmp_path / "src")
    write(tmp_path, "import helper.deep.net, random, nowhere_at_all\nclass T: pass\n")
    source = inspect("mine:T", [tmp_path])
    assert set(source.files) == {"mine", "helper", "helper.deep.net"}
    assert source.packages["numpy"] is not None
    assert source.packages["nowhere_at_all"] is None
    assert source.unknown == ()


def test_a_parameter_is_surely_unread_only_where_its_name_is_nowhere(tmp_path: Path) -> None:
    body = "class T:\n    def f(self, hp, image):\n        return hp.depth, image.width\n"
    source = inspect("mine:T", [write(tmp_path, body)])
    assert [source.may_read(name) for name in ("depth", "width", "aug.width", "widht")] == [
        True,
        True,
        True,
        False,
    ]


def test_a_file_of_a_package_elsewhere_that_is_no_python_is_no_mistake_but_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "src", "from helper import old\n", "helper/__init__.py")
    write(tmp_path / "src", "print 'of another age'\n", "helper/old.py")
    monkeypatch.syspath_prepend(tmp_path / "src")
    source = inspect("mine:T", [write(tmp_path / "project", "import helper\nclass T: pass\n")])
    assert source.unknown == (f"{tmp_path / 'src/helper/old.py'} is no valid Python",)


def test_what_is_imported_at_once_is_known_by_name(tmp_path: Path) -> None:
    write(
        tmp_path,
        "from numpy import linalg\nimport json, own\nif 1:\n    import perhaps\n",
        "helper.py",
    )
    body = "import pandas.api as api, helper\nfrom . import own\nclass T:\n    def f(self):\n        import later\n"
    assert inspect("mine:T", [write(tmp_path, body)]).first_imports == (
        "numpy",
        "own",
        "pandas.api",
    )


def test_early_imports_are_those_of_the_module_itself(tmp_path: Path) -> None:
    body = """
import os, keras, keras.layers as layers, other, not_there
import numpy as np
from sklearn.datasets import load_digits
from trainables.keras_trainable import KerasTrainable
from . import nothing
def T(hp, report):
    import pandas
"""
    folder = write(tmp_path, body)
    (folder / "other.py").write_text("import tensorflow\n")
    found = list_early_imports("mine:T", [folder])
    assert found == ("keras", "keras.layers", "numpy", "sklearn.datasets")
    assert {*found} <= {*inspect("mine:T", [folder]).first_imports}


def test_no_early_imports_of_what_is_no_module(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def\n")
    for trainable in ("broken:T", "nowhere:T", "__main__:T", "math:T"):
        assert list_early_imports(trainable, [tmp_path]) == ()


def test_no_early_imports_of_the_trainable_s_own_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the author's wherever it is installed, and must be imported under the sweep's seed."""
    site = tmp_path / "site-packages"
    (site / "mine_installed").mkdir(parents=True)
    (site / "mine_installed" / "__init__.py").write_text("")
    (site / "mine_installed" / "net.py").write_text(
        "import numpy\nimport mine_installed.layers\ndef T(hp, report): ...\n"
    )
    monkeypatch.syspath_prepend(str(site))
    assert list_early_imports("mine_installed.net:T", []) == ("numpy",)


OWN = """
import keras

class Mine(keras.optimizers.Optimizer):
    def __init__(self, learning_rate=0.1, *, sharpness=1.0):
        super().__init__(learning_rate)

def made(strength=2.0):
    return Mine()
"""


def test_an_optimizer_that_the_file_names_is_part_of_the_source(tmp_path: Path) -> None:
    body = (
        "from trainables.keras_trainable import KerasTrainable\nclass T(KerasTrainable):\n  pass\n"
    )
    folders = [write(write(tmp_path, body), OWN, "own.py")]
    plain = inspect("mine:T", folders)
    source = inspect("mine:T", folders, ["own:Mine", "own:made"])
    assert source.reads - plain.reads == {"sharpness", "strength"}
    assert "own" in source.files
    assert source.digest() != plain.digest()
    assert inspect("mine:T", folders, ()) == plain


def test_what_the_package_of_an_optimizer_imports_is_part_of_the_source(tmp_path: Path) -> None:
    body = (
        "from trainables.keras_trainable import KerasTrainable\nclass T(KerasTrainable):\n  pass\n"
    )
    folder = write(tmp_path, body)
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("import helper\n")
    (package / "own.py").write_text(OWN)
    (folder / "helper.py").write_text("RATE = 1\n")
    source = inspect("mine:T", [folder], ["package.own:Mine"])
    assert {"package", "package.own", "helper"} <= set(source.files)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none:Mine", "no module 'none' in "),
        ("own:Mien", "defines no 'Mien'; did you mean 'Mine'?"),
    ],
)
def test_an_optimizer_that_is_not_there(tmp_path: Path, name: str, message: str) -> None:
    body = (
        "from trainables.keras_trainable import KerasTrainable\nclass T(KerasTrainable):\n  pass\n"
    )
    with pytest.raises(InputError) as caught:
        inspect("mine:T", [write(write(tmp_path, body), OWN, "own.py")], [name])
    assert message in str(caught.value)
    assert "parameters.optimizer" in str(caught.value)


def test_a_trainable_of_another_kind_may_mean_something_else(tmp_path: Path) -> None:
    assert inspect("mine:T", [write(tmp_path, "class T: pass\n")], ["none:Mine"]).optimizers == ()
