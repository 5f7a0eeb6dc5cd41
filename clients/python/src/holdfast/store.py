"""The private storage of a session, for tools and methods."""

from __future__ import annotations

import copy
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from .schema import to_json

__all__ = ["Store"]

MAX_KEY_BYTES = 512


class Store:
    """Store is the private storage of the session: values by key that neither clients nor the model see.

    A call that fails writes nothing. What a finished call has written stays, also after a rewind; a branch begins with
    an empty store. Reads see the entries that `store_reads` of the tool names, with the writes of this call. A method
    has no reads."""

    def __init__(self, given: Mapping[str, Any] | None, send: Callable[[str, Any], None]) -> None:
        given = given or {}
        self._reads: tuple[str, ...] = tuple(given.get("reads") or ())
        self._entries: dict[str, Any] = dict(given.get("entries") or {})
        self._complete: bool = given.get("complete", True)
        self._send = send

    def get(self, key: str, default: Any = None) -> Any:
        """Returns the value of a key. LookupError if store_reads does not name it."""
        self._check_readable(key)
        if key not in self._entries:
            self._check_complete()
        return copy.deepcopy(self._entries.get(key, default))

    def list(self, prefix: str) -> dict[str, Any]:
        """Returns the entries whose keys begin with a prefix, ordered by key. Errors as of get."""
        self._check_readable(prefix)
        self._check_complete()
        found = sorted(key for key in self._entries if key.startswith(prefix))
        return {key: copy.deepcopy(self._entries[key]) for key in found}

    def put(self, key: str, value: Any) -> None:
        """Writes the value of a key: JSON of at most 1 MiB. A key has 1 to 512 bytes without control characters."""
        value = to_json(value)
        self._write({"op": "put", "key": key, "value": value})
        self._entries[key] = value

    def delete(self, key: str) -> None:
        """Deletes a key, if there is one."""
        self._write({"op": "delete", "key": key})
        self._entries.pop(key, None)

    def add(self, key: str, delta: int) -> None:
        """Adds an integer to the value of a key. A missing key counts as 0, and parallel calls lose none."""
        before = self._entries.get(key, 0)
        if any(isinstance(n, bool) or not isinstance(n, int) for n in (delta, before)):
            raise TypeError("add takes an integer, and a key whose value is one")
        self._write({"op": "add", "key": key, "value": delta})
        self._entries[key] = before + delta

    def _write(self, op: dict[str, Any]) -> None:
        key = op["key"]
        if (
            not isinstance(key, str)
            or not 1 <= len(key.encode("utf-8", "replace")) <= MAX_KEY_BYTES
            or any(unicodedata.category(c) == "Cc" for c in key)
        ):
            raise ValueError(f"the key {key!r:.80} must have 1 to {MAX_KEY_BYTES} bytes without control characters")
        self._send("store", [op])

    def _check_readable(self, key: str) -> None:
        if not key.startswith(self._reads or ("\0",)):
            raise LookupError(f"the tool does not read {key!r:.80} of the store; name its beginning in store_reads")

    def _check_complete(self) -> None:
        if not self._complete:
            raise LookupError("the entries that store_reads names exceed 1 MiB or 1,000 keys; name longer prefixes")
