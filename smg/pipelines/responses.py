"""A response from request to answer, for every front: at once, or in the background."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from smg.errors import InvalidRequest
from smg.pipelines.off_loop import off_loop
from smg.pipelines.response_run import ResponseRun
from smg.responses.request import read_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.pipelines.meter import RequestMeter
    from smg.pipelines.response_parts import ResponseFront, ResponseParts
    from smg.responses.shapes import Json
    from smg.types.context import RequestContext
    from smg_proto.responses.v1 import responses_pb2


class ResponsesPipeline:
    """Answers requests for responses."""

    def __init__(
        self,
        parts: ResponseParts,
        now: Callable[[], float] = time.time,  # noqa: TID251 - kept with what is stored
    ) -> None:
        """Args: now tells Unix time in seconds."""
        self._parts = parts
        self._now = now

    async def create(
        self,
        message: responses_pb2.ResponseRequest,
        context: RequestContext,
        front: ResponseFront,
        new_meter: Callable[[], RequestMeter],
    ) -> Json:
        """Answer a request. Cancelling ends it.

        Args:
            message: the request.
            context: who asks.
            front: told of what happens.
            new_meter: makes a meter for each turn of the model.

        Returns: the whole response object; the front has had its last event, if it wants events.

        Raises:
            SmgError: the request is refused or failed before the model's first event, or cannot be kept.
        """
        call = await off_loop(partial(read_request, message), size=message.ByteSize())
        return await ResponseRun(self._parts, call, context, front, new_meter, self._now).run()

    async def waiting(
        self,
        message: responses_pb2.ResponseRequest,
        context: RequestContext,
        front: ResponseFront,
        new_meter: Callable[[], RequestMeter],
    ) -> ResponseRun:
        """A response that has not begun, for the background.

        Raises:
            InvalidRequest: a rule is broken, or the response would not be kept: nobody could find it.
        """
        call = await off_loop(partial(read_request, message), size=message.ByteSize())
        if not call.stores:
            raise InvalidRequest(
                "background: background is true and store is false; a response in the background must be stored",
                param="background",
            )
        return ResponseRun(self._parts, call, context, front, new_meter, self._now, is_background=True)
