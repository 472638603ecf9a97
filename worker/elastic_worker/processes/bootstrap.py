"""The first code of each python process that the launcher starts; it is run by its path.

`bootstrap.py run TICKET` becomes a training process. `bootstrap.py zygote CONFIG` becomes the warm parent, and each
process forked from it continues here as a training process.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    # Python puts this file's folder first in the search path, where our modules would hide others of the same names.
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from elastic_worker.processes import linux, run, ticket

    del sys.path[0]
    role, path = sys.argv[1:]
    if role == "zygote":
        from elastic_worker.processes import zygote

        run.become(zygote.serve(Path(path)), forked=True)
    else:
        taken = ticket.take(Path(path))
        linux.attach(taken.launcher)
        run.become(taken, forked=False)


main()
