"""Names that the operator and the pods agree on: labels, annotations, environment variables, ports, container names.

This module imports nothing. Pods of older releases read these names, so values are only ever added.
"""

VERSION = "1"
"""The contract's version, an annotation of every pod. A new field does not raise it; a new meaning does."""
UNDERSTOOD = tuple(str(int(VERSION) + further) for further in (-1, 0, 1))
"""The accepted versions: an operator or a master may be replaced while pods of another release train on. A message
without a version is of version 1.
"""

GROUP = "elastic-pytorch.dev"

LABEL_JOB_NAME = f"{GROUP}/job-name"
LABEL_JOB_UID = f"{GROUP}/job-uid"
LABEL_ROLE = f"{GROUP}/role"
LABEL_INDEX = f"{GROUP}/index"
LABEL_INCARNATION = f"{GROUP}/incarnation"
LABEL_KUBEFLOW_ROLE = "training.kubeflow.org/job-role"
"""A label that other schedulers read to keep the master."""

ANNOTATION_CONTRACT = f"{GROUP}/contract"
ANNOTATION_GANG = f"{GROUP}/gang"
ANNOTATION_NNODES = f"{GROUP}/nnodes"
"""`min:max` of the incarnation, as frozen in the pod's environment."""

ANNOTATION_TEMPLATE = f"{GROUP}/template"
"""Fingerprint of the pod's template and settings. A pod whose fingerprint differs from its job's is replaced."""

ANNOTATION_MEMBERSHIP = f"{GROUP}/membership"
"""On the master pod of an Elastic job: the pods that are to take part. JSON `{"wish": 7, "members": [{"name":
"toy-master-0", "uid": "..."}], "min": 2, "max": 4, "sizes": [2, 4], "step": 1}`. `wish` is the number of the
list, and keeps the name that earlier releases gave it (103). A list with a higher number replaces the same master's
earlier ones. `sizes` (all allowed sizes) and `step` (from min on) are absent if any size from min to max is allowed.
Names are for readers; members of large jobs have none, so that all members fit. `"successor": false`, which the
operator never writes, is for a master that no other master replaces while it runs (`elastic_worker.slurm`).
"""

ANNOTATION_MASTER_EPOCH = f"{GROUP}/master-epoch"
"""How many master pods the job has had. Members obey the master with the highest number that they have seen."""

ANNOTATION_SECRET = f"{GROUP}/secret"
"""On the pods of an Elastic job: the Secret with its token. Pods of older releases have `NAME-elastic`, and no such
annotation."""

ROLE_MASTER = "master"
ROLE_WORKER = "worker"

MAIN_CONTAINER = "pytorch"
MASTER_PORT = 29400

ENV_MASTER_ADDR = "MASTER_ADDR"
ENV_MASTER_PORT = "MASTER_PORT"
ENV_WORLD_SIZE = "WORLD_SIZE"
ENV_NNODES = "PET_NNODES"
ENV_NPROC_PER_NODE = "PET_NPROC_PER_NODE"
ENV_RDZV_BACKEND = "PET_RDZV_BACKEND"
ENV_RDZV_ENDPOINT = "PET_RDZV_ENDPOINT"
ENV_RDZV_ID = "PET_RDZV_ID"
ENV_RDZV_CONF = "PET_RDZV_CONF"
ENV_LOCAL_ADDR = "PET_LOCAL_ADDR"
ENV_MAX_RESTARTS = "PET_MAX_RESTARTS"
ENV_SHUTDOWN_TIMEOUT = "PET_SHUTDOWN_TIMEOUT"
ENV_NO_SHARED_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
ENV_UNBUFFERED = "PYTHONUNBUFFERED"
ENV_JOB_NAME = "ELASTIC_JOB_NAME"
ENV_JOB_UID = "ELASTIC_JOB_UID"
ENV_ROLE = "ELASTIC_ROLE"
ENV_INDEX = "ELASTIC_INDEX"
ENV_INCARNATION = "ELASTIC_INCARNATION"
ENV_POD_RANK = "ELASTIC_POD_RANK"
"""In Torchrun mode: 0 for the master, from 1 on for workers. For scripts that need the number of their host."""

