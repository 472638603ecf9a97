"""Names that the operator and the pods agree on: labels, annotations, environment variables, ports, container names.

Imports nothing. What stands here is read by pods of older releases, so values are only ever added.
"""

VERSION = "1"
"""Of this contract; carried by every pod as an annotation."""

GROUP = "elastic-pytorch.dev"

LABEL_JOB_NAME = f"{GROUP}/job-name"
LABEL_JOB_UID = f"{GROUP}/job-uid"
LABEL_ROLE = f"{GROUP}/role"
LABEL_INDEX = f"{GROUP}/index"
LABEL_INCARNATION = f"{GROUP}/incarnation"
LABEL_KUBEFLOW_ROLE = "training.kubeflow.org/job-role"
"""Other schedulers read it to keep the master."""

ANNOTATION_CONTRACT = f"{GROUP}/contract"
ANNOTATION_RESERVED = f"{GROUP}/reserved"
ANNOTATION_NNODES = f"{GROUP}/nnodes"
"""`min:max` of the incarnation, as frozen in the pod's environment."""

ANNOTATION_TEMPLATE = f"{GROUP}/template"
"""Fingerprint of what the pod was made from; a pod whose fingerprint differs from its job's is replaced."""

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
