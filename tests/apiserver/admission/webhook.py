"""A mutating admission webhook: a real HTTPS server on the loopback address that the API server sees.

Pods are judged by the path in the URL that a MutatingWebhookConfiguration names, so that one server serves many.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from devcluster import network, pki
from devcluster.cluster import Cluster
from devcluster.forwarder import enter_network
from tests.kit.wait import until

Patch = list[dict[str, Any]]
Judge = Callable[[dict[str, Any]], Patch | str]
"""From a pod to the JSON patch that changes it, or to the words with which it is denied."""

LOOPBACK = "127.0.0.1"
CLOSED = f"https://{LOOPBACK}:1"
"""Where nobody listens."""


class Webhook:
    """A running webhook. `judges` may be changed at any time; `asked` counts the questions, by path."""

    def __init__(self, judges: Mapping[str, Judge], *, authority: pki.Pair, certificate: pki.Pair) -> None:
        self.judges = dict(judges)
        self.asked: Counter[str] = Counter()
        self.port = 0
        self._authority, self._certificate = authority, certificate

    def client_config(self, path: str) -> dict[str, str]:
        """How the API server reaches the judge at `path`."""
        return {"url": f"https://{LOOPBACK}:{self.port}/{path}", "caBundle": self.authority}

    @property
    def authority(self) -> str:
        """Who signed its certificate."""
        return base64.b64encode(self._authority.certificate).decode()

    def listen(self) -> ThreadingHTTPServer:
        """A server in the network of the calling thread."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate.certificate_file, self._certificate.key_file)
        server = ThreadingHTTPServer((LOOPBACK, 0), _handler(self))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self.port = server.server_address[1]
        return server

    def review(self, path: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to an AdmissionReview's request."""
        self.asked[path] += 1
        judge = self.judges.get(path)
        verdict = judge(request["object"]) if judge else []
        answer: dict[str, Any] = {"uid": request["uid"], "allowed": not isinstance(verdict, str)}
        if isinstance(verdict, str):
            return {**answer, "status": {"code": 403, "message": verdict}}
        patch = base64.b64encode(json.dumps(verdict).encode()).decode()
        return {**answer, "patchType": "JSONPatch", "patch": patch} if verdict else answer


@contextmanager
def serving(cluster: Cluster, folder: Path, judges: Mapping[str, Judge]) -> Iterator[Webhook]:
    """A webhook beside the API server of `cluster`, with its keys in `folder`."""
    authority = pki.create_authority(folder, "webhooks")
    certificate = pki.issue(authority, folder, "webhook", common_name="webhook", serves=[LOOPBACK])
    webhook = Webhook(judges, authority=authority, certificate=certificate)
    ready = threading.Event()
    servers: list[ThreadingHTTPServer] = []

    def run() -> None:
        enter_network(network.anchor(cluster.layout, network.CONTROL_PLANE))
        servers.append(webhook.listen())
        ready.set()
        servers[0].serve_forever(poll_interval=0.1)

    thread = threading.Thread(target=run)
    thread.start()
    until("the webhook", ready.is_set, seconds=10)
    try:
        yield webhook
    finally:
        servers[0].shutdown()
        thread.join()
        servers[0].server_close()


def _handler(webhook: Webhook) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            response = webhook.review(self.path.split("?")[0].strip("/"), body["request"])
            answer = json.dumps({**body, "request": None, "response": response}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    return Handler
