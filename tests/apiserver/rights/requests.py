"""Which right each request needs: from the proxy's log, as the API server's authorizer sees it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tests.apiserver.faults.proxy import Entry, Request

_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A verb on a resource, or on a part of it (`pods/log`); `group` is "" for the core."""

    verb: str
    group: str
    resource: str

    @property
    def plural(self) -> str:
        """The resource without its part."""
        return self.resource.partition("/")[0]

    @property
    def subresource(self) -> str:
        """The part, "" for the resource itself."""
        return self.resource.partition("/")[2]

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}"


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """A right that was made use of; `namespace` is "" for the whole cluster."""

    right: Right
    namespace: str


def use_of(request: Request) -> Use | None:
    """What the request asks for; None for discovery, which every account may do."""
    found = _PATH.fullmatch(request.path)
    if found is None or not found["plural"]:
        return None
    part = f"/{found['subresource']}" if found["subresource"] else ""
    right = Right(_verb(request, named=bool(found["name"])), found["group"] or "", found["plural"] + part)
    return Use(right, found["namespace"] or "")


def _verb(request: Request, *, named: bool) -> str:
    if request.method != "GET":
        return _VERBS[request.method]
    return "get" if named else "watch" if request.watches else "list"


def uses(log: Iterable[Entry]) -> set[Use]:
    """What these requests asked for."""
    return {use for entry in log if (use := use_of(entry.request))}


def refusals(log: Iterable[Entry]) -> list[str]:
    """What was refused for a lack of rights."""
    return [str(entry.request) for entry in log if entry.status == 403]
