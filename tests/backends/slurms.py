"""A Slurm of one node on loopback, without systemd: munged, slurmctld and slurmd, ended with the block."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = (
    "munged",
    "slurmctld",
    "slurmd",
    "sbatch",
    "scancel",
    "scontrol",
    "sinfo",
    "squeue",
    "srun",
)
CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=5
MinJobAge=3600
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> list[str]:
    """What of Slurm this machine does not have."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


@contextmanager
def running(folder: Path) -> Iterator[Mapping[str, str]]:
    """Yield the environment of commands for a Slurm in this folder."""
    for name in ("state", "munge", "spool"):
        (folder / name).mkdir(parents=True)
    (folder / "munge").chmod(0o755)
    (folder / "munge" / "key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge" / "key").chmod(0o400)
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(host=socket.gethostname(), folder=folder, ports=_free(2)))
    environment = {**os.environ, "SLURM_CONF": str(conf), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    munge = folder / "munge"
    try:
        for command in (
            f"munged -S {munge}/sock --key-file={munge}/key --pid-file={munge}/pid --seed-file={munge}/seed "
            f"--log-file={munge}/log --force",
            f"slurmctld -c -f {conf}",
            f"slurmd -N n1 -f {conf}",
        ):
            # they leave children, which would hold a pipe
            with (folder / "said.txt").open("a") as said:
                subprocess.run(
                    command.split(),
                    env=environment,
                    check=True,
                    stdout=said,
                    stderr=said,
                    timeout=60,
                )
        for _ in range(300):
            if call(environment, "sinfo -h -t idle -o %D") == "1":
                break
            time.sleep(0.1)
        yield environment
    finally:
        call(environment, "scancel -u root")
        for pid in (*folder.glob("*.pid"), munge / "pid"):
            subprocess.run(["kill", "-9", pid.read_text().strip()], check=False)


def call(environment: Mapping[str, str], command: str) -> str:
    """What one of Slurm's commands says."""
    done = subprocess.run(
        command.split(), env=dict(environment), capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def _free(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
