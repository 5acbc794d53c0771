"""A real Slurm on this machine: several slurmd on 127.0.0.1, with a munge, a slurmctld and a slurmdbd
with MariaDB of their own. For tests; everything lies in one folder and is ended by process id.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import held

PROGRAMS = (
    *("slurmctld", "slurmd", "munged", "sbatch", "slurmdbd", "mariadbd", "mariadb-install-db"),
    "my_print_defaults",  # mariadb-install-db calls it, from another package
)
_PORTS = range(16817, 30000, 200)  # below those that the kernel gives to clients
_DATABASE = 100


def problems() -> list[str]:
    """What is missing for a Slurm on this machine; empty where nothing is."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    found = [f"not installed: {', '.join(missing)} (scripts/setup.sh lab installs them)"] if missing else []
    return found + (["not root: munge and slurmd run as users of their own"] if os.getuid() != 0 else [])


def free_ports(nodes: int) -> tuple[int, socket.socket]:
    """First of the ports that a cluster takes, and the socket that holds them against other test sessions."""
    for first in _PORTS:
        anchor = socket.socket()
        try:
            anchor.bind(("127.0.0.1", first + _DATABASE + 1))
            anchor.listen(1)
            for port in (*range(first, first + nodes + 2), first + _DATABASE):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that is only timing out is free
                    probe.bind(("127.0.0.1", port))
                    probe.listen(1)
        except OSError:
            anchor.close()
        else:
            return first, anchor
    raise AssertionError(f"no {nodes + 3} free ports on 127.0.0.1 between {_PORTS.start} and {_PORTS.stop}")


