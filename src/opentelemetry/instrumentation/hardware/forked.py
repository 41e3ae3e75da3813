"""A forked child and the SDK: new locks, and no connections of the parent.

A thread of the parent may hold any lock during the fork, and that copy is never released. Without us, a program that
has no metrics of its own collects and exports nothing, so that none is held. Without any of this, with us:

- locks of the SDK: https://github.com/open-telemetry/opentelemetry-python/issues/4345
- locks and connections of urllib3: https://github.com/urllib3/urllib3/issues/850
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

_LOCKS: Mapping[type, Callable[[], object]] = {type(make()): make for make in (threading.Lock, threading.RLock)}
_LOCK_NAMES = (
    "_lock",
    "_export_lock",
    "_instrument_registration_lock",
    "_instrument_id_instrument_lock",  # the same in SDK 1.39
)


def import_early() -> None:
    """Import before any fork what requests imports in its first request. A fork during an import keeps its lock."""
    import netrc  # noqa: F401


def replace_locks(provider: object, storages: Mapping[Any, Any]) -> None:
    """Replace the locks that the SDK (1.45) takes for a registration, a collection or an export."""
    owners = [getattr(provider, "_measurement_consumer", None), *storages, *storages.values()]
    owners += getattr(provider, "_meters", {}).values()
    for storage in storages.values():
        for matches in getattr(storage, "_instrument_view_instrument_matches", {}).values():
            for match in matches:
                owners += [match, *getattr(match, "_attributes_aggregation", {}).values()]
    for owner in owners:
        for name in _LOCK_NAMES:
            make = _LOCKS.get(type(getattr(owner, name, None)))
            if make is not None:
                setattr(owner, name, make())


def abandon_connections(exporter: object) -> None:
    """Close the copies of the connections of an OTLP/HTTP exporter. The next export opens others.

    Otherwise, child and parent would send on the same ones. The locks of urllib3 would be waited for also by a child
    that exports nothing: at its exit, urllib3 closes all connections.
    """
    transport: Any = exporter
    for name in ("_client", "_transport"):  # up to SDK 1.44, the exporter itself is what sends
        transport = getattr(transport, name, transport)
    managers: list[Any] = [getattr(transport, "_pool", None)]  # urllib3 without requests
    session = getattr(transport, "_session", None)
    if session is not None:
        session.cookies._cookies_lock = threading.RLock()
        for adapter in session.adapters.values():
            managers += [getattr(adapter, "poolmanager", None), *getattr(adapter, "proxy_manager", {}).values()]
    for manager in managers:
        if hasattr(manager, "pools"):
            manager.pools.lock = threading.RLock()
            for pool in manager.pools._container.values():
                pool.pool.mutex._at_fork_reinit()  # not replaced: three conditions and a finalizer have it, too
            manager.clear()
