"""Reads lists of the API server page by page, and compares a store with one (169)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from elastic_operator.cluster.errors import Unreachable
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.cluster.waiting import cancel_and_wait
from elastic_operator.cluster.wire import METADATA_ONLY, BareMeta, List, decode_bare, decode_list

PAGE = 500
"""The most objects of one page."""
LIST_SECONDS = 60.0
FIRST_LIST_SECONDS = 10.0
"""A new leader waits this long for the next page of a list under way, before it asks for another list (196)."""
MAX_LACKING = 50
SETTLE_SECONDS = 0.2
"""The store may lack a few states that the watch is about to bring. It is compared again after this time."""


async def pages(
    session: Session, path: str, *, params: Mapping[str, str] | None = None, accept: str = ""
) -> AsyncGenerator[List]:
    """The pages of a list, at least one. The next page is requested before the caller gets the present one: the API
    server prepares it while the caller reads (211).

    Raises ApiError, and Unreachable also for an answer that is no list: a gateway may answer 200 with a page of its
    own, or with a list that is cut.
    """

    def request(more: str) -> Coroutine[Any, Any, bytes]:
        asked = {**(params or {}), "limit": str(PAGE)} | ({"continue": more} if more else {})
        return session.get_bytes(path, params=asked, timeout=LIST_SECONDS, accept=accept)

    page = _list_in(await request(""))
    while more := page.metadata.continue_:
        following = asyncio.create_task(request(more))
        try:
            await asyncio.sleep(0)  # the request is sent
            yield page
            page = _list_in(await following)
        finally:
            await cancel_and_wait([following])
    yield page


async def present_revision(session: Session, path: str) -> int:
    """The API server's present resourceVersion, from a list at that path. Raises ApiError, Unreachable."""
    page = _list_in(await session.get_bytes(path, params={"limit": "1"}, accept=METADATA_ONLY))
    return int(page.metadata.resource_version)


def _list_in(body: bytes) -> List:
    """The list. Its resourceVersion must be a number, by which stores tell older states from newer ones."""
    try:
        page = decode_list(body)
        int(page.metadata.resource_version)
    except (msgspec.DecodeError, ValueError) as error:
        raise Unreachable(f"the answer is not the API server's: {error}") from error
    return page


async def drop_deleted_and_compare(
    store: Store[Any],
    session: Session,
    path: str,
    *,
    newest: int,
    within: str = "",
    params: Mapping[str, str] | None = None,
) -> bool:
    """Remove deleted objects from the store; returns whether it has all objects at `path` in their present state.

    Only metadata is read, which costs a fraction of a list of whole objects. `newest` is the highest known
    resourceVersion. If a list is older, the history has restarted, and the store cannot be compared with it. `within`
    is the namespace that is listed, "" for all. Raises ApiError, Unreachable.
    """
    seen: set[str] = set()
    lacking: list[BareMeta] = []
    async with aclosing(pages(session, path, params=params, accept=METADATA_ONLY)) as listed:
        async for page in listed:
            if int(page.metadata.resource_version) < newest:
                return False
            for raw in page.items or ():
                try:
                    meta = decode_bare(raw).metadata
                    if not store.is_current(meta):
                        lacking.append(meta)
                except (ValueError, msgspec.ValidationError):  # an unreadable object is reported when it is read whole
                    return False
                seen.add(meta.uid)
            if len(lacking) > MAX_LACKING:
                return False
    if lacking:
        await asyncio.sleep(SETTLE_SECONDS)
    if not all(map(store.is_current, lacking)):
        return False
    store.observe_list(seen, page.metadata.resource_version, within=within)
    return True
