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
        """Whether the job has ended: with success, with an error, or because it was stopped."""
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
        """Return all jobs that run or have run sweeps, sorted by the time of their start, and then by id.

        Jobs without such a time come first. Jobs that run something else are left out. Raises `InputError` if the
        dashboard does not answer or refuses the request.
        """
        with self._asking():
            found = [one for one in self._client.list_jobs() if "sweep" in (one.metadata or {})]
        return sorted(
            (_make_job(one) for one in found), key=lambda job: (job.started or 0.0, job.id)
        )

    def find(self, sweep: str) -> SweepJob:
        """Return the latest job of a sweep: of this user's, or of another user's sweep if written as ``user/sweep``.

        The job may be over. Raises UnknownNameError if the sweep has none, and `InputError` if the dashboard does not
        answer or refuses the request.
        """
        submitted = self.sweeps()
        address = sweep if "/" in sweep else f"{dashboard.get_user()}/{sweep}"
        found = [job for job in submitted if job.address == address]
        if not found:
            names = ", ".join(dict.fromkeys(job.address for job in submitted)) or "none"
            what = f"no such sweep of {address.partition('/')[0]} was submitted to {self._address}"
            raise UnknownNameError.one(sweep, what, f"submitted are: {names}")
        return found[-1]  # the latest, because they are sorted by time

    def submit(
        self,
        entrypoint: str,
        package: Path,
        about: Mapping[str, str],
        requirements: Sequence[str],
        env: Mapping[str, str],
    ) -> str:
        """Submit a job that runs the command line ``entrypoint`` on the cluster, and return its id.

        The id is ``sweep-USER-SWEEP-NUMBER``. On a cluster that has just started, this waits up to 60 s until it can
        run jobs.

        Arguments:
            package: the folder or archive with the files that the job needs.
            about: the sweep's name, its results and its file, under the keys ``sweep``, ``results`` and ``file``;
                perhaps ``user``, who is otherwise this user, and further keys, which `get_metadata` returns.
            requirements: packages that pip installs for the job.
            env: environment variables of the job; they take precedence over those that this method sets.

        Raises:
            RefusedError: if the sweep's latest job is not over, or the results have a sweep of that name by another
                user.
            InputError: if the dashboard does not answer or refuses the job.
        """
        user = about.get("user") or dashboard.get_user()
        submitted = self.sweeps()
        earlier = [job for job in submitted if job.address == f"{user}/{about['sweep']}"]
        if earlier and not earlier[-1].is_over:
            what = f"is being run by job {earlier[-1].id} of {self._address}"
            raise RefusedError.one(
                about["sweep"], what, f"stop it first, or follow it: sweep logs {about['sweep']}"
            )
        owners = set()  # users whose sweep would have the same folder
        for job in submitted:
            if (job.sweep, job.results) == (about["sweep"], about["results"]):
                owners.add(job.user)
        if others := owners - {user}:
            what = f"{about['results']} has a sweep of that name by {', '.join(sorted(others))}"
            raise RefusedError.one(
                about["sweep"], what, "choose another name, or results of your own: --results ..."
            )
        environment: dict[str, Any] = {
            "working_dir": str(package),
            "env_vars": {
                "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_S),
                "SWEEP_USER": user,
                SUBMITTED_TO: self._address,  # tells the sweep that it runs as a job of this dashboard
                **env,
            },
        }
        if requirements:
            environment["pip"] = [*requirements]
        # Ray refuses an id that it has had before, perhaps for the sweep b-c of user a, if this is c of a-b
        base = f"sweep-{user}-{about['sweep']}"
        numbers = []
        for job in submitted:
            if job.id.rpartition("-")[0] == base:
                numbers.append(_parse_job_number(job))
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

        ``job`` are the arguments of Ray's `submit_job`. Raises RuntimeError if the cluster refuses the job, or still
        has no agent after 60 s.
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

        It is empty for a job without metadata. Raises `InputError` if the dashboard does not answer or refuses the
        request, as for an unknown id.
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

        Waits for each piece, which may have several lines or end within one. Raises `InputError`, also after pieces
        were yielded, if the dashboard does not answer or refuses the request.
        """
        pieces = self._client.tail_job_logs(job)  # an asynchronous generator

        async def read_piece() -> str | None:
            text: str | None = await anext(pieces, None)
            return text

        with asyncio.Runner() as runner:  # at its end, also by Ctrl-C, it closes `pieces`
            while True:
                with self._asking():
                    text = runner.run(read_piece())
                if text is None:  # the job has ended
                    return
                yield text

    def wait(self, job: str) -> SweepJob:
        """Wait until the job with this id is over, however long that takes, and return it.

        Asks the dashboard every 0.5 s. Raises `InputError` as soon as it does not answer or refuses a request, as for
        an unknown id.
        """
        while True:
            with self._asking():
                found = _make_job(self._client.get_job_info(job))
            if found.is_over:
                return found
            time.sleep(_POLL_S)

    def stop(self, job: str) -> SweepJob:
        """Stop the job with this id, wait until it is over and return it; Ray kills one that takes 300 s.

        A job that is over already is only returned. Raises `InputError` if the dashboard does not answer or refuses a
        request, as for an unknown id.
        """
        with self._asking():
            self._client.stop_job(job)
        return self.wait(job)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Raise `InputError` in place of the errors by which Ray's client says that the dashboard refuses a request.

        These are errors of the network and of Ray's authentication, and every OSError, RuntimeError or ValueError of
        the block. An `InputError` or `StoreError` that the block raises passes unchanged, like any other exception.
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
    """Return the number after the last hyphen of a job's id, of the whole id without hyphens; 0 if it is no number."""
    last = job.id.rpartition("-")[2]
    return int(last) if last.isdecimal() else 0


def _make_job(found: Any) -> SweepJob:
    """Convert Ray's description of a job to a `SweepJob`.

    A failed job whose driver has the exit code of an interruption counts as stopped. What the metadata lack is ``""``.
    """
    about = found.metadata or {}
    started = None if found.start_time is None else found.start_time / 1000  # Ray counts in ms
    state = str(getattr(found.status, "value", found.status))  # an enumeration or a text
    if state == "FAILED" and found.driver_exit_code == interruption.CODE:
        state = "STOPPED"  # its driver was asked to stop
    user, sweep, results, file = (
        str(about.get(key, "")) for key in ("user", "sweep", "results", "file")
    )
    return SweepJob(
        found.submission_id or "", user, sweep, results, file, state, found.message or "", started
    )
