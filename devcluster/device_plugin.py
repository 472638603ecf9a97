"""Simulates the GPUs of a node: a kubelet device plugin that advertises nvidia.com/gpu.

A container that gets GPUs gets NVIDIA_VISIBLE_DEVICES and, read-only, a torch tree, as a GPU vendor's runtime injects
its driver. GPUs listed in a file are reported as unhealthy. Run inside a node as `python -m devcluster.device_plugin`.
The messages are those of k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path

import grpc

from devcluster.protobuf import field, messages, text_map
from devcluster.torchtree import MOUNT_PATH

RESOURCE = "nvidia.com/gpu"
PLUGINS = Path("/var/lib/kubelet/device-plugins")
SOCKET = PLUGINS / "pretended-gpus.sock"
KUBELET_SOCKET = PLUGINS / "kubelet.sock"
API_VERSION = "v1beta1"
SICK_POLL_SECONDS = 0.5
KUBELET_POLL_SECONDS = 0.1
REGISTER_SECONDS = 5.0
# kubelet holds one call open for as long as the plugin is registered.
THREADS = 8
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Gpus:
    """The node's GPUs: PREFIX-gpu-0 and so on; `torch` is the tree that containers see, if any."""

    prefix: str
    count: int
    sick_file: Path
    torch: Path | None = None

    def device_id(self, index: int) -> str:
        """The id of GPU `index`, unique in the cluster."""
        return f"{self.prefix}-gpu-{index}"

    def sick(self) -> frozenset[int]:
        """The GPUs that the file lists; words that are no numbers are ignored."""
        try:
            words = self.sick_file.read_text().split()
        except OSError:
            return frozenset()
        return frozenset(int(word) for word in words if word.isdecimal())


def device_list(gpus: Gpus, *, sick: frozenset[int]) -> bytes:
    """ListAndWatchResponse{devices: [Device{ID, health}]}."""
    health = ("Unhealthy" if index in sick else "Healthy" for index in range(gpus.count))
    return b"".join(field(1, field(1, gpus.device_id(i)) + field(2, word)) for i, word in enumerate(health))


def allocate_response(gpus: Gpus, request: bytes) -> bytes:
    """AllocateResponse for AllocateRequest{container_requests: [{devices_ids}]}."""
    answers = [_container_response(gpus, messages(container, 1)) for container in messages(request, 1)]
    return b"".join(field(1, answer) for answer in answers)


def _container_response(gpus: Gpus, device_ids: Sequence[bytes]) -> bytes:
    """ContainerAllocateResponse{envs, mounts: [Mount{container_path, host_path, read_only}]}."""
    env = {"NVIDIA_VISIBLE_DEVICES": ",".join(device.decode() for device in device_ids)}
    if gpus.torch is None:
        return text_map(1, env)
    env |= {"PATH": f"{MOUNT_PATH}/bin:{SYSTEM_PATH}", "PYTHONPATH": MOUNT_PATH}
    mount = field(1, MOUNT_PATH) + field(2, str(gpus.torch)) + field(3, True)
    return text_map(1, env) + field(2, mount)


def register_request() -> bytes:
    """RegisterRequest{version, endpoint, resource_name}."""
    return field(1, API_VERSION) + field(2, SOCKET.name) + field(3, RESOURCE)


def _watch(gpus: Gpus, context: grpc.ServicerContext, stopped: threading.Event) -> Iterator[bytes]:
    said: frozenset[int] | None = None
    while context.is_active() and not stopped.is_set():
        sick = gpus.sick()
        if sick != said:
            yield device_list(gpus, sick=sick)
            said = sick
        stopped.wait(SICK_POLL_SECONDS)


def _handler(gpus: Gpus, stopped: threading.Event) -> grpc.GenericRpcHandler:
    def empty(_request: bytes, _context: grpc.ServicerContext) -> bytes:
        return b""

    def allocate(request: bytes, _context: grpc.ServicerContext) -> bytes:
        return allocate_response(gpus, request)

    def list_and_watch(_request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        return _watch(gpus, context, stopped)

    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(empty),
        "GetPreferredAllocation": grpc.unary_unary_rpc_method_handler(empty),
        "PreStartContainer": grpc.unary_unary_rpc_method_handler(empty),
        "Allocate": grpc.unary_unary_rpc_method_handler(allocate),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(list_and_watch),
    }
    return grpc.method_handlers_generic_handler(f"{API_VERSION}.DevicePlugin", methods)


def _register() -> None:
    # gRPC would derive an authority from the socket's path, which kubelet refuses.
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix://{KUBELET_SOCKET}", options=options) as channel:
        register: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            f"/{API_VERSION}.Registration/Register"
        )
        register(register_request(), timeout=REGISTER_SECONDS)


def _kubelet_instance() -> tuple[int, int] | None:
    """An identity that differs after each start of kubelet, which recreates its socket and forgets every plugin."""
    try:
        status = KUBELET_SOCKET.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def serve_one_kubelet(gpus: Gpus) -> None:
    """Wait for a kubelet, serve it, and return when another one has taken its place."""
    while (instance := _kubelet_instance()) is None:
        time.sleep(KUBELET_POLL_SECONDS)
    SOCKET.unlink(missing_ok=True)
    stopped = threading.Event()
    server = grpc.server(futures.ThreadPoolExecutor(THREADS))
    server.add_generic_rpc_handlers((_handler(gpus, stopped),))
    server.add_insecure_port(f"unix://{SOCKET}")
    server.start()
    try:
        _register()
        print(f"registered resource={RESOURCE} count={gpus.count}", flush=True)
        while _kubelet_instance() == instance:
            time.sleep(KUBELET_POLL_SECONDS)
    except grpc.RpcError as error:
        print(f"kubelet does not answer yet error={error!r}", flush=True)
        time.sleep(KUBELET_POLL_SECONDS)
    finally:
        stopped.set()
        server.stop(grace=0).wait()


def main() -> None:
    """Serve one kubelet after the other until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--sick-file", type=Path, required=True)
    parser.add_argument("--torch", type=Path)
    options = parser.parse_args()
    gpus = Gpus(prefix=options.prefix, count=options.count, sick_file=options.sick_file, torch=options.torch)
    while True:
        serve_one_kubelet(gpus)


if __name__ == "__main__":
    main()