# The following variables are set in pods of runtime.mode Elastic only. There MASTER_PORT is the coordinator's port.
ENV_POD_NAME = "ELASTIC_POD_NAME"
ENV_POD_UID = "ELASTIC_POD_UID"
ENV_MASTER_EPOCH = "ELASTIC_MASTER_EPOCH"
ENV_TOKEN = "ELASTIC_TOKEN"
"""The job's secret, from SECRET_KEY of the Secret `NAME-elastic-UID`; never passed on to a training process."""
ENV_NPROC = "ELASTIC_NPROC"
ENV_PRELOAD = "ELASTIC_PRELOAD"
"""Modules that the warm parent imports beside torch, separated by commas."""
ENV_WARM = "ELASTIC_WARM"
"""0: processes are started as new interpreters instead of forked from a warm parent."""
ENV_COUNT_STEPS = "ELASTIC_COUNT_STEPS"
"""0: no optimizer hook counts the steps of scripts that do not use our library."""
ENV_CHECKPOINT_PATH = "ELASTIC_CHECKPOINT_PATH"
ENV_CHECKPOINT_COMPLETE = "ELASTIC_CHECKPOINT_COMPLETE"
"""Name of the file that ends a checkpoint in that folder, with * and ?; empty or absent: known by its format."""
ENV_CHECKPOINT_SIGNAL = "ELASTIC_CHECKPOINT_SIGNAL"
"""The signal that asks training processes for a checkpoint, one of CHECKPOINT_SIGNALS; empty or absent: none."""
CHECKPOINT_SIGNALS = ("SIGUSR1", "SIGUSR2")
ENV_ALIGN_SECONDS = "ELASTIC_ALIGN_SECONDS"
ENV_GRACE_SECONDS = "ELASTIC_GRACE_SECONDS"
ENV_STALL_SECONDS = "ELASTIC_STALL_SECONDS"
ENV_MAX_FAILURES = "ELASTIC_MAX_FAILURES"
ENV_FINAL_EXIT_CODES = "ELASTIC_FINAL_EXIT_CODES"
"""Exit codes of a training process after which the job is over, separated by commas; empty or absent: none."""
ENV_MEMBERSHIP_FILE = "ELASTIC_WISH_FILE"
"""Path of the file with the master's membership annotation; empty or absent in other pods."""
ENV_STATUS_PORT = "ELASTIC_STATUS_PORT"

# The launcher sets these in training processes, in addition to torchrun's variables.
ENV_GENERATION = "ELASTIC_GENERATION"
"""0 in a process that is started to join a training group."""
ENV_LIBRARY = "ELASTIC_LIBRARY"
"""Path of the launcher's socket for processes that use the library."""
ENV_SAVE_FILE = "ELASTIC_SAVE_FILE"
"""Path of a file that appears when the process is asked for a checkpoint (132)."""
IN_PLACE, RESTART = "in-place", "restart"
"""How processes that use the library change groups: in place, or by a restart from a checkpoint of that moment."""

SECRET_KEY = "token"
STATUS_PORT = 29401
"""The port of each launcher for /healthz, /status and /metrics."""
MEMBERSHIP_FOLDER = "/etc/elastic-pytorch"
MEMBERSHIP_FILE = "membership"
INJECT_FOLDER = "/elastic-pytorch"
"""The folder where the worker package is mounted in images that do not have it."""
ELASTIC_BACKEND = "elastic-pytorch"
"""PET_RDZV_BACKEND in Elastic pods. A torchrun that is not our stand-in hands over to the launcher through it, or stops
at once if it does not know it, instead of training alone."""

EXIT_DO_NOT_RETRY = 93
"""Exit code of a pod's main container if another pod would fail in the same way: too many failures without progress, an
image without torch."""
OLDEST_TORCH = (2, 4)
"""Oldest supported torch, major and minor version, in both modes."""
OLDEST_PYTHON = (3, 9)
"""Oldest Python of the launcher, and so of images in Elastic mode."""
EXIT_LEFT = 143
"""Exit code of a launcher that left after SIGTERM."""

STATUS_LIMIT_BYTES = 65_536

RESERVED_ENV_PREFIX = "PET_RDZV_"
RESERVED_ENV = (
    ENV_MASTER_ADDR,
    ENV_MASTER_PORT,
    ENV_WORLD_SIZE,
    ENV_NNODES,
    ENV_LOCAL_ADDR,
    "PET_NODE_RANK",
    "PET_STANDALONE",
)
"""Variables a template must not set, beside everything that starts with RESERVED_ENV_PREFIX."""
