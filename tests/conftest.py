"""Settings of all tests: TensorFlow is quiet, and has eight logical CPU devices to mirror over."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import spreading
from object_stores import S3, SERVERS, Azure, Server, install_azurite, running

from sweep.read_recorder import recorder
from sweep.state import trials
from sweep.state.recorded_values import self_changing

# Property tests are judged by what they find, not by how busy the machine is.
hypothesis.settings.register_profile("sweep", deadline=None, max_examples=20)
hypothesis.settings.load_profile("sweep")

SLOW_TESTS = frozenset((Path(__file__).parent / "slow_tests.txt").read_text().splitlines())
"""As `tools/choose_tests.py` has chosen them."""

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# tests keep nothing for others
os.environ.setdefault("TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory=")

# a script has put the tests into the background
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # or else commands that tests start ignore it, too
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A full collection takes seconds in a process that has trained many models, and by default there are hundreds of them:
# an eighth of the time of all tests that train. Those that ask what is collected call `gc.collect` themselves.
gc.set_threshold(50_000, 20, 100)


@pytest.fixture(autouse=True)
def modules_end_with_their_test() -> Iterator[None]:
    """Forget the modules that a test has written into its folder: another test may have one of that name."""
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if "pytest-of-" in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture(scope="module", autouse=True)
def other_tests_are_not_imported(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hide the modules of other tests, as if each file had a process of its own.

    A trial watches every imported module that is not installed, and says what changes there by itself: the threads and
    event loops that other tests have left would be found in it.
    """
    hidden = {
        name: module
        for name, module in sys.modules.items()
        if name.startswith("test_") and module is not request.module
    }
    for name in hidden:
        del sys.modules[name]
    yield
    sys.modules.update(hidden)


@pytest.fixture(autouse=True)
def changes_for_good_end_with_their_test() -> Iterator[None]:
    """Forget which names the trials of a test could not restore, and which change by themselves.

    Otherwise later trials in this process would report them.
    """
    yield
    trials.resisting.clear()
    self_changing.names.clear()


@pytest.fixture(autouse=True)
def records_of_reads_end_with_their_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop recording what the process reads, as a worker of a node does until its process ends."""
    monkeypatch.setattr(recorder, "_in_trial", 0)


@pytest.fixture(scope="module")
def light_collections() -> Iterator[None]:
    """Let garbage collections pass over what tests before have left: a full one takes seconds in an old process."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is marked ``alone`` in a fresh process, which holds nothing of other tests."""
    if pyfuncitem.get_closest_marker("alone") is None or "SWEEP_TEST_ALONE" in os.environ:
        return None
    seeds = [
        f"--{name}-seed={pyfuncitem.config.getoption(f'{name}_seed')}"
        for name in ("randomly", "hypothesis")
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", *seeds]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {
        "SWEEP_TEST_ALONE": "1"
    }
    ran = subprocess.run(
        [*command, pyfuncitem.nodeid],
        cwd=pyfuncitem.config.rootpath,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return True


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real S3 server with a bucket; the environment has its credentials."""
    with running(S3(tmp_path_factory.mktemp("s3") / "data")) as found:
        yield found


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of Azurite, installed for this run of the tests."""
    return install_azurite(tmp_path_factory.mktemp("azurite"))


@pytest.fixture(scope="module")
def azure_server(azurite: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that speaks Azure's protocol, with a container; the environment has its credentials."""
    with running(Azure(tmp_path_factory.mktemp("azure") / "data", azurite)) as found:
        yield found


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Server:
    """A real object store with a bucket, of each kind; the environment has its credentials."""
    found: Server = request.getfixturevalue(request.param)
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that records times for `tools/choose_tests.py`."""
    parser.addoption("--times", metavar="FILE", help="append the seconds of each test to this file")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """With ``--times``, write down how long a test took."""
    if RECORDED:
        with RECORDED[0].open("a") as file:
            file.write(f"{report.duration:.3f} {report.nodeid}\n")


RECORDED: list[Path] = []
"""The file of ``--times``; empty without it, and in workers, whose reports come to the main process."""


def pytest_configure(config: pytest.Config) -> None:
    """Note where times are written."""
    if config.option.times and not hasattr(config, "workerinput"):
        RECORDED[:] = [Path(config.option.times)]


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that are left to `make test-all`."""
    if item.nodeid in SLOW_TESTS:
        item.add_marker("slow")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker of several, put the heaviest files first."""
    if hasattr(config, "workerinput"):
        items[:] = spreading.heaviest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker whole files, whatever ``--dist`` says but "no"."""
    return spreading.scheduler(config, log)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """With ``--durations``, say where the time went by folder as well."""
    if config.getoption("durations") is None:
        return
    terminalreporter.section("time by folder, of all workers together")
    for line in spreading.by_folder(
        one for reports in terminalreporter.stats.values() for one in reports
    ):
        terminalreporter.write_line(line)


@pytest.fixture
def default_sighup() -> Iterator[None]:
    """Give SIGHUP its default action during a test; processes that are started by nohup ignore it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
