"""What the README and the folder say is so."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from sampling import sampled

from sweep import standard_hyperparameters
from sweep.cli import main
from sweep.events import EpochReported, Status, TrialEnded, TrialStarted
from sweep.inspection import inspect
from sweep.runner import checking
from sweep.spec import load_spec, parse_spec
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log
from sweep.store.tables import build_tables, write

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_readmes_model_reads_the_parameters_of_the_readmes_file(tmp_path: Path) -> None:
    (tmp_path / "my_model.py").write_text(_blocks("python")[0])
    spec = parse_spec(_blocks("yaml")[0], "README.md")
    checking.check_trainable(spec, "README.md", [tmp_path])


@pytest.mark.keras
@pytest.mark.slow
def test_the_readmes_model_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    (tmp_path / "my_model.py").write_text(_blocks("python")[0])
    (tmp_path / "wine.yaml").write_text(_blocks("yaml")[0])
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["run", "wine.yaml", "--inline"])
    assert result.exit_code == 0, result.output
    assert "[12/12]" in result.output


PAGES = sorted([ROOT / "README.md", ROOT / "results" / "README.md", *(ROOT / "docs").glob("*.md")])


def _command_lines(page: Path) -> Iterator[list[str]]:
    """What stands behind ``python -m sweep`` in code, without the brackets of what may be left out."""
    for line in re.findall(r"python -m sweep ([^`\n#;]*)", page.read_text()):
        yield shlex.split(re.sub(r"[\[\]]|\.\.\.", "", line))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_command_line_of_the_docs_can_be_typed(page: Path) -> None:
    for name, *arguments in _command_lines(page):
        command = main.commands[name]
        if not arguments:  # named, not typed
            continue
        with command.make_context(
            name, [{"N": "1"}.get(argument, argument) for argument in arguments]
        ):
            pass
    known = {
        option
        for command in main.commands.values()
        for param in command.params
        for option in param.opts
    }
    # of pytest, Ray, Slurm, Docker, tools/gpu_day.py
    others = {
        "--help",
        "--dist",
        "--head",
        "--num-gpus",
        "--batch",
        "--exclusive",
        "--build-arg",
        "--noise",
        "--rehearse",
    }
    named = set(re.findall(r"`[^`\n]*?(--[a-z-]+)", page.read_text()))
    assert named <= known | others, named - known - others


WITH_RESULTS = [ROOT / "README.md", ROOT / "results" / "README.md", ROOT / "docs" / "dashboards.md"]


@pytest.mark.parametrize("page", WITH_RESULTS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_the_lines_for_pandas_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [
        block
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        if "results/" in block
    ]
    assert blocks
    for name in ("lr_wd_aug", "last_week"):
        info = {"objectives": [{"name": "val_accuracy", "goal": "maximize"}]}
        folder = ResultsFolder.create(tmp_path / "results", name, "", info)
        with Log(folder.log) as log:
            params = {"augmentation": "low"}
            log.append(
                [TrialStarted(trial=0, trial_id="t", params=params, seed=0, repeat=0, time=1.0)]
            )
            metrics = {"val_accuracy": 0.5}
            log.append([EpochReported(trial=0, epoch=1, metrics=metrics, time=2.0, time_s=1.0)])
            log.append([TrialEnded(trial=0, status=Status.COMPLETED, reason="", time=3.0)])
        write(folder, build_tables(folder))
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(compile(block, str(page), "exec"), {})


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


WITH_LINKS = [
    *PAGES,
    *(ROOT / "docs" / "adr").glob("*.md"),
    *(ROOT / f"{n}.md" for n in ("ARCHITECTURE", "CONTRIBUTING")),
]


@pytest.mark.parametrize("page", WITH_LINKS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_links_lead_to_what_is_there(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        file, _, heading = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not heading or heading in _anchors(target), link


def test_every_page_has_its_place_on_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    for page in (*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "adr").glob("*.md")):
        assert nav.count(f" {page.relative_to(ROOT / 'docs')}\n") == 1, (
            f"{page.name} is to be named once under nav"
        )


def _anchors(page: Path) -> set[str]:
    """The headings of a page as they stand in links: in small letters, words joined by hyphens."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_tree_names_what_is_there() -> None:
    (tree,) = re.findall(r"```text\n(.*?)```", (ROOT / "docs" / "layout.md").read_text(), re.DOTALL)
    folders = re.findall(r"^(?:  )?([a-z_]+)/ ", tree, re.MULTILINE)
    for name in folders:
        assert any((ROOT / parent / name).is_dir() for parent in ("", "sweep", "trainables")), name
    for package in ("sweep", "trainables"):
        for folder in (
            path
            for path in (ROOT / package).iterdir()
            if path.is_dir() and path.name != "__pycache__"
        ):
            assert folder.name in folders or f" {folder.name}/ " in tree


