"""The fake provider as a server, and what a test sees of it."""

import asyncio
import secrets
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from common.clock import Clock, SystemClock
from common.startup import StartupError
from services.fakellm import checks, prompts
from services.fakellm.anthropic import MessagesWriter
from services.fakellm.asked import Asked, BadRequestError, read
from services.fakellm.connection import Connection
from services.fakellm.frames import Job, Writer
from services.fakellm.http import Request, json_response
from services.fakellm.models import MODELS, listed_by_anthropic, listed_by_openai
from services.fakellm.openai_chat import ChatWriter
from services.fakellm.openai_responses import ResponsesWriter
from services.fakellm.play import Player
from services.fakellm.record import Ended, Exchange, Journal
from services.fakellm.rules import Rule, Rules
from services.fakellm.scripts import Api, Failure, Script

_PATHS = {"/v1/chat/completions": Api.CHAT, "/v1/responses": Api.RESPONSES, "/v1/messages": Api.MESSAGES}
_WRITERS: dict[Api, Callable[[Job], Writer]] = {
    Api.CHAT: ChatWriter,
    Api.RESPONSES: ResponsesWriter,
    Api.MESSAGES: MessagesWriter,
}


class FakeLlm:
    """A provider that answers for every model. Scripts come from `will`, then from rules, then from the prompt."""

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        clock: Clock | None = None,
        keep: int = 1000,
        models: Sequence[str] = MODELS,
    ) -> None:
        self._models = tuple(models)
        self._clock = clock or SystemClock()
        self._rules = Rules(rules)
        self._next: deque[Script] = deque()
        self._journal = Journal(self._clock, keep)
        # Ids of calls must differ from those of a fake that ran before on the same conversation.
        self._unique = secrets.token_hex(4)
        self.address = ""

    @property
    def openai_base_url(self) -> str:
        """What OPENAI_BASE_URL is to be."""
        return f"http://{self.address}/v1"

    @property
    def anthropic_base_url(self) -> str:
        """What ANTHROPIC_BASE_URL is to be."""
        return f"http://{self.address}"

    @property
    def requests(self) -> list[Exchange]:
        """The requests of the three APIs so far, oldest first."""
        return self._journal.exchanges

    async def wait_for_requests(self, count: int = 1, timeout: float = 5.0) -> list[Exchange]:
        """The requests, once there are so many."""
        return await self._journal.wait_for(count, timeout)

    def will(self, *scripts: Script) -> None:
        """What the next requests get, whatever they are."""
        self._next.extend(scripts)

    def rule(self, rule: Rule) -> None:
        """A rule that comes before those that are there."""
        self._rules.add(rule)

    def forget(self) -> None:
        """No scripts, no rules, no requests."""
        self._next.clear()
        self._rules.clear()
        self._journal.clear()

    async def handle(self, request: Request, connection: Connection) -> None:
        """Answer one request."""
        api = _PATHS.get(request.path)
        if api is None or request.method != "POST":
            connection.write(b"".join(self._other(request)))
            return
        exchange = await self._journal.open(api, request)
        try:
            await self._play(exchange, Player(connection, exchange))
        except asyncio.CancelledError:
            exchange.end(Ended.CLIENT_CLOSED if connection.lost else Ended.STOPPED)
            raise

    async def _play(self, exchange: Exchange, player: Player) -> None:
        try:
            asked = read(exchange.api, exchange.raw_body)
        except BadRequestError as error:
            await player.fail(Failure(400, message=str(error)))
            return
        refused = checks.problem(asked, exchange.headers.get("anthropic-version", ""))
        script = Failure(400, message=refused) if refused else self._choose(asked)
        if isinstance(script, Failure):
            await player.fail(script)
            return
        job = Job(script, asked, f"{self._unique}{exchange.number:x}", int(self._clock.now().timestamp()))
        await player.answer(script, _WRITERS[exchange.api](job), asked.stream)

    def _choose(self, asked: Asked) -> Script:
        if self._next:
            return self._next.popleft()
        return self._rules.choose(asked) or prompts.obey(asked)

    def _other(self, request: Request) -> tuple[bytes, bytes]:
        match request.method, request.path:
            case "GET", "/v1/models":
                anthropic = "anthropic-version" in request.headers
                shown = listed_by_anthropic if anthropic else listed_by_openai
                return json_response(200, shown(self._models, request.query))
            case "GET", "/requests":
                return json_response(200, [exchange.shown() for exchange in self.requests])
            case "DELETE", "/requests":
                self._journal.clear()
                return json_response(200, [])
        known = ", ".join([*_PATHS, "/v1/models", "/requests"])
        return json_response(404, {"error": {"message": f"There is no {request.path} here; there is {known}."}})


@asynccontextmanager
async def fake_llm(
    address: str = "127.0.0.1:0",
    rules: Iterable[Rule] = (),
    clock: Clock | None = None,
    keep: int = 1000,
    models: Sequence[str] = MODELS,
) -> AsyncIterator[FakeLlm]:
    """A fake provider that listens for the duration of the block; its last `keep` requests are remembered."""
    fake = FakeLlm(rules, clock, keep, models)
    connections: set[Connection] = set()
    listening = _listen(address)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(fake.handle, connections), sock=listening)
    host, _, _ = address.rpartition(":")
    fake.address = f"{host}:{listening.getsockname()[1]}"
    try:
        yield fake
    finally:
        server.close()
        for connection in tuple(connections):
            await connection.stop()


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host.strip("[]"), int(port)))
    except OSError as error:
        listening.close()
        raise StartupError(f"cannot listen on {address}: {error.strerror}") from None
    return listening
