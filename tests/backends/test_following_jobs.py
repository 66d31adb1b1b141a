"""How a job's output is followed: what Ray's client raises, and Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest

from sweep.backends.ray_tune.jobs import Jobs
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
