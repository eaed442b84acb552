"""What the vendors refuse and clients get wrong: a call that is split from its return, a parameter that is no more."""

from services.fakellm.asked import Asked, MomentKind
from services.fakellm.scripts import Api

_WITHOUT_RETURN = {
    Api.CHAT: "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
    "'tool_call_id'. The following tool_call_ids did not have response messages: {ids}",
    Api.RESPONSES: "No tool output found for function call {ids}.",
    Api.MESSAGES: "messages: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. Each "
    "`tool_use` block must have a corresponding `tool_result` block in the next message.",
}
_WITHOUT_CALL = {
    Api.CHAT: "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
    "'tool_calls'. ({ids})",
    Api.RESPONSES: "No tool call found for function call output with call_id {ids}.",
    Api.MESSAGES: "messages: unexpected `tool_use_id` found in `tool_result` blocks: {ids}. Each `tool_result` block "
    "must have a corresponding `tool_use` block in the previous message.",
}
# Anthropic's version that has no sampling parameters; versions are dates.
_NO_SAMPLING = "2026-10-21"


def problem(asked: Asked, anthropic_version: str) -> str:
    """What the vendor would say against this request; empty if nothing."""
    if asked.sampling and anthropic_version >= _NO_SAMPLING:
        return f"{asked.sampling[0]}: Extra inputs are not permitted"
    return _unpaired(asked)


def _unpaired(asked: Asked) -> str:
    waiting: list[str] = []
    for kind, _, call_id in asked.moments:
        if kind is MomentKind.CALL:
            waiting.append(call_id)
        elif kind is MomentKind.RETURN and call_id in waiting:
            waiting.remove(call_id)
        elif kind is MomentKind.RETURN:
            return _WITHOUT_CALL[asked.api].format(ids=call_id)
        elif waiting:
            break
    return _WITHOUT_RETURN[asked.api].format(ids=", ".join(waiting)) if waiting else ""
