"""The rules that the comments of conversation.proto and conversation_service.proto state."""

from collections.abc import Callable, Collection

from common.errors import FieldViolation, InvalidArgument, NotImplementedYet
from common.ids import Prefix
from common.pb.bridle.v1 import conversation_pb2, conversation_service_pb2
from services.agents.validate import model_settings
from services.wire import checks, masks
from services.wire.checks import Found, require

Conversation = conversation_pb2.Conversation

# Given once and for all.
_FIXED = ("agent_id", "isolated_block_labels")


def create(request: conversation_service_pb2.CreateConversationRequest) -> None:
    """Refuse a creation that breaks a rule."""
    require(_create(request))
    _refuse_unserved(request.conversation)


def update(request: conversation_service_pb2.UpdateConversationRequest) -> tuple[str, ...]:
    """Refuse an update that breaks a rule by itself, and give the paths that it changes."""
    wanted, mask = request.conversation, request.update_mask
    found = list(checks.identifier("conversation.id", Prefix.CONVERSATION, wanted.id))
    wrong = list(masks.problems(Conversation.DESCRIPTOR, mask))
    if wrong:
        raise InvalidArgument([*found, *wrong])
    paths = masks.changed_paths(wanted, mask)
    if masks.EVERYTHING in mask.paths:
        # It means everything that can be changed.
        paths = tuple(path for path in paths if path not in _FIXED or getattr(wanted, path))
    # What the mask leaves out is not looked at.
    changed = masks.copy(wanted, Conversation(), paths)
    require(iter([*found, *_fields(changed, masks.top_level(paths))]))
    _refuse_unserved(changed)
    return paths


def merged(current: Conversation, wanted: Conversation) -> None:
    """Refuse an update of what is given once and for all; sending it back as it is changes nothing."""
    if wanted.agent_id != current.agent_id:
        raise InvalidArgument.of("conversation.agent_id", "cannot be changed")


def conversation_id(text: str) -> None:
    """Refuse what cannot be the id of a conversation."""
    require(checks.identifier("conversation_id", Prefix.CONVERSATION, text))


def listing(request: conversation_service_pb2.ListConversationsRequest) -> None:
    """Refuse a list that can mean nothing."""
    if request.agent_id:
        require(checks.identifier("agent_id", Prefix.AGENT, request.agent_id))


def fork(request: conversation_service_pb2.ForkConversationRequest) -> None:
    """Refuse a fork that breaks a rule."""
    require(_fork(request))


def _create(request: conversation_service_pb2.CreateConversationRequest) -> Found:
    if request.HasField("conversation"):
        yield from checks.identifier("conversation.agent_id", Prefix.AGENT, request.conversation.agent_id)
    else:
        yield FieldViolation("conversation", "is required")
    yield from _fields(request.conversation, _CHECKS)
    yield from _request_id(request.request_id)


def _fork(request: conversation_service_pb2.ForkConversationRequest) -> Found:
    yield from checks.identifier("conversation_id", Prefix.CONVERSATION, request.conversation_id)
    yield from _request_id(request.request_id)


def _refuse_unserved(conversation: Conversation) -> None:
    # Part of the contract, not of this server yet: refused rather than ignored.
    if conversation.isolated_block_labels:
        raise NotImplementedYet("conversation.isolated_block_labels")


def _request_id(value: str) -> Found:
    return checks.text("request_id", value, most=128)


def _fields(conversation: Conversation, names: Collection[str]) -> Found:
    for name, check in _CHECKS.items():
        if name in names:
            yield from check(f"conversation.{name}", conversation)


_CHECKS: dict[str, Callable[[str, Conversation], Found]] = {
    "summary": lambda field, conversation: checks.text(field, conversation.summary, most=10_000),
    "model": lambda field, conversation: checks.handle(field, conversation.model),
    "model_settings": lambda field, conversation: model_settings(field, conversation.model_settings),
}
