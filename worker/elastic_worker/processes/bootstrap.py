"""First code of each python process that the launcher starts; run by its path.

`bootstrap.py run TICKET` is a training process started anew. `bootstrap.py zygote ORDERS` is the warm parent, and in
each process forked from it the forked training process.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    # The folder of this file holds modules whose names are anybody's; what is found from here is the whole package.
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from elastic_worker.processes import linux, run, ticket

    del sys.path[0]
    role, path = sys.argv[1:]
    if role == "zygote":
        from elastic_worker.processes import zygote

        run.become(zygote.serve(Path(path)), forked=True)
    else:
        mine = ticket.take(Path(path))
        linux.attach(mine.launcher)
        run.become(mine, forked=False)


main()
