"""Jobs of a client that is no cluster's: how their output is followed, and what is told of one that was stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from zipfile import ZipFile

import aiohttp
import pytest
from click.testing import CliRunner

from sweep.backends.ray_tune.jobs import Jobs
from sweep.cli import main
from sweep.cli.submitting import JobOptions, stop_submitted_sweep
from sweep.errors import InputError

pytestmark = pytest.mark.ray


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch) -> Callable[[type], Jobs]:
    def make(client: type) -> Jobs:
        monkeypatch.setattr("ray.job_submission.JobSubmissionClient", lambda address: client())
        return Jobs("http://127.0.0.1:1")

    return make


class Printing:
    closed: bool = False

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        try:
            yield f"{job} begins\n"
            await asyncio.sleep(0)
            yield "and ends\n"
        finally:
            Printing.closed = True


class Refusing:
    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        yield "first\n"
        raise aiohttp.ClientPayloadError("cut off")


class Interrupted:
    closed: bool = False

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        try:
            yield "first\n"
            asyncio.get_running_loop().call_soon(raise_interrupt)
            await asyncio.sleep(60)
        finally:
            Interrupted.closed = True


def raise_interrupt() -> None:
    raise KeyboardInterrupt


def test_all_that_is_printed_is_yielded(follow: Callable[[type], Jobs]) -> None:
    assert list(follow(Printing).follow("job-1")) == ["job-1 begins\n", "and ends\n"]
    assert Printing.closed


def test_a_lost_connection_is_a_clear_error(follow: Callable[[type], Jobs]) -> None:
    texts = follow(Refusing).follow("job-1")
    assert next(texts) == "first\n"
    with pytest.raises(InputError, match="does not answer"):
        next(texts)


def test_ctrl_c_ends_it_and_closes_the_connection(follow: Callable[[type], Jobs]) -> None:
    texts = follow(Interrupted).follow("job-1")
    assert next(texts) == "first\n"
    with pytest.raises(KeyboardInterrupt):
        next(texts)
    assert Interrupted.closed


def test_whoever_stops_reading_closes_the_connection(follow: Callable[[type], Jobs]) -> None:
    Interrupted.closed = False
    texts = follow(Interrupted).follow("job-1")
    next(texts)
    texts.close()
    assert Interrupted.closed


class Cluster:
    """Runs no job, and refuses an id that it has had before, as Ray does."""

    jobs: ClassVar[list[Any]] = []

    def list_jobs(self) -> list[Any]:
        return self.jobs

    def submit_job(self, *, submission_id: str, metadata: dict[str, str], **job: Any) -> str:
        if any(one.submission_id == submission_id for one in self.jobs):
            raise RuntimeError(f"Job with submission_id {submission_id} already exists.")
        made = SimpleNamespace(
            submission_id=submission_id,
            metadata=metadata,
            start_time=len(self.jobs),
            status="RUNNING",
            driver_exit_code=None,
            message="",
        )
        self.jobs.append(made)
        return submission_id

    def stop_job(self, job: str) -> None:
        self.get_job_info(job).status = "STOPPED"

    def get_job_info(self, job: str) -> Any:
        (found,) = (one for one in self.jobs if one.submission_id == job)
        return found


@pytest.fixture
def submit(follow: Callable[[type], Jobs], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setattr(Cluster, "jobs", [])
    jobs = follow(Cluster)

    def call(user: str, sweep: str) -> str:
        about = {"user": user, "sweep": sweep, "results": f"/data/{user}", "file": "s.yaml"}
        return jobs.submit("true", Path("code.zip"), about, (), {})

    return call


def test_users_and_sweeps_of_which_ids_would_be_equal(submit: Callable[..., str]) -> None:
    assert submit("a-b", "c") == "sweep-a-b-c-1"
    assert submit("a", "b-c") == "sweep-a-b-c-2"
    assert submit("a", "b") == "sweep-a-b-1"
    Cluster().stop_job("sweep-a-b-c-1")
    assert submit("a-b", "c") == "sweep-a-b-c-3"


def test_the_command_that_goes_on_can_be_pasted(submit: Callable[..., str]) -> None:
    submit("ann", "lr wd")
    said = stop_submitted_sweep("ann/lr wd", "http://127.0.0.1:1")
    assert said.endswith("sweep resume 'ann/lr wd' --address http://127.0.0.1:1")


class Receiving(Cluster):
    """Records of each job which files it has, what pip installs for it, and its command."""

    received: ClassVar[list[tuple[list[str], list[str] | None, str]]] = []

    def submit_job(self, *, runtime_env: dict[str, Any], entrypoint: str, **job: Any) -> str:
        with ZipFile(runtime_env["working_dir"]) as package:
            files = package.namelist()
        self.received.append((files, runtime_env.get("pip"), entrypoint))
        return super().submit_job(**job)


PROJECT = {
    ".gitignore": "*.csv\n",
    "needs.txt": "# for all nodes\nnumpy\n",
    "s.yaml": "trainable: train:train\nmetric: {name: loss, goal: minimize}\nepochs: 1\n"
    "method: grid\nparameters: {rate: {values: [1]}}\n",
    "table.csv": "1\n",
    "train.py": "def train(hp, report):\n    report(loss=hp.rate)\n",
}


def test_a_resumed_sweep_has_what_it_was_sent_with(
    follow: Callable[[type], Jobs], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SWEEP_USER", "ann")
    monkeypatch.setattr(Cluster, "jobs", [])
    monkeypatch.setattr(Receiving, "received", [])
    follow(Receiving)

    def call(*arguments: str) -> str:
        return CliRunner().invoke(main, [*arguments, "--address", "http://127.0.0.1:1"]).output

    asked = ["--include", "table.csv", "--requirements", "needs.txt", "--retries", "2"]
    at_once = ["--max-concurrent", "2"]
    call("submit", "s.yaml", "--results", "/nowhere/results", *asked, *at_once)
    Receiving().stop_job("sweep-ann-s-1")
    call("resume", "s")
    (files, packages, command), again = Receiving.received
    assert sorted(files) == sorted(PROJECT)
    assert packages == ["numpy"]
    assert again[:2] == (files, packages)
    assert "[ $n -lt 2 ]" in command
    assert "[ $n -lt 2 ]" in again[2]
    assert "--max-concurrent 2" in command
    assert "--max-concurrent 2" in again[2]
    for other in (["--max-concurrent", "3"], []):  # it is kept for the next time
        Receiving().stop_job(f"sweep-ann-s-{len(Receiving.received)}")
        call("resume", "s", *other)
        assert "--max-concurrent 3" in Receiving.received[-1][2]
    Receiving().stop_job(f"sweep-ann-s-{len(Receiving.received)}")
    (tmp_path / "table.csv").unlink()
    assert "table.csv: was sent with --include, and is not in" in call("resume", "s")


@pytest.mark.parametrize("text", [None, "{}", '{"include": [], "of_a_later_release": 1}'])
def test_options_that_a_job_of_another_release_lacks_have_their_defaults(text: str | None) -> None:
    assert JobOptions.decode(text) == JobOptions()
