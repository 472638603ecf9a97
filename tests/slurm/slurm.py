"""A real Slurm of some nodes on this machine: munged, slurmctld and slurmds of Debian's packages, not installed.

Each machine (`login`, `node1`, `node2`, ...) has namespaces of its own for network, processes, host name and mounts, so
it has an address, a `hostname` and ports of its own, and is lost with all that runs on it when its first process is
killed. All see the folder of the test, as compute nodes see a shared file system.
"""

import os
import signal
import subprocess
from pathlib import Path

from devcluster import packages, torchtree
from devcluster.progress import Progress
from elastic_worker import contract
from tests.kit.proc import children_of
from tests.kit.wait import until
from tests.worker.job.network import Network
from tests.worker.job.pod import PYTHON, RESOLVER

LOGIN = "login"
WAIT_SECONDS = 120.0
LOCAL = "/run"
"""Of each machine's own: munge's socket, what slurmd keeps, temporary files."""
PATHS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
DAEMONS = ("slurmctld", "slurmd", "slurmstepd")
CONFIG = """\
ClusterName=test
SlurmctldHost={login}({address})
SlurmUser=root
AuthInfo=socket={local}/munge.socket
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={local}/slurmd
SlurmctldPidFile={local}/slurmctld.pid
SlurmdPidFile={local}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
KillWait=10
ReturnToService=2
GresTypes=gpu
{nodes}
PartitionName=main Nodes=ALL Default=YES
"""
BOOT = """\
mount -t tmpfs none {local}
mkdir -m 755 {local}/slurmd
mount --bind {hosts} /etc/hosts
hostname {name}
{munged} --key-file={key} --socket={local}/munge.socket --pid-file={local}/munge.pid --log-file={local}/munge.log \
  --seed-file={local}/munge.seed
exec {daemon}
"""


class Machine:
    """One computer; `pid` is its first process, `daemon` what runs there of Slurm."""

    def __init__(self, slurm, name, place, address, inside):
        self.slurm, self.name, self.place, self.address, self._inside = slurm, name, place, address, inside
        self.log = slurm.folder / f"{name}.log"
        self._process = None

    def start(self, daemon):
        """Switch it on."""
        script = BOOT.format(
            local=LOCAL,
            hosts=self.slurm.folder / "hosts",
            name=self.name,
            munged=self.slurm.program("sbin/munged"),
            key=self.slurm.folder / "munge.key",
            daemon=daemon,
        )
        apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--mount"]
        with self.log.open("ab") as log:
            command = [*self._inside, *apart, "sh", "-e", "-c", script]
            self._process = subprocess.Popen(
                command, env=self.slurm.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def pid(self):
        """Of its first process; None before it has one, and after its end."""
        return None if self._process is None else next(iter(children_of(self._process.pid)), None)

    def run(self, *command, folder=None, check=True, **environ):
        """What a command prints that is run there."""
        entered = ["nsenter", f"--target={self.pid}", "--net", "--uts", "--mount", "--pid", f"--wd={folder or '/'}"]
        done = subprocess.run(
            [*entered, *map(str, command)],
            env={**self.slurm.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if check and done.returncode:
            said = f"{done.stdout}\n{self.slurm.report()}"
            raise AssertionError(f"{command} on {self.name} ended with {done.returncode}: {said}")
        return done.stdout

    def kill(self):
        """Switch it off: all that runs there is gone at once."""
        if self._process is not None:
            if self.pid is not None:
                os.kill(self.pid, signal.SIGKILL)
            self._process.wait(20)


class Slurm:
    """A login machine with the controller, and compute nodes with slurmd."""

    def __init__(self, folder, *, nodes=2):
        self.folder = Path(folder)
        self.files = packages.slurm_folder(Progress(quiet=True))
        self._libraries = self.files / "usr" / "lib" / f"{os.uname().machine}-linux-gnu"
        self.environ = self._environ()
        self.network = Network()
        names = [LOGIN, *(f"node{number}" for number in range(1, nodes + 1))]
        self.machines = {name: Machine(self, name, *self.network.add()) for name in names}
        self.login = self.machines[LOGIN]
        self.nodes = [machine for name, machine in self.machines.items() if name != LOGIN]

    def __enter__(self):
        try:
            self._configure()
            programs = self.folder / "bin"
            self.login.start(f"{programs}/slurmctld -D")
            for node in self.nodes:
                node.start(f"{programs}/slurmd -D -d {programs}/slurmstepd")
            self.wait("idle nodes", lambda: set(self.states().values()) == {"idle"})
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Leave no process and no namespace."""
        for machine in self.machines.values():
            machine.kill()
        self.network.close()

    def program(self, path):
        """The full path of a program of the packages."""
        return self.files / "usr" / path

    def sh(self, command, *, folder, **environ):
        """What a shell line prints that somebody types on the login machine."""
        return self.login.run("bash", "-e", "-c", command, folder=folder, **environ)

    def states(self):
        """Of each node, as `sinfo` has it; {} while the controller does not answer."""
        told = self.login.run("sinfo", "--Node", "--noheader", "--format=%N %t", check=False)
        lines = [line.split() for line in told.splitlines()]
        return {line[0]: line[1] for line in lines if len(line) == 2 and line[0] in self.machines}

    def wait(self, what, look, *, seconds=WAIT_SECONDS):
        """The first true thing that `look` finds; where there is none, the error shows the report."""
        return until(what, look, seconds=seconds, report=self.report)

    def report(self):
        """The last lines of each job's output and of each machine's log."""
        files = [*sorted(self.folder.rglob("slurm-*.out")), *sorted(self.folder.rglob("*.log"))]
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')[-6000:]}" for file in files)

    def _configure(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        hosts = [f"{machine.address} {machine.name}" for machine in self.machines.values()]
        (self.folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))
        config = CONFIG.format(
            login=LOGIN,
            address=self.login.address,
            local=LOCAL,
            plugins=self._libraries / "slurm-wlm",
            folder=self.folder,
            nodes="\n".join(f"NodeName={node.name} NodeAddr={node.address} CPUs=4 Gres=gpu:1" for node in self.nodes),
        )
        (self.folder / "slurm.conf").write_text(config)
        # A GPU that is only a number: scripts ask for one.
        (self.folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "python3").symlink_to(PYTHON)
        # Slurm's code asks by which name it was started: under Debian's own names, which are for links such as these,
        # no daemon reads `Gres=`.
        for name in DAEMONS:
            (programs / name).symlink_to(self.program(f"sbin/{name}-wlm"))

    def _environ(self):
        """Of all that runs there: torch, our package and Slurm's commands are installed, as on a site's machines."""
        torch = torchtree.ensure(Progress(quiet=True))
        worker = Path(contract.__file__).parents[1]
        return {
            "PATH": os.pathsep.join(map(str, (self.folder / "bin", torch / "bin", self.files / "usr" / "bin", *PATHS))),
            "LD_LIBRARY_PATH": f"{self._libraries}:{self._libraries / 'slurm-wlm'}",
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PYTHONPATH": f"{torch}:{worker}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "GLOO_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": "1",
            **RESOLVER,
            "HOME": str(self.folder),
            "TMPDIR": LOCAL,
            "LANG": "C.UTF-8",
        }