@pytest.mark.parametrize(
    "path", sampled(sorted((ROOT / "search_spaces").rglob("*.yaml")), 6), ids=lambda p: p.stem
)
def test_shipped_files_are_read_in_full(path: Path) -> None:
    spec = load_spec(path)
    if path.stem == "my_torch" and find_spec("torch") is None:
        pytest.skip("imports torch, which is not here")
    checking.check_trainable(spec, str(path), [ROOT, path.parent])
    first = path.read_text().splitlines()[:2]
    assert all(line.startswith("# ") for line in first)


def test_the_source_of_a_keras_trainable_tells_what_it_reads() -> None:
    reads = inspect("trainables.digits_cnn:DigitsCNN", [ROOT]).reads
    assert reads is not None
    assert {"learning_rate", "augmentation", "lr_final", "beta_1", "clipnorm"} <= reads
    assert "get" not in reads


def test_the_page_of_standard_hyperparameters_is_complete() -> None:
    reads = inspect("trainables.keras_trainable:KerasTrainable", [ROOT]).reads or frozenset()
    page = (ROOT / "docs" / "hyperparameters.md").read_text()
    named = set(re.findall(r"`([a-z_0-9.<>]+)`", page))
    below = {"loss_weights.*": "loss_weights.<output>", "layer_rates.*": "layer_rates.<layers>"}
    assert {below.get(name, name) for name in reads} <= named
    schedules = re.findall(
        r"^\| `([a-z_]+)` \|", page.split("| --- | --- | --- |\n")[-1], re.MULTILINE
    )
    assert set(schedules) == set(standard_hyperparameters.SCHEDULES)
    assert reads - {"epochs"} == set(standard_hyperparameters.STANDARD)
    bounds = page.split("## What is refused\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| .* \|$", bounds, re.MULTILINE)[2:] == _rows_of_bounds()


def _rows_of_bounds() -> list[str]:
    """The rows of the table of bounds: what may be, of which parameters, and what their 0 means."""
    names: dict[standard_hyperparameters.Bounds, list[str]] = {}
    for name, bounds in sorted(standard_hyperparameters.STANDARD.items()):
        names.setdefault(bounds, []).append(f"`{name}`")
    return [f"| {bounds} | {', '.join(its)} | {bounds.zero} |" for bounds, its in names.items()]


ADR = ROOT / "docs" / "adr"
DECISIONS = sorted(path for path in ADR.glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_each_decision_says_why_what_it_costs_and_what_would_change_it(page: Path) -> None:
    number, title = (
        page.name[:4],
        page.read_text().splitlines()[0].removeprefix(f"# {page.name[:4]} "),
    )
    assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", page.name)
    headings, texts = (
        re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE),
        page.read_text().split("\n## ")[1:],
    )
    assert headings == ["Context", "Decision", "What it costs", "What would make us reconsider"]
    assert all(len(text.split("\n", 1)[1].split()) > 8 for text in texts)
    assert len(page.read_text().splitlines()) <= 40, "half a page"
    assert f"| [{number}]({page.name}) | {title} |" in (ADR / "README.md").read_text()


def test_decisions_are_numbered_without_gaps_and_all_links_of_their_index_exist() -> None:
    assert [int(page.name[:4]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))
    assert re.findall(r"\]\((.*?)\)", (ADR / "README.md").read_text()) == [
        page.name for page in DECISIONS
    ]
    assert "docs/adr" in (ROOT / "ARCHITECTURE.md").read_text()
