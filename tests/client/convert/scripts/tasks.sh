#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4   # one task for each GPU
#SBATCH --gres=gpu:4
#SBATCH --mem-per-cpu=4000
#SBATCH -c 8
#SBATCH -t 90
#SBATCH --export=ALL,SEED=7
#SBATCH --account=vision
export WANDB_MODE=offline
srun python -u train.py --devices 4
