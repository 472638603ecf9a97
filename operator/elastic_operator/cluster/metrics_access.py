"""Decides which accounts may read the metrics: accounts with a role in the cluster to `get` the URL /metrics (97).

As in other controllers, a TokenReview finds the account of a bearer token, and a SubjectAccessReview whether it may
read. Answers are cached for a short time. A permission is cached for longer while the API server does not answer,
because metrics are needed most at that time. Tokens are kept as digests only.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from contextlib import nullcontext
from typing import Any, NamedTuple

from elastic_operator.cluster.errors import ClusterError
from elastic_operator.cluster.session import Session

PATH = "/metrics"
ALLOWED_SECONDS = 60.0
ACCESS_REFUSED_SECONDS = 10.0
"""How long an answer is valid."""
OUTAGE_SECONDS = 900.0
"""How long a permission is valid while the API server does not answer."""
MAX_TOKENS = 256
"""The most tokens that are remembered."""
MAX_STRANGERS = 4
"""The most reviews of new tokens at once. They keep a client with many tokens from flooding the API server."""
_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

log = logging.getLogger(__name__)


class AccessDecision(NamedTuple):
    """An HTTP status, and the text of the response."""

    status: int
    text: str


ALLOWED = AccessDecision(200, "")
NO_TOKEN = AccessDecision(401, "send a bearer token: Authorization: Bearer TOKEN")
UNKNOWN_TOKEN = AccessDecision(401, "the API server does not know this token, or it has expired")
NO_ANSWER = AccessDecision(503, "the API server does not say whether you may read metrics")


class MetricsAccess:
    """Asks over `session`, whose account may create both kinds. Reviews change nothing, so no lease is needed."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._verdicts: OrderedDict[bytes, tuple[AccessDecision, float]] = OrderedDict()
        self._strangers = asyncio.Semaphore(MAX_STRANGERS)

    async def authorize(self, authorization: str) -> AccessDecision:
        """The verdict on a request with that Authorization header, "" for none. Raises nothing."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return NO_TOKEN
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        verdict, since = self._verdicts.get(digest, (None, 0.0))
        age = time.monotonic() - since
        if verdict is not None and age < (ALLOWED_SECONDS if verdict == ALLOWED else ACCESS_REFUSED_SECONDS):
            return verdict
        async with nullcontext() if verdict == ALLOWED else self._strangers:
            try:
                found = await self._ask(token)
            except ClusterError as error:
                log.warning("the API server did not say whether a token may read the metrics reason=%s", error)
                return ALLOWED if verdict == ALLOWED and age < OUTAGE_SECONDS else NO_ANSWER
        self._remember(digest, found)
        return found

    def _remember(self, digest: bytes, verdict: AccessDecision) -> None:
        self._verdicts.pop(digest, None)
        self._verdicts[digest] = verdict, time.monotonic()
        while len(self._verdicts) > MAX_TOKENS:
            refused = (token for token, (verdict, _) in self._verdicts.items() if verdict != ALLOWED)
            del self._verdicts[next(refused, next(iter(self._verdicts)))]

    async def _ask(self, token: str) -> AccessDecision:
        """The API server's verdict on the token: whether its account may read metrics. Raises ClusterError."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = _status(await self._session.post(_TOKENS, review))
        if not status.get("authenticated"):
            return UNKNOWN_TOKEN
        user = status.get("user") or {}
        spec = {
            "nonResourceAttributes": {"path": PATH, "verb": "get"},
            "user": user.get("username", ""),
            **{key: user[key] for key in ("uid", "groups", "extra") if user.get(key)},
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        if _status(await self._session.post(_ACCESS, review)).get("allowed"):
            return ALLOWED
        return AccessDecision(403, f"{spec['user']} may not get {PATH}: bind the chart's ClusterRole for metrics to it")


def _status(review: dict[str, Any]) -> dict[str, Any]:
    status: dict[str, Any] = review.get("status") or {}
    return status
