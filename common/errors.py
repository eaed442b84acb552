"""Every error a caller may see. Each class owns its code, its reason and its metadata.

    BridleError
    ├── InvalidArgument             INVALID_ARGUMENT        (names the fields)
    ├── ApprovalMismatch            APPROVAL_MISMATCH
    ├── NotFound                    RESOURCE_NOT_FOUND
    ├── AlreadyExists               ALREADY_EXISTS
    │   └── RequestIdReused         REQUEST_ID_REUSED
    ├── FailedPrecondition          (abstract: the resource is in the wrong state)
    │   ├── PendingApproval         PENDING_APPROVAL
    │   ├── NoPendingApproval       NO_PENDING_APPROVAL
    │   ├── ApprovalAlreadyDecided  APPROVAL_ALREADY_DECIDED
    │   ├── IllegalTransition       ILLEGAL_TRANSITION
    │   ├── ResourceInUse           RESOURCE_IN_USE
    │   ├── SecretKeyMissing        SECRET_KEY_MISSING
    │   ├── SecretKeyWrong          SECRET_KEY_WRONG
    │   └── ToolServerFailed        TOOL_SERVER_FAILED
    ├── Aborted                     (abstract: lost a race, retry one level up)
    │   ├── EtagMismatch            ETAG_MISMATCH
    │   ├── ConversationBusy        CONVERSATION_BUSY
    │   ├── StoreConflict           STORE_CONFLICT
    │   └── InternalCancelled       INTERNAL_CANCELLED
    ├── LimitExceeded               LIMIT_EXCEEDED          (may say when to retry)
    ├── CursorOutOfRange            CURSOR_OUT_OF_RANGE
    ├── Unavailable                 (abstract: retry with back-off)
    │   ├── Draining                DRAINING
    │   ├── StoreUnavailable        STORE_UNAVAILABLE
    │   └── ModelCallFailed         MODEL_CALL_FAILED
    ├── Unauthenticated             UNAUTHENTICATED
    ├── PermissionDenied            PERMISSION_DENIED
    ├── NotImplementedYet           NOT_IMPLEMENTED
    ├── DeadlineExceeded            DEADLINE_EXCEEDED
    └── Internal                    INTERNAL                (fixed text, never the cause)

Whatever is dynamic in a message is in `metadata` too, so that no client has to parse text (AIP-193).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, ClassVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Aborted",
    "AlreadyExists",
    "ApprovalAlreadyDecided",
    "ApprovalMismatch",
    "BridleError",
    "Code",
    "ConversationBusy",
    "CursorOutOfRange",
    "DeadlineExceeded",
    "Draining",
    "EtagMismatch",
    "FailedPrecondition",
    "FieldViolation",
    "IllegalTransition",
    "Internal",
    "InternalCancelled",
    "InvalidArgument",
    "LimitExceeded",
    "ModelCallFailed",
    "NoPendingApproval",
    "NotFound",
    "NotImplementedYet",
    "PendingApproval",
    "PermissionDenied",
    "RequestIdReused",
    "ResourceInUse",
    "SecretKeyMissing",
    "SecretKeyWrong",
    "StoreConflict",
    "StoreUnavailable",
    "ToolServerFailed",
    "Unauthenticated",
    "Unavailable",
]


class Code(enum.IntEnum):
    """Status codes with gRPC's numbers, so that domain code need not import grpc."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class BridleError(Exception):
    """An error with a meaning for the caller; raise one of its leaves."""

    code: ClassVar[Code]
    reason: ClassVar[str]

    def __init__(self, message: str, metadata: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.metadata: dict[str, str] = metadata or {}


class FieldViolation(msgspec.Struct, frozen=True):
    """One field of a request and what is wrong with it."""

    field: str
    description: str


class InvalidArgument(BridleError):
    """The request is wrong whatever the state of the server."""

    code = Code.INVALID_ARGUMENT
    reason = "INVALID_ARGUMENT"

    def __init__(self, fields: Sequence[FieldViolation]) -> None:
        text = "; ".join(f"{each.field} {each.description}" for each in fields)
        super().__init__(f"Invalid argument: {text}.", {"fields": ",".join(each.field for each in fields)})
        self.fields = list(fields)

    @classmethod
    def of(cls, field: str, description: str) -> InvalidArgument:
        """One wrong field; `description` completes the sentence that the field's name begins."""
        return cls([FieldViolation(field, description)])


class ApprovalMismatch(BridleError):
    """An approval must answer exactly the tool calls that wait for it."""

    code = Code.INVALID_ARGUMENT
    reason = "APPROVAL_MISMATCH"

    def __init__(self, expected: Sequence[str], received: Sequence[str]) -> None:
        super().__init__(
            f"Invalid tool call IDs. Expected '{list(expected)}', but received '{list(received)}'.",
            {"expected": ",".join(expected), "received": ",".join(received)},
        )


class NotFound(BridleError):
    """No such resource, or not one this caller may see."""

    code = Code.NOT_FOUND
    reason = "RESOURCE_NOT_FOUND"

    def __init__(self, resource: str, resource_id: str) -> None:
        super().__init__(
            f"{resource} '{resource_id}' was not found.",
            {"resource": resource, "id": resource_id},
        )


class AlreadyExists(BridleError):
    """A resource with this identity is there already."""

    code = Code.ALREADY_EXISTS
    reason = "ALREADY_EXISTS"

    def __init__(self, resource: str, resource_id: str) -> None:
        super().__init__(
            f"{resource} '{resource_id}' already exists.",
            {"resource": resource, "id": resource_id},
        )


class RequestIdReused(AlreadyExists):
    """The request id was used before, with other content."""

    reason = "REQUEST_ID_REUSED"

    def __init__(self, request_id: str) -> None:
        BridleError.__init__(
            self,
            f"Request id '{request_id}' was already used for a request with other content.",
            {"request_id": request_id},
        )


class FailedPrecondition(BridleError):
    """The resource is in a state that does not allow the call."""

    code = Code.FAILED_PRECONDITION


class PendingApproval(FailedPrecondition):
    """A message cannot be sent while a tool call waits for a person."""

    reason = "PENDING_APPROVAL"

    def __init__(self, approval_id: str, run_id: str) -> None:
        super().__init__(
            "Cannot send a new message: The agent is waiting for approval on a tool call. "
            "Please approve or deny the pending request before continuing.",
            {"approval_id": approval_id, "run_id": run_id},
        )


class NoPendingApproval(FailedPrecondition):
    """An approval came while nothing waits for one."""

    reason = "NO_PENDING_APPROVAL"

    def __init__(self) -> None:
        super().__init__(
            "Cannot process approval response: No tool call is currently awaiting approval. "
            "Please send a regular message to interact with the agent."
        )


class ApprovalAlreadyDecided(FailedPrecondition):
    """The first decision stands."""

    reason = "APPROVAL_ALREADY_DECIDED"

    def __init__(self, approval_id: str, state: str) -> None:
        super().__init__(
            f"Approval '{approval_id}' was already decided: it is {state}.",
            {"approval_id": approval_id, "state": state},
        )


class IllegalTransition(FailedPrecondition):
    """The state machine has no such edge."""

    reason = "ILLEGAL_TRANSITION"

    def __init__(self, resource: str, resource_id: str, state: str, action: str) -> None:
        super().__init__(
            f"Cannot {action} {resource} '{resource_id}': it is {state}.",
            {"resource": resource, "id": resource_id, "state": state, "action": action},
        )


class ResourceInUse(FailedPrecondition):
    """Something else still refers to the resource."""

    reason = "RESOURCE_IN_USE"

    def __init__(self, resource: str, resource_id: str, used_by: str) -> None:
        super().__init__(
            f"{resource} '{resource_id}' is in use by {used_by}.",
            {"resource": resource, "id": resource_id, "used_by": used_by},
        )


class SecretKeyMissing(FailedPrecondition):
    """A secret was to be kept, and the server has nothing to seal it with."""

    reason = "SECRET_KEY_MISSING"

    def __init__(self) -> None:
        super().__init__(
            "This server keeps no secrets: its operator must set BRIDLE_SECRET_KEY, on every node the same."
        )


class SecretKeyWrong(FailedPrecondition):
    """A stored secret was sealed with another key than the server has now."""

    reason = "SECRET_KEY_WRONG"

    def __init__(self, where: str) -> None:
        super().__init__(
            f"The secret of '{where}' was sealed with another BRIDLE_SECRET_KEY than this server has. Store it again.",
            {"where": where},
        )


class ToolServerFailed(FailedPrecondition):
    """A tool server could not be asked for its tools."""

    reason = "TOOL_SERVER_FAILED"

    def __init__(self, server: str, cause: str) -> None:
        super().__init__(f"The tool server '{server}' {cause}.", {"server": server, "cause": cause})


class Aborted(BridleError):
    """The call lost a race; reading again and repeating it may succeed."""

    code = Code.ABORTED


class EtagMismatch(Aborted):
    """The resource changed since the caller read it."""

    reason = "ETAG_MISMATCH"

    def __init__(self, resource: str, resource_id: str, current: str) -> None:
        super().__init__(
            f"{resource} '{resource_id}' has changed: its etag is now '{current}'.",
            {"resource": resource, "id": resource_id, "etag": current},
        )


class ConversationBusy(Aborted):
    """Another run is working on the conversation."""

    reason = "CONVERSATION_BUSY"

    def __init__(self, run_id: str, attempt: str = "send a new message") -> None:
        super().__init__(
            f"Cannot {attempt}: Another request (run_id={run_id}) is currently being processed for this conversation.",
            {"run_id": run_id},
        )


class StoreConflict(Aborted):
    """The database gave up on the transaction because of a concurrent one."""

    reason = "STORE_CONFLICT"

    def __init__(self) -> None:
        super().__init__("The change conflicted with a concurrent one. Please retry.")


class InternalCancelled(Aborted):
    """The server cancelled its own work; the caller did not ask for it."""

    reason = "INTERNAL_CANCELLED"

    def __init__(self) -> None:
        super().__init__("The server cancelled the work of this call. Please retry.")


class LimitExceeded(BridleError):
    """A quota or the capacity of this server is used up."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "LIMIT_EXCEEDED"

    def __init__(self, limit: str, maximum: int, retry_after: float | None = None) -> None:
        super().__init__(
            f"Limit exceeded: {limit}, at most {maximum}.",
            {"limit": limit, "maximum": str(maximum)},
        )
        self.retry_after = retry_after


class CursorOutOfRange(BridleError):
    """The cursor points to where the log has nothing (any more)."""

    code = Code.OUT_OF_RANGE
    reason = "CURSOR_OUT_OF_RANGE"

    def __init__(self, cursor: int, first: int, last: int) -> None:
        super().__init__(
            f"Cursor {cursor} is out of range: the log holds {first} to {last}.",
            {"after_seq": str(cursor), "first_seq": str(first), "last_seq": str(last)},
        )


class Unavailable(BridleError):
    """The server cannot answer now; the same call may succeed later."""

    code = Code.UNAVAILABLE


class Draining(Unavailable):
    """This server is shutting down; another one will answer."""

    reason = "DRAINING"

    def __init__(self, metadata: dict[str, str] | None = None) -> None:
        super().__init__("The server is shutting down. Please retry.", metadata)


class StoreUnavailable(Unavailable):
    """The database does not answer."""

    reason = "STORE_UNAVAILABLE"

    def __init__(self) -> None:
        super().__init__("The store is unavailable. Please retry.")


class ModelCallFailed(Unavailable):
    """The model that the call needed did not answer; a run that fails so is not a failed call."""

    reason = "MODEL_CALL_FAILED"

    def __init__(self, kind: str, message: str, detail: str) -> None:
        super().__init__(message, {"type": kind, "detail": detail})


class Unauthenticated(BridleError):
    """No credential, or one that is not valid."""

    code = Code.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"

    def __init__(self) -> None:
        super().__init__("The call has no valid credentials.")


class PermissionDenied(BridleError):
    """A known caller that may not do this."""

    code = Code.PERMISSION_DENIED
    reason = "PERMISSION_DENIED"

    def __init__(self, action: str) -> None:
        super().__init__(f"The caller may not {action}.", {"action": action})


class NotImplementedYet(BridleError):
    """The contract has this call, this server does not."""

    code = Code.UNIMPLEMENTED
    reason = "NOT_IMPLEMENTED"

    def __init__(self, method: str) -> None:
        super().__init__(f"{method} is not implemented by this server.", {"method": method})


class DeadlineExceeded(BridleError):
    """The call did not finish in its time."""

    code = Code.DEADLINE_EXCEEDED
    reason = "DEADLINE_EXCEEDED"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The call did not finish within {seconds:g} s.", {"seconds": f"{seconds:g}"})


class Internal(BridleError):
    """A bug or an unknown failure; the text is fixed so that nothing of the cause leaks."""

    code = Code.INTERNAL
    reason = "INTERNAL"

    def __init__(self, request_id: str) -> None:
        super().__init__("Internal error. The server's log has the details.", {"request_id": request_id})
