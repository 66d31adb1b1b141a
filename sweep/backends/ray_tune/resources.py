"""The resources of a running Ray cluster as JSON: ``python -m sweep.backends.ray_tune.resources HOST:PORT``.

A process of its own, because Ray tries for five minutes to reach an address where nobody answers.
"""

from __future__ import annotations

import json
import sys

import ray


def main(address: str) -> None:
    """Join, look, leave."""
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    there = ray.cluster_resources()
    ray.shutdown()
    sys.stdout.write(json.dumps({"cpus": there.get("CPU", 0.0), "gpus": there.get("GPU", 0.0)}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
