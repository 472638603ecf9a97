"""A program that calls torchrun itself, as LLaMA-Factory's command does."""

import subprocess
import sys

sys.exit(subprocess.run(["torchrun", "--nproc_per_node", "1", "plain.py"], check=False).returncode)
