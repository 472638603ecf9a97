"""The configuration files of a node's programs, as text or plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from devcluster import images, names
from devcluster.names import Layout

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CNI_PROGRAMS = "/usr/lib/cni"
# Folder of the node's disk -> the path at which its programs see it. Some of these paths cannot be configured (the
# device plugins' sockets, containerd's shims), hence a mount namespace for each node.
MOUNTS = {
    "containerd": "/var/lib/containerd",
    "containerd-run": "/run/containerd",
    "pod-logs": "/var/log/pods",
    "container-logs": "/var/log/containers",
    "cni-config": "/etc/cni/net.d",
    "cni-state": "/var/lib/cni",
    "netns": "/run/netns",
}
# The node's own file system, in a file of its disk: it can become full without filling other nodes' or the machine's.
KUBELET_DISK = "kubelet.img"
KUBELET_FOLDER = "/var/lib/kubelet"
# The contents that a machine loses when it is switched off.
LOST_AT_RESTART = ("containerd-run", "cni-state", "netns")


def mount_script(disk: Path) -> str:
    """The script of the node's anchor: it mounts the node's disk at the usual paths, and holds the namespaces open."""
    binds = "".join(f"mount --bind '{disk / folder}' {path}\n" for folder, path in MOUNTS.items())
    own = f"mount -o loop '{disk / KUBELET_DISK}' {KUBELET_FOLDER}\n"
    # Mounts are shared inside, so that mounts of pods with propagation reach kubelet's namespace.
    return f"set -e\n{binds}{own}mount --make-rshared /\nexec sleep infinity\n"


CONTAINERD_CONFIG = f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs", \
"io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.PAUSE_REF}"
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  # Where root lacks CAP_SYS_RESOURCE lowering it is refused, and runc dies: "can't get final child's PID from pipe".
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PROGRAMS}"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""


def cni_config(number: int) -> dict[str, Any]:
    """The CNI configuration. Pods are routed, not bridged, so Services need no extra rules within a node."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": names.node_pod_cidr(number)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet_config(layout: Layout, node: str, *, files: Path) -> dict[str, Any]:
    """The KubeletConfiguration. `files` is the folder of the node's configuration files."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": names.node_address(names.node_number(node)),
        "healthzBindAddress": "127.0.0.1",
        "readOnlyPort": 0,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup(node)}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        # Nothing answers there unless a test starts a DNS server; pods without cluster DNS get a warning each.
        "clusterDNS": [names.BRIDGE_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(files / "resolv.conf"),
        "tlsCertFile": str(files / "serving.crt"),
        "tlsPrivateKeyFile": str(files / "serving.key"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        # Unhealthy GPUs and lost nodes are reported within seconds.
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "10s",
        "nodeLeaseDurationSeconds": 8,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        # A node whose disk is not full any more accepts pods within seconds.
        "evictionPressureTransitionPeriod": "5s",
        # A container that ends repeatedly is restarted within a second, not after minutes.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
        # Images cannot be pulled, so none may be garbage-collected.
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "24h",
    }


def proxy_config(node: str, *, kubeconfig: Path) -> dict[str, Any]:
    """The KubeProxyConfiguration, with nftables, because IPVS is missing in many kernels."""
    address = names.node_address(names.node_number(node))
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "featureGates": {"NFTablesProxyMode": True},  # off by default before 1.31
        "nftables": {"minSyncPeriod": "200ms"},
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "hostnameOverride": node,
        "clusterCIDR": names.POD_CIDR,
        "bindAddress": address,
        "healthzBindAddress": f"{address}:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "oomScoreAdj": 0,
        # kube-proxy must not change these settings of the whole machine.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }
