"""The contents of an image, Debian's packages and Python's: syft's list in CycloneDX, without values that differ in
each run.

syft looks into the finished image. Tools that read a lock file or an environment do not see the system's packages.
"""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from devcluster import binaries, shell
from devcluster.progress import Progress
from release.source import Source, Wanted


def write(archive: Path, wanted: Wanted, source: Source, progress: Progress) -> None:
    """The list of an image's archive, beside it as NAME.cdx.json."""
    syft = binaries.ensure_module(binaries.SYFT, progress) / "syft"
    about = ("--source-name", archive.stem, "--source-version", wanted.version)
    # Packages only: a list of each of their files would be fifty times as long.
    how = ("--select-catalogers", "-file", "--output", "cyclonedx-json", "--quiet")
    alone = {"SYFT_CHECK_FOR_APP_UPDATE": "false"}
    found = shell.run(syft, "scan", f"oci-archive:{archive}", *about, *how, env=alone)
    archive.with_suffix(".cdx.json").write_text(settled(json.loads(found), epoch=source.epoch))


def settled(bill: dict[str, Any], *, epoch: int) -> str:
    """The same list with the commit's time, and a serial number that is made from what is in it."""
    bill["metadata"]["timestamp"] = datetime.fromtimestamp(epoch, UTC).isoformat()
    del bill["serialNumber"]
    content = json.dumps(bill, sort_keys=True)
    bill["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_OID, content).urn
    return json.dumps(bill, sort_keys=True, indent=1) + "\n"
