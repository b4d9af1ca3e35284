"""Serves one keeper by gRPC until a signal comes. Nothing is written to disk: what it keeps goes with the process."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from typing import Any, TypeAlias, cast

import grpc
import grpc.aio
from trimtab_api.errors import UserError
from trimtab_api.keeper.v1 import keeper_pb2, keeper_pb2_grpc
from trimtab_api.rpc.channels import SERVER_OPTIONS, listen

from trimtab.checkpoint.keeper.contents import CHUNK_BYTES, Contents, FullError, WrongBytesError

#: Seconds that calls under way have once a signal has come.
_GRACE_SECONDS = 1.0

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class KeeperService:
    """The service: one loop, so that no two calls touch the contents at once."""

    def __init__(self, contents: Contents, host: str) -> None:
        """Serve ``contents``; ``host`` tells those who ask where this keeper is."""
        self._contents, self._host = contents, host

    async def Put(  # noqa: N802 - the contract's name
        self, requests: AsyncIterator[keeper_pb2.PutRequest], context: Context
    ) -> keeper_pb2.PutResponse:
        """Keep one file."""
        await _need_deadline(context)
        first = await anext(aiter(requests), keeper_pb2.PutRequest())
        try:
            upload = self._contents.begin(first.name, first.size, first.sha256)
        except FullError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        try:
            async for request in requests:
                upload.append(request.data)
            upload.finish()
        except WrongBytesError as error:
            await context.abort(grpc.StatusCode.DATA_LOSS, str(error))
        finally:
            upload.abandon()
        return keeper_pb2.PutResponse()

    async def Get(  # noqa: N802
        self, request: keeper_pb2.GetRequest, context: Context
    ) -> AsyncIterator[keeper_pb2.GetResponse]:
        """Yield a file in chunks."""
        await _need_deadline(context)
        file = self._contents.get(request.name)
        if file is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"{request.name[:256]} is not here")
        yield keeper_pb2.GetResponse(size=len(file.data), sha256=file.sha256)
        view = memoryview(file.data)
        for begin in range(0, len(view), CHUNK_BYTES):
            yield keeper_pb2.GetResponse(data=bytes(view[begin : begin + CHUNK_BYTES]))

    async def List(  # noqa: N802
        self, request: keeper_pb2.ListRequest, context: Context
    ) -> keeper_pb2.ListResponse:
        """Return the names in a folder."""
        await _need_deadline(context)
        return keeper_pb2.ListResponse(names=self._contents.names(request.folder), host=self._host)

    async def Remove(  # noqa: N802
        self, request: keeper_pb2.RemoveRequest, context: Context
    ) -> keeper_pb2.RemoveResponse:
        """Remove a folder."""
        await _need_deadline(context)
        self._contents.remove(request.folder)
        return keeper_pb2.RemoveResponse()


async def _need_deadline(context: Context) -> None:
    if context.time_remaining() is None:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no deadline")
    return


async def serve(address: str, max_bytes: int, host: str) -> None:
    """Keep at most ``max_bytes`` at ``address`` until SIGINT or SIGTERM comes. Raises `UserError`."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    try:
        listen(server, address)
    except RuntimeError as error:
        remedy = f"cannot listen on this address ({error}); choose another one, or stop what uses it"
        raise UserError(remedy, field="--listen", value=address) from None
    service = cast("keeper_pb2_grpc.KeeperServicer", KeeperService(Contents(max_bytes), host))
    keeper_pb2_grpc.add_KeeperServicer_to_server(service, server)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await server.start()
    print(f"keeps up to {max_bytes} bytes in memory at {address}", flush=True)
    with contextlib.suppress(asyncio.CancelledError):
        await stopped.wait()
    await server.stop(_GRACE_SECONDS)
