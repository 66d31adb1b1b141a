"""This sweep's record among the jobs of Ray's dashboard, with a dictionary for Ray's key-value store."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray._private import state
from ray.experimental import internal_kv
from waiting import until

from sweep.backends import SweepStatus
from sweep.backends.ray_tune import dashboard
from sweep.backends.ray_tune.dashboard import (
    FAILED,
    PREFIX,
    RUNNING,
    STOPPED,
    SUCCEEDED,
    JobPage,
    describe_status,
    make_job_metadata,
)

pytestmark = pytest.mark.ray
ABOUT = {"job_submission_id": "sweep-some-abc", "sweep": "some"}
VITALS = SweepStatus(
    trials={"running": 2, "completed": 3, "pruned": 4, "failed": 0},
    total=27,
    epochs=123,
    epochs_per_s=4.5,
    metric="val_accuracy",
    goal="maximize",
    best=0.98061,
    best_trials=(4,),
    left_s=125.0,
)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, dict[str, Any]]:
    """What is in the key-value store, by key."""
    held: dict[bytes, dict[str, Any]] = {}

    def key_of(key: str | bytes) -> bytes:
        return key.encode() if isinstance(key, str) else key

    def put(key: str | bytes, value: str, *, namespace: str) -> None:
        held[key_of(key)] = json.loads(value)

    def get(key: str | bytes, *, namespace: str) -> bytes | None:
        found = held.get(key_of(key))
        return None if found is None else json.dumps(found).encode()

    monkeypatch.setattr(internal_kv, "_internal_kv_put", put)
    monkeypatch.setattr(internal_kv, "_internal_kv_get", get)
    monkeypatch.setattr(
        internal_kv,
        "_internal_kv_list",
        lambda key, *, namespace: [k for k in held if k.startswith(key_of(key))],
    )
    monkeypatch.setattr(
        ray, "get_runtime_context", lambda: SimpleNamespace(get_job_id=lambda: "01")
    )
    monkeypatch.setattr(dashboard, "EVERY_S", 0.01)
    monkeypatch.delenv(dashboard.SUBMITTED, raising=False)
    return held


def test_a_pointer_has_a_name_that_fits_into_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEP_USER", "Ann B")
    found = make_job_metadata("größe 高/x", "0123456789ab", print)
    assert found == {
        "job_submission_id": "sweep-gr--e---x-012345",
        "sweep": "größe 高/x",
        "user": "Ann-B",
    }


def test_words_for_a_line_and_for_the_page() -> None:
    line, told = describe_status(VITALS)
    assert line == "7 of 27 trials; best val_accuracy 0.9806 (trial 4); about 2 min 05 s left"
    assert told == {
        "objective": "val_accuracy, maximize",
        "progress": "7 of 27 trials, 123 epochs",
        "trials": "2 running, 3 completed, 4 pruned",
        "running": "2",
        "best": "val_accuracy 0.9806 (trial 4)",
        "left": "about 2 min 05 s",
    }


def test_one_trial_is_no_trials() -> None:
    one = replace(VITALS, trials={"completed": 1}, total=None, epochs=1, best=None, left_s=None)
    assert (describe_status(one)[0], describe_status(one)[1]["progress"]) == (
        "1 trial",
        "1 trial, 1 epoch",
    )


def test_a_page_from_its_first_word_to_its_last(store: dict[bytes, dict[str, Any]]) -> None:
    page = JobPage(ABOUT, shared=False)
    key = f"{PREFIX}sweep-some-abc".encode()
    assert (store[key]["status"], store[key]["metadata"]) == (
        RUNNING,
        {"sweep": "some", "job_id": "01"},
    )
    page.show(RUNNING, "9 of 27 trials", {"best": "0.98"})
    until(lambda: store[key]["message"] == "9 of 27 trials")
    assert store[key]["metadata"] == {"sweep": "some", "job_id": "01", "best": "0.98"}
    assert store[key]["end_time"] is None
    page.show(SUCCEEDED, "27 of 27 trials", {})
    page.close()
    assert (store[key]["status"], store[key]["message"]) == (SUCCEEDED, "27 of 27 trials")
    assert store[key]["end_time"] >= store[key]["start_time"]


def test_a_page_that_nobody_ended_says_stopped(store: dict[bytes, dict[str, Any]]) -> None:
    JobPage(ABOUT, shared=False).close()
    assert store[f"{PREFIX}sweep-some-abc".encode()]["status"] == STOPPED


def test_a_submitted_job_keeps_its_record_and_gets_our_words(
    store: dict[bytes, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        dashboard.SUBMITTED, json.dumps({"metadata": {"job_submission_id": "raysubmit_1"}})
    )
    key = f"{PREFIX}raysubmit_1".encode()
    theirs = {
        "status": "RUNNING",
        "message": "Job is currently running.",
        "metadata": {"owner": "me"},
        "x": 1,
    }
    store[key] = dict(theirs)
    page = JobPage(ABOUT, shared=False)
    page.show(SUCCEEDED, "27 of 27 trials", {"best": "0.98"})
    page.close()
    assert store == {
        key: {
            **theirs,
            "message": "27 of 27 trials",
            "metadata": {"owner": "me", "sweep": "some", "job_id": "01", "best": "0.98"},
        }
    }


def test_sweeps_whose_drivers_were_killed_are_given_up(
    store: dict[bytes, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(job: str, status: str = RUNNING, **more: str) -> dict[str, Any]:
        return {
            "status": status,
            "message": "3 of 9",
            "metadata": {"sweep": "s", "job_id": job, **more},
        }

    monkeypatch.setattr(
        state, "jobs", lambda: [{"JobID": "02", "IsDead": False}, {"JobID": "03", "IsDead": True}]
    )
    jobs = {
        "lives": record("02"),
        "dead": record("03"),
        "gone": record("99"),
        "done": record("99", SUCCEEDED),
    }
    jobs["starts"] = {"status": RUNNING, "metadata": {"sweep": "s", "file": "s.yaml"}}  # submitted
    store.update({f"{PREFIX}sweep-{name}".encode(): one for name, one in jobs.items()})
    store[f"{PREFIX}other".encode()] = record("99")
    dashboard.mark_lost_sweeps_failed()
    found = {key.decode().removeprefix(f"{PREFIX}"): one["status"] for key, one in store.items()}
    assert found == {
        "sweep-lives": RUNNING,
        "sweep-dead": FAILED,
        "sweep-gone": FAILED,
        "sweep-done": SUCCEEDED,
        "sweep-starts": RUNNING,
        "other": RUNNING,
    }
    assert (
        store[f"{PREFIX}sweep-dead".encode()]["message"]
        == "its driver was killed; before that: 3 of 9"
    )


def test_a_store_that_does_not_answer_harms_nothing(
    store: dict[bytes, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*given: object, **named: object) -> None:
        raise RuntimeError("no GCS")

    monkeypatch.setattr(internal_kv, "_internal_kv_put", fail)
    page = JobPage(ABOUT, shared=True)
    page.show(RUNNING, "x", {})
    page.close()
    assert capsys.readouterr().err == "Ray's job page is not kept: RuntimeError: no GCS\n"
