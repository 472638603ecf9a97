"""Builds the programs of the cluster (Kubernetes, etcd, helm, kwok) from Go modules, once per content of their files.

Only Go modules are downloaded, through the machine's Go settings. golang.py chooses the Go. Each folder of tools/ is a
separate module, so that one program's dependencies do not change another's.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devcluster import cache, golang, shell
from devcluster.errors import DevclusterError
from devcluster.progress import Progress, Step

TOOLS = Path(__file__).parent / "tools"
KUBERNETES = {"1.30": "v1.30.4", "1.36": "v1.36.3", "1.37": "v1.37.2"}
"""The releases of a cluster: the oldest supported one, the usual one, the newest."""
DEFAULT_KUBERNETES = "1.36"
SYFT_VERSION = "1.50.0"
PARALLEL_COMPILES = "2"


@dataclass(frozen=True, slots=True)
class Edit:
    """A patch of third-party source: in `file`, each `before` becomes `after`."""

    file: str
    before: str
    after: str

    def apply(self, source: Path) -> None:
        """Change the file in that folder. Raises DevclusterError if the text is not found."""
        path = source / self.file
        text = path.read_text() if path.is_file() else ""
        if self.before not in text:
            raise DevclusterError(f"{self.file}: lacks the text that an edit of devcluster/binaries.py needs: adapt it")
        path.write_text(text.replace(self.before, self.after))


@dataclass(frozen=True, slots=True)
class GoModule:
    """One folder of tools/: its programs, their packages, and how they are linked.

    `files` of the module `source` are copied beside the programs, each under the last part of its path. The programs
    are built from a copy of that module with the `edits`.
    """

    name: str
    packages: Mapping[str, str]
    ldflags: tuple[str, ...] = ("-s", "-w")
    hint: str = ""
    source: str = ""
    files: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()

    def folder(self) -> Path:
        """The folder with its go.mod and go.sum."""
        return TOOLS / self.name

    def entry_name(self) -> str:
        """The name of its programs' directory in the cache."""
        files = [self.folder() / "go.mod", self.folder() / "go.sum"]
        extra = [
            *self.ldflags,
            *(f"{program}={package}" for program, package in sorted(self.packages.items())),
            *self.files,
            *(text for edit in self.edits for text in (edit.file, edit.before, edit.after)),
        ]
        return f"bin/{self.name}-{cache.key_of_files(files, relative_to=TOOLS, extra=extra)}"


def _version_flags(version: str) -> tuple[str, ...]:
    """The linker flags that set the version. Without them it is v0.0.0-master, which clients fail to parse."""
    major, minor, _ = version.removeprefix("v").split(".")
    values = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "0" * 40,
        "buildDate": "2026-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return tuple(f"-X={package}.{name}={value}" for package in packages for name, value in values.items())


KUBERNETES_PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)


def kubernetes(release: str) -> GoModule:
    """The module of a release, such as 1.36. Raises DevclusterError for an unknown release."""
    if release not in KUBERNETES:
        raise DevclusterError(f"kubernetes={release!r}: write one of {', '.join(KUBERNETES)}")
    return GoModule(
        name="kubernetes" if release == DEFAULT_KUBERNETES else f"kubernetes-{release}",
        packages={program: f"k8s.io/kubernetes/cmd/{program}" for program in KUBERNETES_PROGRAMS},
        ldflags=("-s", "-w", *_version_flags(KUBERNETES[release])),
        hint="about 8 minutes on 2 cores, only the first time",
    )


