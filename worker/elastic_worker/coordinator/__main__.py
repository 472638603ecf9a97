"""Runs the coordinator: `python .../coordinator PID`, with the environment and the pid of its launcher."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from elastic_worker.coordinator.main import main  # noqa: E402 (the path has to be right first)

if __name__ == "__main__":
    main(launcher=int(sys.argv[1]))
