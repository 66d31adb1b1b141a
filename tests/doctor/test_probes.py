from __future__ import annotations

import pytest

from sweep.doctor import probes
from sweep.doctor.probes import NodePairResult, ProbeFailure
from sweep.doctor.programs import CommandResult


@pytest.mark.parametrize(
    ("ran", "expected"),
    [
        (CommandResult(0, 'a line of Ray\n{"cpus": 4.0, "gpus": 0.0}\n'), (4.0, 0.0)),
        (CommandResult(None, "", "retrying"), ProbeFailure("no answer in time; retrying")),
        (CommandResult(0, "chatter"), ProbeFailure("no JSON but 'chatter'")),
        (CommandResult(0, ""), ProbeFailure("exit code 0")),
        (
            CommandResult(1, "", "ray.exceptions.AuthenticationError: missing"),
            ProbeFailure(
                "it wants an authentication token (RAY_AUTH_TOKEN) and got none or another",
                "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to what ray get-auth-token says on its head node",
            ),
        ),
    ],
)
def test_answers_of_a_cluster(ran: CommandResult, expected: object) -> None:
    assert probes.probe_cluster(lambda command, timeout_s: ran, 1.0, "there:6379") == expected


def test_tensorflows_complaint_is_kept() -> None:
    answer = (
        '{"tensorflow": "2.21.0", "keras": "3.15.1", "backend": "tensorflow", "cuda": null, "cudnn": null, '
        '"architectures": [], "gpus": [{"name": "X", "capability": null}]}'
    )
    log = "I0000 00:00:1790000000.000000    4242 stub.cc:31] Could not find cuda drivers on your machine\nmore\n"
    found = probes.probe_tensorflow(lambda command, timeout_s: CommandResult(0, answer, log), 1.0)
    assert not isinstance(found, ProbeFailure)
    assert (found.complaint, found.capabilities) == (
        "Could not find cuda drivers on your machine",
        (None,),
    )


BOTH = '{"nodes": 2, "pairs": [{"nodes": ["a", "b"], "ran": [%s, %s]}]}'
GOOD = '[0, "{\\"latency_s\\": 0.001, \\"bytes_per_s\\": 2e9}", ""]'


@pytest.mark.parametrize(
    ("ran", "expected"),
    [
        (CommandResult(0, BOTH % (GOOD, GOOD)), (NodePairResult(("a", "b"), 0.001, 2e9),)),
        (CommandResult(0, '{"nodes": 1, "pairs": []}'), ()),
        (
            CommandResult(0, BOTH % (GOOD, '[null, "", "probe: meeting the other ranks"]')),
            (
                NodePairResult(
                    ("a", "b"), failure="on b: no answer in time during meeting the other ranks"
                ),
            ),
        ),
        (
            CommandResult(0, BOTH % ('[1, "", "No module named trainables"]', GOOD)),
            (NodePairResult(("a", "b"), failure="on a: exit code 1; No module named trainables"),),
        ),
        (
            CommandResult(0, BOTH % ('[0, "chatter", ""]', GOOD)),
            (NodePairResult(("a", "b"), failure="no JSON but 'chatter'"),),
        ),
        (CommandResult(None, ""), ProbeFailure("no answer in time")),
    ],
)
def test_answers_of_two_nodes(ran: CommandResult, expected: object) -> None:
    assert (
        probes.probe_node_pairs(lambda command, timeout_s: ran, 1.0, "there:6379", 9.0) == expected
    )


def test_what_keeps_tensorflow_from_tpus() -> None:
    assert probes.probe_tpu(
        lambda command, timeout_s: CommandResult(0, '{"missing": ["all"]}'), 1.0
    ) == ("all",)
    assert probes.probe_tpu(lambda command, timeout_s: CommandResult(-6, ""), 1.0) == ProbeFailure(
        "aborted by SIGABRT"
    )
