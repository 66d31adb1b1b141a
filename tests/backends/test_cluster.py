from __future__ import annotations

import os
import re
import socket
import time

import pytest
from ray._private import worker
from ray.exceptions import AuthenticationError

from sweep.backends.ray_tune import cluster, ray_folder
from sweep.backends.ray_tune.cluster import Cluster, ConcurrencyLimits
from sweep.backends.ray_tune.nodes import Node
from sweep.contract import Devices
from sweep.errors import InputError


def test_an_address_where_nobody_listens_is_told_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with (
        pytest.raises(InputError, match=f"--address: nobody answers at {address}"),
        cluster.connect(address, None, id),
    ):
        pass


def test_an_address_of_ipv6_is_tried_without_its_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**given: object) -> None:
        raise ConnectionError(f"asked for {given['address']}")

    monkeypatch.setattr("ray.init", refuse)
    with socket.socket(socket.AF_INET6) as listening:
        try:
            listening.bind(("::1", 0))
        except OSError:
            pytest.skip("needs IPv6")
        listening.listen()
        address = f"[::1]:{listening.getsockname()[1]}"
        with (
            pytest.raises(InputError, match=re.escape(f"asked for {address}")),
            cluster.connect(address, None, id),
        ):
            pass


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (AuthenticationError("no file: /token. Ensure that it is there"), "no file: /token; "),
        (RuntimeError("Timed out waiting for file /tmp/ray"), "for file /tmp/ray; "),
    ],
)
def test_a_ray_that_does_not_answer_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str, joins: bool
) -> None:
    def refuse(**given: object) -> None:
        raise error

    monkeypatch.setattr("ray.init", refuse)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}" if joins else None
        with (
            pytest.raises(InputError, match=re.escape(message)),
            cluster.connect(address, None, id),
        ):
            pass


def test_simulated_gpus_leave_the_named_ones_to_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("RAY_TMPDIR", "nowhere")
    monkeypatch.setattr(ray_folder, "FOLDERS", ("nowhere",))
    with pytest.raises(InputError, match="is no absolute path"), cluster.connect(None, 1, id):
        pass
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"


def there(
    *nodes: tuple[float, float], promised: tuple[tuple[Node, int], ...] = (), local: bool = False
) -> Cluster:
    return Cluster(local, lambda: [Node(cpus, gpus) for cpus, gpus in nodes], lambda: promised)


@pytest.mark.parametrize(
    ("nodes", "devices", "fits"),
    [
        ([(4, 2)], Devices(1, 0), 4),
        ([(4, 2)], Devices(3, 0), 1),
        ([(4, 2)], Devices(1, 1), 2),
        ([(4, 2)], Devices(0.5, 0.5), 4),
        ([(4, 0), (4, 0)], Devices(3), 2),  # of the 8 CPUs, two would be left together
        ([(2, 0), (2, 0)], Devices(3), 0),
        ([(8, 0), (2, 2), (1, 4)], Devices(1, 1), 3),
        ([(0.3, 0)], Devices(0.1), 3),
        # a share lies within one GPU, so the rest of each GPU stays free
        ([(8, 4)], Devices(1, 0.6), 4),
        ([(16, 4), (16, 1)], Devices(1, 0.3), 15),
        ([(8, 1.5)], Devices(1, 0.5), 3),
    ],
)
def test_trials_at_once_are_counted_by_node(
    nodes: list[tuple[float, float]], devices: Devices, fits: int
) -> None:
    assert there(*nodes).fits(devices) == fits


@pytest.mark.parametrize(
    ("nodes", "devices", "workers", "fits"),
    [
        ([(4, 2)], Devices(1, 1), 2, 1),
        ([(4, 2), (4, 2)], Devices(1, 2), 2, 1),  # over two nodes
        ([(4, 0), (4, 0)], Devices(3), 3, 0),
        ([(8, 0)], Devices(1), 3, 2),
        ([(0.3, 0)], Devices(0.1), 3, 1),
    ],
)
def test_workers_of_a_trial_may_be_on_several_nodes(
    nodes: list[tuple[float, float]], devices: Devices, workers: int, fits: int
) -> None:
    assert there(*nodes).fits(devices, workers) == fits


def test_servers_and_a_coordinator_take_room_without_gpus() -> None:
    cluster = Cluster(there=lambda: (Node(4, 2), Node(2, 0)), promised=lambda: ())
    assert cluster.fits(Devices(1, 1), workers=1, aside=2) == 2
    assert cluster.fits(Devices(1, 0), workers=1, aside=2) == 2
    assert cluster.fits(Devices(1, 0), workers=2, aside=3) == 1
    cluster.require(Devices(1, 1), workers=2, aside=4)
    told = r"resources\.servers: a trial takes 7 processes of 1 CPU each \(workers: 2, servers: 4, .* has room for 6"
    with pytest.raises(InputError, match=told):
        cluster.require(Devices(1, 1), workers=2, aside=5)


