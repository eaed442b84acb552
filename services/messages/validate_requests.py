"""Checks of requests to MessageService."""

from google.protobuf.timestamp_pb2 import Timestamp

from common.errors import FieldViolation
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


def search(request: message_service_pb2.SearchMessagesRequest) -> None:
    """SearchMessages."""
    require(_search(request))


def _search(request: message_service_pb2.SearchMessagesRequest) -> Found:
    yield from checks.text("query", request.query, least=1, most=1_000)
    if request.query and not request.query.strip():
        yield FieldViolation("query", "must have at least one word")
    if request.agent_id:
        yield from checks.identifier("agent_id", Prefix.AGENT, request.agent_id)
    if request.conversation_id:
        yield from checks.identifier("conversation_id", Prefix.CONVERSATION, request.conversation_id)
    for name in ("created_after", "created_before"):
        if request.HasField(name):
            yield from checks.moment(name, getattr(request, name))
    both = request.HasField("created_after") and request.HasField("created_before")
    if both and _order(request.created_after) >= _order(request.created_before):
        yield FieldViolation("created_before", "must be later than created_after")


def _order(moment: Timestamp) -> tuple[int, int]:
    return moment.seconds, moment.nanos
