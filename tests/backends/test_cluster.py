from __future__ import annotations

import socket

import pytest
from ray._private import worker

from sweep.backends.ray_tune import cluster
from sweep.contract import Devices
from sweep.errors import InputError


def test_an_address_where_nobody_listens_is_told_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with (
        pytest.raises(InputError, match=f"--address: nobody answers at {address}"),
        cluster.connect(address, None, id, id),
    ):
        pass


@pytest.mark.parametrize(
    ("devices", "fits"), [(Devices(1, 0), 4), (Devices(3, 0), 1), (Devices(1, 1), 2), (Devices(0.5, 0.5), 4)]
)
def test_trials_at_once_are_bound_by_the_scarcest(devices: Devices, fits: int) -> None:
    assert cluster.Cluster(4.0, 2.0).fits(devices) == fits


def test_more_than_there_is_names_the_ways_out() -> None:
    with pytest.raises(InputError, match=r"resources.gpus: a trial takes 3, the cluster has 2; .*--simulate-gpus"):
        cluster.Cluster(4.0, 2.0).fits(Devices(1, 3))


def test_what_ray_says_goes_where_its_other_words_go(capsys: pytest.CaptureFixture[str]) -> None:
    theirs = worker.print_to_stdstream
    with cluster._hushed():
        worker.print_to_stdstream(
            {"lines": ["\x1b[31ma worker died"], "pid": "raylet", "is_err": False}, ignore_prefix=False
        )
    assert worker.print_to_stdstream is theirs
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", "Ray: a worker died\n")