def test_more_workers_than_there_is_room_for_are_refused() -> None:
    with pytest.raises(
        InputError,
        match=r"resources.workers: a trial takes 3 workers of 1 CPU and 2 GPU each, the cluster has room for 2",
    ):
        there((4, 2), (4, 2)).require(Devices(1, 2), 3)
    with pytest.raises(
        InputError, match="takes 3 workers of 1 CPU each, this machine has room for 2; lower it"
    ):
        there((2, 0), local=True).room(Devices(1), ConcurrencyLimits(), 3)
    with pytest.raises(InputError, match=r"resources.cpus: a trial takes 5"):
        there((4, 2)).require(Devices(5), 2)
    assert there((2, 0), (2, 0)).room(Devices(1), ConcurrencyLimits(), 2)() == 2


def test_more_than_a_node_has_names_the_ways_out() -> None:
    with pytest.raises(
        InputError,
        match=r"resources.gpus: a trial takes 3, the largest node has 2; .*--simulate-gpus",
    ):
        there((4, 2), (4, 2)).require(Devices(1, 3))
    with pytest.raises(
        InputError, match=r"resources.cpus: a trial takes 5, the largest node has 4; lower it"
    ):
        there((4, 2), (4, 2)).require(Devices(5))
    with pytest.raises(InputError, match="resources: no node has 4 CPUs and 2 GPUs together"):
        there((4, 0), (1, 2)).require(Devices(4, 2))


def test_what_an_autoscaler_can_bring_counts() -> None:
    promised = ((Node(8, 2), 3), (Node(1, 0), 5))
    nodes = [[], [(8.0, 2.0)], [(8.0, 2.0)] * 2, [(8.0, 2.0)] * 3]
    assert [there(*found, promised=promised).fits(Devices(4, 1)) for found in nodes] == [2, 4, 6, 6]
    cluster = there((1, 0), promised=promised)
    cluster.require(Devices(8))
    with pytest.raises(InputError, match="a trial takes 9, the largest node has 8"):
        cluster.require(Devices(9))


def test_room_follows_nodes_that_join_and_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [Node(2, 0)]
    joined, local = (
        Cluster(local, lambda: nodes, lambda: ()).room(Devices(), ConcurrencyLimits(5))
        for local in (False, True)
    )
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert (joined(), local()) == (2, 2)
    nodes += [Node(2, 0), Node(2, 0)]
    assert joined() == 2  # not asked at every turn
    now += 10
    assert (joined(), local()) == (5, 2)
    nodes.clear()
    now += 10
    assert joined() == 1  # a trial waits for a node to come


def test_what_ray_says_goes_where_its_other_words_go(capsys: pytest.CaptureFixture[str]) -> None:
    theirs = worker.print_to_stdstream
    with cluster.redirect_ray_messages(print):
        worker.print_to_stdstream(
            {"lines": ["\x1b[31ma worker died"], "pid": "raylet", "is_err": False},
            ignore_prefix=False,
        )
    assert worker.print_to_stdstream is theirs
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", "Ray: a worker died\n")


def test_a_ray_that_does_not_come_up_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(*, num_cpus: int, **how: object) -> None:
        assert num_cpus == 3  # those to which this process is bound, which Ray does not look at
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 5}, raising=False)
    monkeypatch.setattr(cluster.ray, "init", init)
    with (
        pytest.raises(
            InputError, match=r"ray: it has not started: The current node timed out .*doctor"
        ),
        cluster.connect(None, None, lambda said: None),
    ):
        pass


def test_a_cluster_that_refuses_without_a_word_is_told_by_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def init(**how: object) -> None:
        raise ConnectionError

    monkeypatch.setattr(cluster.ray, "init", init)
    with (
        pytest.raises(
            InputError,
            match="--address: 'auto': ConnectionError; expected a running cluster's host:port",
        ),
        cluster.connect("auto", None, lambda said: None),
    ):
        pass


def test_an_autoscaler_that_does_not_say_what_it_brings_is_asked() -> None:
    cluster = there((0, 0), promised=((Node(0, 0, is_known=False), 1000),))
    cluster.require(Devices(4, 1), workers=2)
    assert cluster.fits(Devices(4, 1)) == 8
    assert there(*[(8, 2)] * 20, promised=cluster.promised()).fits(Devices(4, 1)) == 80
