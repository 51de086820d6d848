# SPDX-License-Identifier: BSD-3-Clause
"""Who may talk to the page, and what a browser may do with what it gets.

* Only names that the page goes by are answered (``Host``): a stranger's name that leads to this machine is not one
  (DNS rebinding).
* A request that changes something must come from the page itself (``Origin``, ``Sec-Fetch-Site``) and be no plain form
  (``Content-Type``): other pages in the same browser can send neither (CSRF).
* Beyond this machine there is a token: opened once by its address, then a cookie that scripts cannot read.  What is
  kept of it is its hash.
* Scripts and styles only from here, nothing inline (content security policy), no sniffing, no frames.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qs, urlsplit

COOKIE = "patchbag_token"
HERE = ("localhost", "127.0.0.1", "::1")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
READING = ("GET", "HEAD")
TYPES = ("application/json", "image/", "application/octet-stream", "text/csv")

Send = Callable[[dict[str, Any]], Awaitable[None]]


def new_token() -> tuple[str, str]:
    """A token, and the hash of it that is kept."""
    token = secrets.token_urlsafe(24)
    return token, token_hash(token)


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Safety:
    """ASGI middleware.

    Parameters
    ----------
    hosts : names that the page goes by, beside those of this machine
    token : hash of the token, None where none is needed
    """

    def __init__(self, app: Any, hosts: Iterable[str] = (), token: str | None = None) -> None:
        self._app = app
        self._hosts = {host.lower() for host in (*HERE, *hosts)}
        self._token = token

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # there are no web sockets here
        headers = {name.lower(): value.decode("latin-1") for name, value in reversed(scope["headers"])}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _reply(send, *refusal)
            return

        async def with_headers(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message["headers"]}
                extra = [] if b"cache-control" in own else [(b"cache-control", b"no-store")]
                message["headers"] = [*message["headers"], *HEADERS, *extra]
            await send(message)

        await self._app(scope, receive, with_headers)

    def _refusal(self, scope: Any, headers: dict[bytes, str]) -> tuple[int, str, list[Any]] | None:
        host = headers.get(b"host", "")
        name = _name(host) or ""
        # no stranger's name leads here if it is none but an address; who opens that needs the token
        if name not in self._hosts and (self._token is None or not _is_address(name)):
            return 421, f"this page does not go by the name {host[:80]!r}", []
        if scope["method"] not in READING:
            origin = headers.get(b"origin")
            if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
                return 403, "the request comes from another page", []
            if headers.get(b"sec-fetch-site", "same-origin") not in ("same-origin", "none"):
                return 403, "the request comes from another page", []
            kind = headers.get(b"content-type", "").lower()
            if not kind.startswith(TYPES):
                return 415, "send application/json, or the bytes of a file", []
        if self._token is not None:
            return self._without_token(scope, headers)
        return None

    def _without_token(self, scope: Any, headers: dict[bytes, str]) -> tuple[int, str, list[Any]] | None:
        assert self._token is not None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and given:
            if not hmac.compare_digest(token_hash(given), self._token):
                return 401, "this is not the token that was printed when the page was started", []
            secure = "; Secure" if scope.get("scheme") == "https" else ""
            cookie = f"{COOKIE}={given}; Path=/; HttpOnly; SameSite=Strict{secure}"
            # the token leaves the address bar
            return 303, "", [(b"location", b"/"), (b"set-cookie", cookie.encode())]
        bearer = headers.get(b"authorization", "").removeprefix("Bearer ")
        try:
            found = SimpleCookie(headers.get(b"cookie", "")).get(COOKIE)
        except CookieError:
            found = None
        known = bearer or (found.value if found else "")
        if not hmac.compare_digest(token_hash(known), self._token):
            return 401, "open the address with the token that was printed when the page was started", []
        return None


def _name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


async def _reply(send: Send, status: int, detail: str, more: list[Any]) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), *HEADERS, *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
