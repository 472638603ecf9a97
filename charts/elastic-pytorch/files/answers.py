"""What `helm test` asks: whether the operator answers through its Service, and says what it is.

The first argument is the Service's name as environment variables have it: so no DNS is needed.
"""

import os
import sys
import time
import urllib.request

ATTEMPTS = 20
PAUSE_SECONDS = 1.0
TIMEOUT_SECONDS = 5.0


def read(url: str) -> str:
    """The body; tried again for a while, since a Service needs a moment after the pods are ready."""
    for attempt in range(ATTEMPTS):
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
                return answer.read().decode()
        except OSError as error:
            if attempt + 1 == ATTEMPTS:
                sys.exit(f"{url}: {error}")
            time.sleep(PAUSE_SECONDS)
    raise AssertionError("unreachable")


host = os.environ[f"{sys.argv[1]}_SERVICE_HOST"]
port = os.environ[f"{sys.argv[1]}_SERVICE_PORT"]
address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
read(f"{address}/readyz")
told = [line for line in read(f"{address}/metrics").splitlines() if line.startswith("elastic_pytorch_build_info{")]
if not told:
    sys.exit(f"{address}/metrics has no elastic_pytorch_build_info: is this another program's port?")
print(f"{address} is ready: {told[0]}")