@dataclass
class SlurmHere:
    """The cluster: nodes n1 to nN, partition `gpu` (default), and `short`, whose limit is 5 minutes."""

    folder: Path
    nodes: int
    port: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        """What Slurm's commands need to find this cluster and no other."""
        return {"SLURM_CONF": str(self.folder / "etc/slurm.conf")}

    def command(self, *argv: str) -> str:
        """Output of one of Slurm's commands."""
        return subprocess.run(
            argv, env={**os.environ, **self.env}, check=True, stdout=subprocess.PIPE, text=True, timeout=60
        ).stdout

    def start(self) -> None:
        self._make_folders()
        self._munge()
        self._configure()
        self._database()
        self.start_controller()
        for number in range(1, self.nodes + 1):
            self.start_node(f"n{number}")
        deadline = time.monotonic() + 60
        while self._idle() < self.nodes:
            assert time.monotonic() < deadline, self.command("sinfo", "-N", "-l")
            time.sleep(0.2)

    def _idle(self) -> int:
        with contextlib.suppress(subprocess.SubprocessError):
            return self.command("sinfo", "-h", "-N", "-p", "gpu", "-t", "idle", "-o", "%N").count("\n")
        return 0

    def start_controller(self) -> None:
        self._start("slurmctld", "slurmctld", "-D", "-f", self.env["SLURM_CONF"])

    def start_node(self, name: str) -> None:
        self._start(name, "slurmd", "-D", "-N", name, "-f", self.env["SLURM_CONF"])

    def stop_one(self, name: str, number: int = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(30)

    def stop(self) -> None:
        """End everything, hard: nothing of it is kept."""
        if "slurmctld" in self.processes:
            with contextlib.suppress(subprocess.SubprocessError):
                self.command("scancel", "--user=root")
                deadline = time.monotonic() + 15
                while time.monotonic() < deadline and self.command("squeue", "-h"):
                    time.sleep(0.2)
        for process in reversed(self.processes.values()):
            process.kill()
            process.wait()
        self.processes.clear()
        held.remove_folder(str(self.folder))  # also slurmstepd of jobs that did not end

    def _start(self, name: str, *argv: str, user: str = "root") -> None:
        log = self.folder / "log" / f"{name}.out"
        self.processes[name] = held.start(argv, self.folder, log, user=user, **self.env)

    def _make_folders(self) -> None:
        for name in ("etc", "state", "log", "run", "munge", "spool", "db", "gpus"):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        for name, user in (("state", "slurm"), ("munge", "munge")):
            shutil.chown(self.folder / name, user, user)
        for number in range(1, self.nodes + 1):
            (self.folder / "spool" / f"n{number}").mkdir()
        for number in range(8):
            # Device files with nothing behind them. Of plain files Slurm would not say which a job holds.
            os.mknod(self.folder / "gpus" / f"gpu{number}", 0o600 | stat.S_IFCHR, os.makedev(195, number))

    def _munge(self) -> None:
        where = self.folder / "munge"
        (where / "key").write_bytes(os.urandom(1024))
        (where / "key").chmod(0o400)
        shutil.chown(where / "key", "munge", "munge")
        where.chmod(0o755)
        files = [f"--{name}-file={where / name}" for name in ("key", "pid", "log", "seed")]
        self._start("munged", "munged", "--foreground", f"--socket={where}/socket", *files, user="munge")
        wait_for(where / "socket")

    def _configure(self) -> None:
        host, here = socket.gethostname().split(".")[0], self.folder
        accounting = (
            f"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
            f"AccountingStoragePort={self.port + 1}\nAccountingStoragePass={here}/munge/socket\nAccountingStoreFlags=job_comment\n"
        )
        nodes = "".join(
            f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={self.port + 1 + number} CPUs=16 "
            "RealMemory=64000 Gres=gpu:h100:8 State=UNKNOWN\n"
            for number in range(1, self.nodes + 1)
        )
        (here / "etc/slurm.conf").write_text(
            f"ClusterName=here\nSlurmctldHost={host}(127.0.0.1)\n"
            f"AuthInfo=socket={here}/munge/socket,cred_expire=5\nSlurmUser=root\nSlurmctldPort={self.port}\n"
            f"StateSaveLocation={here}/state\nSlurmdSpoolDir={here}/spool/%n\n"
            f"SlurmctldPidFile={here}/run/slurmctld.pid\nSlurmdPidFile={here}/run/slurmd-%n.pid\n"
            f"SlurmctldLogFile={here}/log/slurmctld.log\nSlurmdLogFile={here}/log/slurmd-%n.log\n"
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nReturnToService=1\nKillWait=5\nSlurmdTimeout=15\n"
            "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nDefMemPerNode=100\nGresTypes=gpu\n"
            "SlurmdParameters=config_overrides\nMpiDefault=none\nJobRequeue=1\n"
            "SchedulerParameters=bf_interval=2,sched_min_interval=0,batch_sched_delay=0\n"
            f"{accounting}{nodes}PartitionName=gpu Nodes=ALL Default=YES\nPartitionName=short Nodes=n1 MaxTime=5\n"
        )
        # What slurmd finds by itself on a machine with cgroup v2 alone wants systemd; this one does nothing.
        (here / "etc/cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (here / "etc/gres.conf").write_text(
            f"NodeName=n[1-{self.nodes}] Name=gpu Type=h100 File={here}/gpus/gpu[0-7]\n"
        )

    def _database(self) -> None:
        where = self.folder / "db"
        subprocess.run(
            ["mariadb-install-db", f"--datadir={where}/data", "--user=root", "--auth-root-authentication-method=normal"],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        self._start(
            "mariadbd", "mariadbd", "--no-defaults", f"--datadir={where}/data", "--user=root", "--skip-networking=0",
            "--bind-address=127.0.0.1", f"--port={self.port + _DATABASE}", f"--socket={where}/socket", "--skip-grant-tables",
            f"--pid-file={where}/pid", "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900",
        )  # fmt: skip
        wait_for(where / "socket")
        conf = self.folder / "etc/slurmdbd.conf"
        conf.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={self.folder}/munge/socket\nDbdHost=localhost\nDbdAddr=127.0.0.1\n"
            f"DbdPort={self.port + 1}\nSlurmUser=root\nLogFile={self.folder}/log/slurmdbd.log\n"
            f"PidFile={self.folder}/run/slurmdbd.pid\nStorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\n"
            f"StoragePort={self.port + _DATABASE}\nStorageUser=root\nStorageLoc=here\n"
        )
        conf.chmod(0o600)
        self._start("slurmdbd", "slurmdbd", "-D")
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port + 1), 1):
                break
            assert time.monotonic() < deadline, (self.folder / "log/slurmdbd.out").read_text()
            time.sleep(0.2)
        self.command("sacctmgr", "-i", "add", "cluster", "here")


def wait_for(path: Path, seconds: float = 30) -> None:
    """Until it exists."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.05)


@contextlib.contextmanager
def running(folder: Path, nodes: int = 4) -> Iterator[SlurmHere]:
    """Start, hand over, stop. `folder` is new, and short: sockets lie in it."""
    port, anchor = free_ports(nodes)
    cluster = SlurmHere(folder, nodes, port)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        anchor.close()
