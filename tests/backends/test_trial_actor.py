"""What a worker on Ray finds out about the node that it runs on."""

from __future__ import annotations

import pytest

from sweep.contract import Devices

pytestmark = pytest.mark.ray
NODE = {"CPU": 64.0, "GPU": 2.0, "memory": 1e11}


@pytest.mark.parametrize(
    ("devices", "room", "node", "expected"),
    [
        (Devices(cpus=1), 99, NODE, 64),
        (Devices(cpus=1), 3, NODE, 3),  # on all nodes together there are no more
        (Devices(cpus=1, gpus=1), 8, NODE, 2),  # though CPUs for many more are free
        (Devices(cpus=1, gpus=0.5), 8, NODE, 4),
        (Devices(cpus=0, gpus=1), 8, NODE, 2),
        (Devices(cpus=2), 8, {"CPU": 3.0}, 1),
        (Devices(cpus=0.2), 8, {"CPU": 0.6}, 3),  # though 0.6 / 0.2 is 2.9999999999999996
        (Devices(cpus=1), 8, {}, 1),  # Ray does not know the node
    ],
)
def test_how_many_trials_run_at_once_on_a_node(
    devices: Devices, room: int, node: dict[str, float], expected: int
) -> None:
    from sweep.backends.ray_tune.trial_actor import count_trials_at_once

    assert count_trials_at_once(devices, room, node) == expected