MODULES = (
    GoModule(name="etcd", packages={"etcd": "go.etcd.io/etcd/server/v3"}, hint="about 1 minute, only the first time"),
    GoModule(name="helm", packages={"helm": "helm.sh/helm/v4/cmd/helm"}, hint="about 1 minute, only the first time"),
)
# Not one of MODULES: only callers that need fake nodes wait for its build.
KWOK = GoModule(
    name="kwok",
    packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
    hint="about 1 minute, only the first time",
    source="sigs.k8s.io/kwok",
    files=(
        "kustomize/stage/node/fast/node-initialize.yaml",
        "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
        "kustomize/stage/pod/fast/pod-ready.yaml",
    ),
    # KWOK lists all objects again whenever one of its watches ends, and then repeats all of their stages. A busy API
    # server ends watches often: of 2,200 deletions, 1,300 were of pods that no longer existed.
    edits=(
        Edit(
            "pkg/utils/informer/informer.go",
            before="""\
			opt.setup(&opts)
			return listWatch.WatchWithContext(ctx, opts)
""",
            after="""\
			since := opts.ResourceVersion
			opt.setup(&opts)
			opts.ResourceVersion = since
			return listWatch.WatchWithContext(ctx, opts)
""",
        ),
    ),
)
# These are not in MODULES either: one lists the contents of a release's images, the other is a registry for tests.
SYFT = GoModule(
    name="syft",
    packages={"syft": "github.com/anchore/syft/cmd/syft"},
    ldflags=("-s", "-w", f"-X=main.version={SYFT_VERSION}"),
    hint="about 5 minutes, only the first time",
)
REGISTRY = GoModule(
    name="registry",
    packages={"registry": "github.com/distribution/distribution/v3/cmd/registry"},
    hint="about 1 minute, only the first time",
)


@dataclass(frozen=True, slots=True)
class Programs:
    """Paths of the built programs."""

    paths: Mapping[str, Path]

    def __getitem__(self, program: str) -> str:
        return str(self.paths[program])

    def search_path(self) -> str:
        """The folders, joined for PATH."""
        return ":".join(sorted({str(path.parent) for path in self.paths.values()}))


def ensure(progress: Progress, *, release: str = DEFAULT_KUBERNETES) -> Programs:
    """Return all programs, with that release of Kubernetes; build those that the cache lacks.

    Raises DevclusterError if there is no Go, a build fails, or the release is not one of `KUBERNETES`.
    """
    paths: dict[str, Path] = {}
    for module in (kubernetes(release), *MODULES):
        folder = ensure_module(module, progress)
        paths |= {program: folder / program for program in module.packages}
    return Programs(paths)


def ensure_module(module: GoModule, progress: Progress) -> Path:
    """The folder in the cache with the module's programs and files, built if it is not there."""

    def build(target: Path) -> None:
        go = golang.ensure(progress, module=module.folder())
        with progress.step(f"building {module.name} from its Go module ({module.hint})") as step:
            with _edited(go, module) as flags:
                for program, package in module.packages.items():
                    _go_build(go, module, package, flags=flags, output=target / program, step=step)
            for file in module.files:
                shutil.copyfile(_source(go, module) / file, target / Path(file).name)

    return cache.entry(module.entry_name(), build)


def _source(go: str, module: GoModule) -> Path:
    """The folder with the source of `module.source`, downloaded if need be."""
    return Path(json.loads(shell.run(go, "mod", "download", "-json", module.source, cwd=module.folder()))["Dir"])


@contextmanager
def _edited(go: str, module: GoModule) -> Iterator[tuple[str, ...]]:
    """The flags by which Go builds from a copy of the source that has the module's edits; none if it has none."""
    if not module.edits:
        yield ()
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(_source(go, module), folder / "source", copy_function=shutil.copyfile)
        for edit in module.edits:
            edit.apply(folder / "source")
        for file in ("go.mod", "go.sum"):
            shutil.copyfile(module.folder() / file, folder / file)
        with (folder / "go.mod").open("a") as mod:
            mod.write(f"\nreplace {module.source} => {folder / 'source'}\n")
        yield ("-modfile", str(folder / "go.mod"))


def _go_build(go: str, module: GoModule, package: str, *, flags: tuple[str, ...], output: Path, step: Step) -> None:
    built = 0

    def hear(line: str) -> None:
        nonlocal built
        built += 1
        step.detail = f"{output.name}, {built} packages, now {line}"

    command = (go, "build", "-v", "-p", PARALLEL_COMPILES, "-trimpath", "-ldflags", " ".join(module.ldflags))
    shell.run_aloud(*command, *flags, "-o", output, package, hear=hear, cwd=module.folder(), env={"CGO_ENABLED": "0"})
