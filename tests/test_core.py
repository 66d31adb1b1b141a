"""The core of the service, as ARCHITECTURE.md lists it: its length, its contract, and what the main job imports."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
# the table and its parts
FEATURES = (
    "sweep.runner.features",
    "sweep.backends.features",
    "sweep.store.features",
)
LINES_OFF = 0.03  # how far the number of lines in the text may be off

MAIN_JOB = """
import contextlib, sys
from sweep.cli import main
with contextlib.suppress(SystemExit):
    main(["run", "small.yaml", "--inline", "-q"], standalone_mode=False)
print("MODULES", *sys.modules)
"""
SWEEP = """\
name: small
trainable: trained:train
method: grid
metric: {name: loss, goal: minimize}
parameters: {x: {values: [1.0, 2.0]}}
epochs: 1
"""


def list_core() -> list[str]:
    return re.findall(r"^\| \d+ \| `(sweep[.\w]*)` \|", ARCHITECTURE, re.M)


def read_contract() -> dict[str, list[str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (found,) = [
        one for one in contracts if one["name"] == "The core finds its features through one table"
    ]
    return found


def find_file(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    return Path(spec.origin)


def list_late_imports(module: str) -> set[str]:
    """Return the modules of sweep that functions of a module import."""
    found = set()
    for function in ast.walk(ast.parse(find_file(module).read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names = [f"{node.module}.{one.name}" for one in node.names]
                found |= {name if _is_module(name) else node.module for name in names}
    return found


def _is_module(name: str) -> bool:
    parts = Path(*name.split("."))
    return (ROOT / parts).with_suffix(".py").exists() or (ROOT / parts / "__init__.py").exists()


def test_the_architecture_says_how_many_modules_and_lines_the_core_has() -> None:
    core = list_core()
    said = re.search(r"^These (\d+) modules of the service, ([\d,]+) lines", ARCHITECTURE, re.M)
    assert said is not None
    assert len(core) == len(set(core)) == int(said[1])
    lines = sum(len(find_file(module).read_text().splitlines()) for module in core)
    assert int(said[2].replace(",", "")) == pytest.approx(lines, rel=LINES_OFF)


def test_the_contract_is_about_the_whole_core_and_about_all_features() -> None:
    contract = read_contract()
    assert set(list_core()) <= set(contract["source_modules"])
    rooms = {name.removesuffix(".**") for name in contract["forbidden_modules"]}
    late = {module for table in FEATURES for module in list_late_imports(table)}
    # the core's, which not every system can import
    assert late - {"sweep.backends.inline"} <= rooms
    for module in (*contract["source_modules"], *rooms):
        find_file(module)


def list_late_modules_of_the_training() -> set[str]:
    """Return the modules that the tables in `trainables.features` name."""
    text = ast.get_docstring(ast.parse((ROOT / "trainables" / "features.py").read_text()))
    assert text is not None
    named = {f"trainables.{name}" for name in re.findall(r"`([a-z]+\.[a-z_]+)`", text)}
    return {name for name in named if _is_module(name)}


def list_imports_at_once(module: str) -> set[str]:
    """Return the modules of the training that are imported together with a module of it."""
    found = set()
    waiting = [*ast.parse(find_source(module).read_text()).body]
    for node in waiting:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{one.name}" for one in node.names]
            found |= {name if _is_module(name) else node.module for name in names}
        elif isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
            waiting += node.body
    return {name for name in found if name.startswith("trainables.")}


def find_source(module: str) -> Path:
    """Return the file of a module, without importing its package, which may import TensorFlow."""
    path = ROOT.joinpath(*module.split("."))
    return path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"


def test_a_session_of_the_training_imports_late_what_few_trials_use() -> None:
    imported = {"trainables.session"}
    waiting = ["trainables.session"]
    for module in waiting:
        new = list_imports_at_once(module) - imported
        imported |= new
        waiting += new
    late = list_late_modules_of_the_training()
    assert "trainables.loop.own_step" in late
    assert "trainables.loop.graph_program" in imported
    assert not late & imported


def test_the_main_job_imports_no_feature(tmp_path: Path) -> None:
    (tmp_path / "trained.py").write_text("def train(hp, report):\n    report(loss=hp['x'])\n")
    (tmp_path / "small.yaml").write_text(SWEEP)
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{MAIN_JOB}"
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    loaded = set(ran.stdout.rpartition("MODULES")[2].split())
    assert set(list_core()) <= loaded
    rooms = {name for name in read_contract()["forbidden_modules"] if not name.endswith(".**")}
    assert not rooms & loaded
    assert "sweep.doctor.probes" not in loaded
    assert "sweep.backends.ray_tune.backend" not in loaded
    assert (tmp_path / "results" / "small" / "trials.parquet").exists()
