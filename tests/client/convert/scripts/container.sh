#!/bin/bash
#SBATCH --job-name=nemo
#SBATCH -N 4
#SBATCH --exclusive
#SBATCH --gpus=32
#SBATCH --array=0-3
head=$(hostname)
srun --container-image=nvcr.example.com#nvidia/pytorch:25.01-py3 --container-workdir=/workspace \
  --container-mounts=/lustre:/lustre --ntasks-per-node=1 \
  torchrun --nnodes=4 --nproc-per-node=gpu --rdzv-backend=c10d --rdzv-endpoint=$head:29500 pretrain.py
