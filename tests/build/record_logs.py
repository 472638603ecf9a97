"""Writes logs/ anew: what the real torchrun prints when training fails, in the environment that our pods give it.

`uv run python -m tests.build.record_logs PYTHON`, with the interpreter of an environment that has torch. Some minutes.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from elastic_api.job import JobSpec
from tests.build.objects import env_of, make_pod, make_spec

LOGS = Path(__file__).parent / "logs"
LOOPBACK = "127.0.0.1"
EXCEPTION = """\
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def load(step):
    return {"loss": 1.0}["accuracy"] if step == 2 else 0


def main():
    dist.init_process_group("gloo")
    for step in range(4):
        if dist.get_rank() == 1:
            load(step)
        dist.barrier()


"""
SCRIPTS = {
    "exception": EXCEPTION + "main()\n",
    "recorded": EXCEPTION + "record(main)()\n",
    "chained": """\
import os
import time

if os.environ["RANK"] != "0":
    time.sleep(60)
try:
    open("/data/shard-17.tar")
except OSError as error:
    raise RuntimeError("shard 17 is unreadable\\nsee the page on data") from error
""",
    "exit-code": """\
import os
import sys
import time

if os.environ["RANK"] == "0":
    time.sleep(60)
sys.exit("no data left" if os.environ["RANK"] == "2" else 3)
""",
    "killed": """\
import os
import signal
import time

if os.environ["RANK"] == "0":
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise ValueError("of the attempt before")
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
""",
    "import-error": "import nowhere_to_be_found\n",
    "syntax-error": "def f(:\n    pass\n",
    "waiting": "import time\n\nprint('training', flush=True)\ntime.sleep(600)\n",
}


def record(name: str, *, script: str | None = None, **env: str) -> None:
    """Runs the script in a pod's environment until it ends; `env` overrides."""
    with tempfile.TemporaryDirectory() as folder:
        process = _start(name, Path(folder), script=script, spec=None, env=env)
        _write(name, process, folder)


def record_pair() -> None:
    """Two pods of one process each, of which the second fails; the first loses its peer."""
    spec, common = make_spec(nprocPerNode=1), {"PET_MAX_RESTARTS": "0"}
    with tempfile.TemporaryDirectory() as folder:
        master = _start("peer-lost", Path(folder), script="exception", spec=spec, env=common)
        own = {"PET_LOCAL_ADDR": "127.0.0.2"}
        worker = _start("peer-lost", Path(folder), script="exception", spec=spec, env={**common, **own}, role="worker")
        _write("peer-lost", master, folder)
        _write("peer-failed", worker, folder)


def _start(
    name: str,
    folder: Path,
    *,
    script: str | None,
    spec: JobSpec | None,
    env: dict[str, str],
    role: str = "master",
) -> subprocess.Popen[str]:
    path = folder / "train.py"
    if (text := SCRIPTS.get(script or name)) is not None:
        path.write_text(text)
    spec = spec or make_spec(min_=1, nprocPerNode=2, elasticity={"gracePeriodSeconds": 10})
    environment = {**os.environ, **env_of(make_pod(spec, role=role, service_ip=LOOPBACK)), "PET_LOCAL_ADDR": LOOPBACK}
    command = [sys.argv[1], "-m", "torch.distributed.run", str(path)]
    environment |= {"PET_MAX_RESTARTS": "1", **env}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def _write(name: str, process: subprocess.Popen[str], folder: str) -> None:
    assert process.stdout
    output = ""
    for line in process.stdout:
        output += line
        if name == "terminated" and line == "training\n":
            process.send_signal(signal.SIGTERM)
    process.wait()
    assert process.returncode, f"{name} did not fail"
    prefix = str(Path(sys.argv[1]).parent.parent)
    (LOGS / f"{name}.log").write_text(output.replace(folder, "/app").replace(prefix, "/opt/venv"))


def main() -> None:
    """Record every kind of failure, one after the other."""
    LOGS.mkdir(exist_ok=True)
    for name in ("exception", "recorded", "chained", "exit-code", "killed", "import-error", "syntax-error"):
        record(name)
    record("missing-script", PET_MAX_RESTARTS="0")
    record("prefixed", script="exception", PET_TEE="3", PET_MAX_RESTARTS="0")
    record("terminated", script="waiting")
    record("no-master", script="waiting", PET_RDZV_CONF="is_host=false,read_timeout=3")
    record_pair()


if __name__ == "__main__":
    main()
