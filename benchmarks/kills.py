"""Kills the processes of small sweeps at random moments, resumes them, and counts what is lost or differs.

    python benchmarks/kills.py --kills 50
    python benchmarks/kills.py --kills 30 --ranks     # of trials in two processes, with these as victims too
    python benchmarks/kills.py --kills 20 --warm      # of sweeps that a keeper runs: it is killed, and terminals are
    python benchmarks/kills.py --kills 20 --store     # in an S3 server: it is killed as well, and machines change

Prints one line per kill and a summary; the exit code is 1 if anything was lost, repeated or changed.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kills"))

from killing import OF_RANKS, SWEEPS, Tally, alone, compare, disturbed, some_victims
from object_stores import S3

from sweep.store.object_store import ObjectStore


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50, help="at least so many in all")
    parser.add_argument("--per-sweep", type=int, default=6, help="at most so many in one sweep")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sweeps", nargs="+", choices=list(SWEEPS))
    parser.add_argument(
        "--ranks",
        action="store_true",
        help="sweeps whose trials have two workers: kill these as well",
    )
    parser.add_argument(
        "--store", action="store_true", help="keep results in an S3 server, and kill that as well"
    )
    parser.add_argument(
        "--warm", action="store_true", help="with --keep-warm: kill keepers and terminals as well"
    )
    given = parser.parse_args()
    given.sweeps = given.sweeps or [name for name in SWEEPS if (name in OF_RANKS) == given.ranks]
    rng, tally = random.Random(given.seed), Tally()
    with tempfile.TemporaryDirectory(prefix="kills-") as scratch:
        store = S3(Path(scratch) / "s3") if given.store else None
        if store is not None:
            os.environ.update(store.environment)
            store.start()
            ObjectStore("s3://kills").put("made", b"")
        references = {name: alone(Path(scratch) / f"alone-{name}", name) for name in given.sweeps}
        rounds = 0
        while sum(tally.kills.values()) < given.kills:
            name = given.sweeps[rounds % len(given.sweeps)]
            path = Path(scratch) / f"{rounds:02d}-{name}"
            project = disturbed(
                path,
                name,
                some_victims(
                    given.per_sweep, rng, ranks=given.ranks, store=given.store, warm=given.warm
                ),
                rng,
                tally,
                lambda text: print(text, flush=True),
                store,
                warm=given.warm,
            )
            compare(project, references[name], tally)
            print(f"{sum(tally.kills.values())} kills, wrong so far: {tally.wrong()}", flush=True)
            rounds += 1
        print("\n".join(tally.remarks))
        if store is not None:
            store.kill()
    print(f"{rounds} sweeps, {tally}")
    return 1 if tally.wrong() else 0


if __name__ == "__main__":
    sys.exit(main())
