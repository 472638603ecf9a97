#!/bin/bash

#SBATCH --job-name=elastic-example
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=4
#SBATCH --no-kill

# The job's secret: no other job's process joins it.
export ELASTIC_TOKEN=$(cat /proc/sys/kernel/random/uuid)

# One step for each node, so that one can be lost or cancelled without the others. The first node is the master, and its
# step ends with 0 when the training is done.
for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  srun --nodes=1 --ntasks=1 -w "$node" \
    python3 -m elastic_worker.slurm --nnodes 1:2 --nproc_per_node 1 "$@" &
  master=${master:-$!}
done
wait "$master"
