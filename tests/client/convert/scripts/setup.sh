#!/bin/bash -l
#SBATCH -J Llama_FT.1
#SBATCH --nodes=2-4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=a100:8
#SBATCH --cpus-per-task=96
#SBATCH --mem=512G
#SBATCH --time=2-00:00:00
#SBATCH --requeue
#SBATCH --signal=USR1@300
#SBATCH --partition=gpu
#SBATCH --output=logs/%x-%j.out
#SBATCH --frobnicate=3

module load cuda/12.4
source ~/venv/bin/activate
set -euo pipefail

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=29500
export NCCL_DEBUG=INFO
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
GPUS_PER_NODE=8
LR=3e-4

cat > config.yaml <<'EOF'
lr: $LR
line: srun torchrun --nnodes=7
EOF

srun --cpu-bind=none torchrun \
    --nnodes=$SLURM_NNODES \
    --nproc_per_node=$GPUS_PER_NODE \
    --rdzv_id=$SLURM_JOB_ID --rdzv_backend=c10d \
    --rdzv_endpoint="$MASTER_ADDR:$MASTER_PORT" \
    train.py --config config.yaml --lr "$LR" "$@" > log.txt 2>&1

#SBATCH --nodes=9
