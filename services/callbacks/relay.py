"""Empties the outbox of callbacks. One that is not taken is sent again, later and later, for about a day."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta

import httpx2
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter
from sqlalchemy import Connection

from common.clock import Clock
from common.db.engine import Database
from common.errors import InvalidArgument, NotFound
from common.net import ForbiddenAddress, check_url
from common.pb.bridle.v1 import message_pb2, run_pb2
from common.seal import Seal
from common.telemetry import names
from services.callbacks import signature, store
from services.callbacks.model import Answer, Due
from services.callbacks.sender import Sender
from services.messages.convert import message_to_pb
from services.messages.model import Message
from services.messages.store import messages_of_run
from services.runs.convert import run_to_pb
from services.runs.model import Run
from services.runs.store.queries import get_run

logger = logging.getLogger(__name__)

Render = Callable[[run_pb2.Run, Sequence[message_pb2.Message]], bytes]

_TICK_SECONDS = 0.5
_AT_ONCE = 32
# Longer than an attempt can take, so that two are never made at once.
_LEASE = timedelta(seconds=30)
_PAUSES = tuple(timedelta(seconds=each) for each in (5, 30, 120, 600, 3_600, 10_800, 21_600, 43_200))


def signing_secret(seal: Seal) -> str:
    """What receivers check signatures with. SecretKeyMissing on a server that has no key."""
    return signature.secret_of(seal.derive("callbacks"))


class CallbackRelay:
    """Sends what is due, as long as it runs."""

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        http: httpx2.AsyncClient,
        private: bool,
        seal: Seal,
        render: Render,
        registry: CollectorRegistry,
    ) -> None:
        self._db = db
        self._clock = clock
        self._sender = Sender(http, private=private)
        self._private = private
        self._seal = seal
        self._render = render
        self._sent = Counter(
            names.CALLBACKS, "Attempts to tell of a stopped run, by outcome.", ("outcome",), registry=registry
        )

    def check(self, url: str) -> None:
        """Refuse an address that would never be called, and any on a server that cannot sign."""
        signing_secret(self._seal)
        try:
            check_url(url, private=self._private)
        except ForbiddenAddress as error:
            raise InvalidArgument.of("options.callback_url", str(error)) from None

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                busy = await self.tick()
            except Exception:
                logger.exception("sending callbacks failed")
                busy = False
            if not busy:
                await asyncio.sleep(_TICK_SECONDS)

    async def tick(self) -> bool:
        """Send what is due now; whether there was anything."""
        # A look first: a transaction that writes nothing would still hold the others up.
        if not await self._db.lookup(store.is_due, self._clock.now()):
            return False
        due = await self._db.write(store.take, self._clock.now(), _LEASE, _AT_ONCE)
        await asyncio.gather(*map(self._send, due))
        return bool(due)

    async def _send(self, due: Due) -> None:
        try:
            run, messages = await self._db.read(_load, due)
        except NotFound:
            await self._close(due, Answer(error="the run is deleted"), again=None)
            return
        body = self._render(run_to_pb(run), [message_to_pb(message) for message in messages])
        secret = signing_secret(self._seal)
        headers = signature.headers(secret, f"{run.id}.{due.stop.seq}", self._clock.now(), body)
        answer = await self._sender.post(due.stop.url, body, headers)
        ended = answer.taken or answer.unwanted or due.attempts > len(_PAUSES)
        await self._close(due, answer, again=None if ended else _PAUSES[due.attempts - 1])

    async def _close(self, due: Due, answer: Answer, again: timedelta | None) -> None:
        await self._db.write(store.close, due, answer, self._clock.now(), again)
        outcome = "taken" if answer.taken else "given_up" if again is None else "again"
        self._sent.labels(outcome).inc()
        if not answer.taken:
            shown = {"run_id": due.stop.run_id, "attempt": due.attempts, "status": answer.status, "error": answer.error}
            logger.warning("a callback was not taken", extra={"fields": shown})


def _load(conn: Connection, due: Due) -> tuple[Run, list[Message]]:
    """The run and what it said, as they were at the stop."""
    stop = due.stop
    run = get_run(conn, due.organization_id, stop.run_id)
    stopped_at = stop.at if stop.state.final else None
    run = replace(run, state=stop.state, stop_reason=stop.stop_reason, stopped_at=stopped_at, last_seq=stop.seq)
    return run, messages_of_run(conn, due.organization_id, stop.run_id, stop.at)
