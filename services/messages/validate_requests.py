"""Checks of requests to MessageService."""

from common.ids import Prefix
from common.pb.bridle.v1 import message_service_pb2, run_service_pb2
from services.runs import validate
from services.wire import checks
from services.wire.checks import Found, require


def run(request: run_service_pb2.CreateRunRequest) -> None:
    """The run inside a message request: checked here, so that errors name the fields of this request."""
    validate.create(request, "run.")


def message_id(text: str) -> None:
    """A request that names a message."""
    require(checks.identifier("message_id", Prefix.MESSAGE, text))


def listing(request: message_service_pb2.ListMessagesRequest) -> None:
    """ListMessages."""
    require(_listing(request))


def _listing(request: message_service_pb2.ListMessagesRequest) -> Found:
    match request.WhichOneof("scope"):
        case "conversation_id":
            yield from checks.identifier("conversation_id", Prefix.CONVERSATION, request.conversation_id)
        case "run_id":
            yield from checks.identifier("run_id", Prefix.RUN, request.run_id)
        case "agent_id":
            yield from checks.identifier("agent_id", Prefix.AGENT, request.agent_id)
    if request.after_message_id:
        yield from checks.identifier("after_message_id", Prefix.MESSAGE, request.after_message_id)
    if request.before_message_id:
        yield from checks.identifier("before_message_id", Prefix.MESSAGE, request.before_message_id)
    yield from validate.order("order_by", request.order_by)
