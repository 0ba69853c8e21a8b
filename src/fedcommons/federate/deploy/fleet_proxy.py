"""A TLS proxy in front of a SuperLink that lets SuperNodes through and nobody else.

A SuperLink serves SuperNodes (/v1/fleet/) and operators (/v1/control/, /v1/runtime/) on one port,
and whoever reaches the part for operators may run code at every site. So the SuperLink listens on
loopback, and the sites connect to this proxy.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from fedcommons import shown
from fedcommons.errors import FederationError
from fedcommons.federate.deploy.certificates import Tls

logger = shown.logger(__name__)

FLEET = re.compile(r"/v1/fleet/[a-z-]+")
HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host"}
)
TIMEOUT = httpx.Timeout(60.0, connect=10.0)


def fleet_only(superlink: str, tls: Tls) -> Starlette:
    """An app that passes requests to the fleet interface on to a SuperLink, and refuses others."""
    context = ssl.create_default_context(cafile=str(tls.ca))
    client = httpx.AsyncClient(base_url=f"https://{superlink}", verify=context, timeout=TIMEOUT)

    async def pass_on(request: Request) -> Response:
        raw_path = request.scope["raw_path"].decode("latin-1").partition("?")[0]
        if request.method != "POST" or not FLEET.fullmatch(raw_path):
            logger.warning("refused %s %r", request.method, raw_path)
            return PlainTextResponse("only the fleet interface is served here", 403)
        headers = [(k, v) for k, v in request.headers.items() if k not in HOP_BY_HOP]
        onward = client.build_request("POST", raw_path, headers=headers, content=request.stream())
        try:
            answer = await client.send(onward, stream=True)
        except httpx.TransportError as error:
            logger.warning("the SuperLink is not reached: %s", type(error).__name__)
            return PlainTextResponse("the SuperLink is not reached", 502)
        kept = {k: v for k, v in answer.headers.items() if k not in HOP_BY_HOP}
        return StreamingResponse(
            answer.aiter_raw(), answer.status_code, kept, background=BackgroundTask(answer.aclose)
        )

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    return Starlette(routes=[Route("/{path:path}", pass_on, methods=methods)], lifespan=lifespan)


def serve(host: str, port: int, superlink: str, tls: Tls) -> None:
    """Serve until the process is asked to end."""
    try:
        uvicorn.run(
            fleet_only(superlink, tls),
            host=host,
            port=port,
            ssl_certfile=str(tls.certificate),
            ssl_keyfile=str(tls.key),
            access_log=False,
        )
    except OSError as error:  # also raised by a bad certificate
        raise FederationError(f"{host}:{port} cannot be served: {error}") from None
