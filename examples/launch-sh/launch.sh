#!/bin/bash
# The launch script of many tutorials: it starts torchrun itself, with what the operator tells every pod.
export LOGLEVEL=INFO
job_n=$WORLD_SIZE
master_addr=$MASTER_ADDR
master_port=$MASTER_PORT

torchrun --nproc_per_node=1 --nnodes=2:${job_n} --max_restarts=3 \
  --rdzv_endpoint=${master_addr}:${master_port} --rdzv_backend=c10d \
  "$@"
