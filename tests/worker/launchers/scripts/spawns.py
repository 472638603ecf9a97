"""Starts the ranks of its machine by itself, as Lightning does without a launcher, and DeepSpeed's launcher."""

import os
import subprocess
import sys

group = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
ranks = [
    subprocess.Popen([sys.executable, "plain.py"], env={**os.environ, **group, "RANK": rank, "LOCAL_RANK": rank})
    for rank in ("0", "1")
]
sys.exit(max(rank.wait() for rank in ranks))
