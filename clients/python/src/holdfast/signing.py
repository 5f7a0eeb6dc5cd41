"""Signatures of requests, by Standard Webhooks 1.0.0: HMAC-SHA256 of `ID.TIMESTAMP.BODY`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

__all__ = ["Refused", "Verifier", "parse_secrets", "sign"]

TOLERANCE = 300
"""How far the time of a request may be from ours, in seconds."""
REMEMBERED_SECONDS = 600
"""How long the id of a request is remembered."""
REMEMBERED_IDS = 100_000
"""How many ids are remembered at most. Above it, the oldest are forgotten."""
MAX_ID_BYTES = 64


class Refused(Exception):
    """Refused is a request that was not executed: the status and the body of its answer."""

    def __init__(self, status: int, code: str, message: str, **members: object) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.members = members


def parse_secrets(secrets: str | Sequence[str] | None) -> list[bytes]:
    """parse_secrets returns the keys of secrets: `whsec_` and base64 of 24 to 64 bytes. A text may have several with
    commas between them. ValueError for any other text; its message does not repeat the secret."""
    if secrets is None:
        return []
    texts = secrets.split(",") if isinstance(secrets, str) else list(secrets)
    keys = []
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            encoded = text.strip()
            key = base64.b64decode(encoded.removeprefix("whsec_"), validate=True)
            if not encoded.startswith("whsec_") or not 24 <= len(key) <= 64:
                raise ValueError
        except (ValueError, binascii.Error):
            raise ValueError(
                f"secret {number} must be whsec_ and base64 of 24 to 64 bytes; make one with: "
                "echo whsec_$(openssl rand -base64 32)"
            ) from None
        keys.append(key)
    return keys


def sign(
    secrets: str | Sequence[str], body: bytes, *, id: str | None = None, timestamp: int | None = None
) -> dict[str, str]:
    """sign returns the three headers of a signed request. The default of id is a random one, that of timestamp now."""
    id = id or uuid.uuid4().hex
    timestamp = int(time.time()) if timestamp is None else timestamp
    signatures = [_signature(key, id, str(timestamp), body) for key in parse_secrets(secrets)]
    return {"webhook-id": id, "webhook-timestamp": str(timestamp), "webhook-signature": " ".join(signatures)}


def _signature(key: bytes, id: str, timestamp: str, body: bytes) -> str:
    content = _raw(id) + b"." + _raw(timestamp) + b"." + body
    return "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()


def _raw(header: str) -> bytes:
    """_raw returns the bytes of a header. Servers decode them as ISO 8859-1."""
    return header.encode("latin-1", "replace")


class Verifier:
    """Verifier checks signed requests. It may be used by several threads."""

    def __init__(
        self,
        keys: Sequence[bytes],
        *,
        allow_unsigned: bool = False,
        tolerance: float = TOLERANCE,
        remembered: int = REMEMBERED_IDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """allow_unsigned accepts all requests if there is no key. With keys, every request must be signed."""
        self._keys = list(keys)
        self._allow_unsigned = allow_unsigned
        self._tolerance = tolerance
        self._remembered = remembered
        self._clock = clock
        self._seen: OrderedDict[str, float] = OrderedDict()  # the time at which each id was seen, oldest first
        self._lock = threading.Lock()

    def check(self, headers: Mapping[str, str], body: bytes) -> None:
        """check returns for a request that the executor has signed. Refused for any other. The names of headers are
        in lower case."""
        if not self._keys:
            if self._allow_unsigned:
                if "origin" in headers:  # any page that its author opens could send it
                    raise Refused(
                        401,
                        "SIGNATURE_MISSING",
                        "Requests of browsers must be signed, also where other requests need no signature.",
                    )
                return
            raise Refused(
                401,
                "SECRET_MISSING",
                "This application has no secret: set HOLDFAST_ENDPOINT_SECRET to the secret of "
                "the executor. For development only, HOLDFAST_ENDPOINT_ALLOW_UNSIGNED=1 accepts unsigned requests.",
            )
        id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        signatures = headers.get("webhook-signature", "").split()
        if not id or not timestamp or not signatures:
            raise Refused(
                401,
                "SIGNATURE_MISSING",
                "The request needs the headers webhook-id, webhook-timestamp and "
                "webhook-signature: give the executor the secret of this application.",
            )
        matches = False
        for key in self._keys:  # all of them, so that the time tells nothing
            expected = _signature(key, id, timestamp, body).encode()
            for signature in signatures:
                matches |= hmac.compare_digest(expected, _raw(signature))
        if not matches or len(_raw(id)) > MAX_ID_BYTES:
            raise Refused(
                401,
                "SIGNATURE_INVALID",
                "No signature of the request is from a secret of this application: compare "
                "the secrets of the executor with HOLDFAST_ENDPOINT_SECRET.",
            )
        now = self._clock()
        sent = int(timestamp) if timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 16 else 0
        if abs(now - sent) > self._tolerance:
            raise Refused(
                401,
                "TIMESTAMP_INVALID",
                f"The time of the request, {timestamp[:32]}, is more than {self._tolerance:g} "
                f"seconds away from the time here, {int(now)}: compare the clocks.",
            )
        self._remember(id, now)

    def _remember(self, id: str, now: float) -> None:
        with self._lock:
            while self._seen and (oldest := next(iter(self._seen.items())))[1] < now - REMEMBERED_SECONDS:
                del self._seen[oldest[0]]
            if id in self._seen:
                raise Refused(409, "REPLAYED", "A request with this webhook-id has been received before.")
            self._seen[id] = now
            if len(self._seen) > self._remembered:
                self._seen.popitem(last=False)
