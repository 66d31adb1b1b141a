"""Sweeps as jobs of a Ray cluster: submitted through its dashboard's address, followed, stopped, and found by name."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep import interruption
from sweep.backends.ray_tune import dashboard
from sweep.errors import InputError, RefusedError, StoreError, UnknownNameError, first_line
from sweep.store.sweep_info import SUBMITTED_TO

STOP_S = 300
"""Seconds that a stopped driver has for saving its trials before Ray kills it."""

AGENT_S = 60.0
"""Seconds that a cluster which has just started has for starting the agent that runs jobs."""

_WHERE = "--address"
_NO_AGENT = "No available agent to submit job"
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class SweepJob:
    """A job of the cluster that runs, or has run, a session of a sweep."""

    id: str
    user: str
    sweep: str
    results: str  # folder or URL
    file: str  # the sweep file, relative to the package
    state: str  # "PENDING", "RUNNING", "SUCCEEDED", "FAILED" or "STOPPED"
    message: str
    started: float | None  # seconds since 1970

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.state in ("SUCCEEDED", "FAILED", "STOPPED")

    @property
    def address(self) -> str:
        """Name by which any user can refer to the sweep, ``user/sweep``."""
        return f"{self.user}/{self.sweep}"


class Jobs:
    """The jobs of a cluster, by the address of its dashboard.

    All methods raise `InputError` if the dashboard does not answer or refuses a request.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        with self._asking():
            from ray.job_submission import JobSubmissionClient

            self._client: Any = JobSubmissionClient(address)
        for name in ("dashboard_sdk", "job.sdk"):  # silences their own reports of each upload
            logging.getLogger(f"ray.dashboard.modules.{name}").setLevel(logging.WARNING)

    def sweeps(self) -> list[SweepJob]:
        """Return all jobs that run or have run sweeps, sorted by the time of their start; those without one first.

        Raises `InputError` if the dashboard does not answer or refuses the request.
        """
        with self._asking():
            found = [one for one in self._client.list_jobs() if "sweep" in (one.metadata or {})]
        return sorted(
            (_make_job(one) for one in found), key=lambda job: (job.started or 0.0, job.id)
        )

    def find(self, sweep: str) -> SweepJob:
        """Return the latest job of a sweep: of this user's, or of another user's sweep if written as ``user/sweep``.

        Raises UnknownNameError if there is none, and `InputError` if the dashboard does not answer.
        """
        all_of_them = self.sweeps()
        address = sweep if "/" in sweep else f"{dashboard.get_user()}/{sweep}"
        found = [job for job in all_of_them if job.address == address]
        if not found:
            names = ", ".join(dict.fromkeys(job.address for job in all_of_them)) or "none"
            what = f"no such sweep of {address.partition('/')[0]} was submitted to {self._address}"
            raise UnknownNameError.one(sweep, what, f"submitted are: {names}")
        return found[-1]

    def submit(
        self,
        entrypoint: str,
        package: Path,
        about: Mapping[str, str],
        requirements: Sequence[str],
        env: Mapping[str, str],
    ) -> str:
        """Submit a job that runs the command line ``entrypoint`` on the cluster, and return its id.

        Arguments:
            package: the folder or archive with the files that the job needs.
            about: the sweep's name, its results and its file, under the keys ``sweep``, ``results`` and ``file``;
                perhaps ``user``, who is otherwise this user, and further keys, which `get_metadata` returns.
            requirements: packages that pip installs for the job.
            env: further environment variables of the job.

        Raises:
            RefusedError: if the sweep's latest job is not over, or the results have a sweep of that name by another
                user.
            InputError: if the dashboard does not answer or refuses the job.
        """
        user = about.get("user") or dashboard.get_user()
        there = self.sweeps()
        earlier = [job for job in there if job.address == f"{user}/{about['sweep']}"]
        if earlier and not earlier[-1].is_over:
            what = f"is being run by job {earlier[-1].id} of {self._address}"
            raise RefusedError.one(
                about["sweep"], what, f"stop it first, or follow it: sweep logs {about['sweep']}"
            )
        same = [
            job for job in there if (job.sweep, job.results) == (about["sweep"], about["results"])
        ]
        if theirs := {job.user for job in same} - {user}:
            what = f"{about['results']} has a sweep of that name by {', '.join(sorted(theirs))}"
            raise RefusedError.one(
                about["sweep"], what, "choose another name, or results of your own: --results ..."
            )
        environment: dict[str, Any] = {
            "working_dir": str(package),
            "env_vars": {
                "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_S),
                "SWEEP_USER": user,
                SUBMITTED_TO: self._address,
                **env,
            },
        }
        if requirements:
            environment["pip"] = [*requirements]
        # Ray refuses an id that it has had before, perhaps for the sweep b-c of user a, if this is c of a-b
        base = f"sweep-{user}-{about['sweep']}"
        numbers = [_parse_job_number(job) for job in there if job.id.rpartition("-")[0] == base]
        number = 1 + max(numbers, default=0)
        with self._asking():
            return self._submit_patiently(
                entrypoint=entrypoint,
                submission_id=f"{base}-{number}",
                runtime_env=environment,
                metadata={**about, "user": user},
            )

    def _submit_patiently(self, **job: Any) -> str:
        """Submit a job and return its id; try again for 60 s while a new cluster has no agent that runs jobs.

        ``job`` are the arguments of Ray's `submit_job`. Raises RuntimeError if the cluster refuses it.
        """
        until = time.monotonic() + AGENT_S
        while True:
            try:
                return str(self._client.submit_job(**job))
            except RuntimeError as error:
                if _NO_AGENT not in str(error) or time.monotonic() > until:
                    raise
            time.sleep(_POLL_S)

    def get_metadata(self, job: str) -> Mapping[str, str]:
        """Return the metadata of the job with this id: what `submit` got as ``about``, and keys for Ray's page.

        Raises `InputError` if the dashboard does not answer or refuses the request.
        """
        with self._asking():
            metadata: Mapping[str, str] | None = self._client.get_job_info(job).metadata
        return metadata or {}

    def logs(self, job: str) -> str:
        """Return what the job with this id has printed so far.

        Raises `InputError` if the dashboard does not answer or refuses the request, as for an unknown id.
        """
        with self._asking():
            return str(self._client.get_job_logs(job))

    def follow(self, job: str) -> Generator[str, None, None]:
        """Yield what the job with this id prints, piece by piece, from its beginning until the job ends.

        Raises `InputError`, also after pieces were yielded, if the dashboard does not answer or refuses the request.
        """
        lines = self._client.tail_job_logs(job)

        async def read() -> str | None:
            text: str | None = await anext(lines, None)
            return text

        with asyncio.Runner() as runner:  # at its end, also by Ctrl-C, it closes `lines`
            while True:
                with self._asking():
                    text = runner.run(read())
                if text is None:
                    return
                yield text

    def wait(self, job: str) -> SweepJob:
        """Wait until the job with this id is over, however long that takes, and return it.

        Raises `InputError` as soon as the dashboard does not answer or refuses a request.
        """
        while True:
            with self._asking():
                found = _make_job(self._client.get_job_info(job))
            if found.is_over:
                return found
            time.sleep(_POLL_S)

    def stop(self, job: str) -> SweepJob:
        """Stop the job with this id, wait until it is over and return it; Ray kills one that takes 300 s.

        Raises `InputError` if the dashboard does not answer or refuses a request.
        """
        with self._asking():
            self._client.stop_job(job)
        return self.wait(job)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Raise `InputError` instead if Ray's dashboard does not answer or refuses a request in the block.

        Any other OSError, RuntimeError or ValueError of the block becomes an `InputError` as well. An `InputError` or
        `StoreError` that the block raises passes unchanged.
        """
        import aiohttp
        import requests
        from ray.exceptions import AuthenticationError

        try:
            yield
        except (InputError, StoreError):  # raised by sweep itself, in words for the user
            raise
        except AuthenticationError as error:
            what = "refuses this token, or wants one"
            hint = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the cluster's own"
            raise InputError.one(f"{_WHERE} {self._address}", what, hint) from error
        except (OSError, requests.exceptions.RequestException, aiohttp.ClientError) as error:
            hint = "expected the address of a Ray dashboard, such as http://head:8265"
            raise InputError.one(f"{_WHERE} {self._address}", "does not answer", hint) from error
        except (RuntimeError, ValueError) as error:
            raise InputError.one(f"{_WHERE} {self._address}", first_line(error)) from error


def _parse_job_number(job: SweepJob) -> int:
    """Return the number after the last hyphen of a job's id; 0 if it has none."""
    last = job.id.rpartition("-")[2]
    return int(last) if last.isdecimal() else 0


def _make_job(found: Any) -> SweepJob:
    """Convert Ray's description of a job to a `SweepJob`; a job whose driver was interrupted counts as stopped."""
    about = found.metadata or {}
    started = None if found.start_time is None else found.start_time / 1000  # Ray counts in ms
    state = str(getattr(found.status, "value", found.status))  # an enumeration or a text
    # its driver was asked to stop
    if state == "FAILED" and found.driver_exit_code == interruption.CODE:
        state = "STOPPED"
    user, sweep, results, file = (
        str(about.get(key, "")) for key in ("user", "sweep", "results", "file")
    )
    return SweepJob(
        found.submission_id or "", user, sweep, results, file, state, found.message or "", started
    )
