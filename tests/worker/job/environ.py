"""Writes its environment down, as a script that dumps it at its start does: environ.py FOLDER."""

import json
import os
import sys
import time
from pathlib import Path

folder = Path(sys.argv[1])
unfinished = folder / f"environ-{os.environ['RANK']}.tmp"
unfinished.write_text(json.dumps(dict(os.environ)))
print(dict(os.environ), flush=True)
unfinished.replace(folder / f"environ-{os.environ['RANK']}.json")
time.sleep(600)
