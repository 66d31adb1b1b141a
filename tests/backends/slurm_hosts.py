"""A Slurm over two "hosts": namespaces on a private bridge, each with processes, a name and a network of its own."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

COUNT = 2
CONF = """\
ClusterName=test
SlurmctldHost=h1(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=5
SlurmdTimeout=20
NodeName=h[1-2] NodeAddr=10.77.0.[1-2] CPUs=2 RealMemory=4000
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NEW = [
    "unshare",
    "--net",
    "--uts",
    "--pid",
    "--mount",
    "--ipc",
    "--fork",
    "--mount-proc",
    "--kill-child",
]
INSIDE = """\
hostname h{number}
mount --bind {folder}/hosts /etc/hosts
mkdir -p /tmp/ray
mount -t tmpfs tmpfs /tmp/ray
mount -t tmpfs tmpfs /dev/shm
ip link set lo up
touch {folder}/up-{number}
while :; do sleep 1000 & wait $!; done
"""


@dataclass
class Hosts:
    """The hosts, and the commands of Slurm on the first of them."""

    folder: Path
    bridge: subprocess.Popen[bytes]
    each: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    links: int = 0

    def call(self, command: str, number: int = 1) -> str:
        """What a command says on a host."""
        environment = {
            **os.environ,
            "SLURM_CONF": f"{self.folder}/slurm.conf",
            "PATH": f"{os.environ['PATH']}:/usr/sbin",
        }
        inside = [
            "nsenter",
            "-t",
            str(_child(self.each[number])),
            "-n",
            "-u",
            "-p",
            "-m",
            "-i",
            *command.split(),
        ]
        with (self.folder / "said.txt").open("a") as said:
            done = subprocess.run(
                inside, env=environment, stdout=subprocess.PIPE, stderr=said, text=True, timeout=60
            )
        return done.stdout.strip()

    def start(self, number: int) -> None:
        """Bring a host up, with its node of Slurm."""
        (self.folder / f"up-{number}").unlink(missing_ok=True)
        (self.folder / f"slurmd-h{number}.pid").unlink(missing_ok=True)
        (self.folder / f"spool-h{number}").mkdir(exist_ok=True)
        script = INSIDE.format(number=number, folder=self.folder)
        self.each[number] = subprocess.Popen([*NEW, "sh", "-e", "-c", script])
        while not (self.folder / f"up-{number}").exists():
            assert self.each[number].poll() is None
            time.sleep(0.05)
        self.links += 1
        here, there, outer = (
            f"v{self.links}.{os.getpid()}",
            f"w{self.links}.{os.getpid()}",
            self.bridge.pid,
        )
        for command in (
            f"ip link add {here} type veth peer name {there}",
            f"ip link set {there} netns {_child(self.each[number])}",
            f"ip link set {here} netns {outer}",
            f"nsenter -t {outer} -n ip link set {here} master br0",
            f"nsenter -t {outer} -n ip link set {here} up",
            f"nsenter -t {_child(self.each[number])} -n ip link set {there} name eth0",
            f"nsenter -t {_child(self.each[number])} -n ip addr add 10.77.0.{number}/24 dev eth0",
            f"nsenter -t {_child(self.each[number])} -n ip link set eth0 up",
        ):
            subprocess.run(command.split(), check=True)
        if number == 1:
            self.call(f"slurmctld -c -f {self.folder}/slurm.conf")
        self.call(f"slurmd -N h{number} -f {self.folder}/slurm.conf", number)

    def lose(self, number: int) -> None:
        """End a host as a loss of power would."""
        self.each[number].kill()
        self.each[number].wait()


def _child(parent: subprocess.Popen[bytes]) -> int:
    return int(Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()[0])


@contextmanager
def running(folder: Path) -> Iterator[Hosts]:
    """Yield hosts that are up, with an idle Slurm."""
    munge = folder / "munge"
    munge.mkdir(parents=True)
    (folder / "state").mkdir()
    munge.chmod(0o755)
    (munge / "key").write_bytes(secrets.token_bytes(1024))
    (munge / "key").chmod(0o400)
    (folder / "slurm.conf").write_text(CONF.format(folder=folder))
    names = "".join(f"10.77.0.{number} h{number}\n" for number in range(1, COUNT + 1))
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
    command = f"munged -S {munge}/sock --key-file={munge}/key --pid-file={munge}/pid --seed-file={munge}/seed"
    with (folder / "said.txt").open("a") as said:
        path = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
        subprocess.run(
            [*command.split(), f"--log-file={munge}/log", "--force"],
            env=path,
            check=True,
            stdout=said,
            stderr=said,
        )
    hosts = Hosts(folder, subprocess.Popen(["unshare", "--net", "sleep", "infinity"]))
    try:
        time.sleep(0.5)
        for command in (
            "ip link add br0 type bridge",
            "ip addr add 10.77.0.254/24 dev br0",
            "ip link set br0 up",
        ):
            subprocess.run(
                ["nsenter", "-t", str(hosts.bridge.pid), "-n", *command.split()], check=True
            )
        for number in range(1, COUNT + 1):
            hosts.start(number)
        for _ in range(300):
            if hosts.call("sinfo -h -t idle -o %D") == str(COUNT):
                break
            time.sleep(0.1)
        yield hosts
    finally:
        for process in (*hosts.each.values(), hosts.bridge):
            process.kill()
            process.wait()
        subprocess.run(["kill", "-9", (munge / "pid").read_text().strip()], check=False)
