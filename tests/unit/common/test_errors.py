"""common/errors.py: every leaf has a code, a reason, and metadata for what its text says."""

import re

import grpc
import pytest

from common import errors
from common.errors import (
    AlreadyExists,
    ApprovalAlreadyDecided,
    ApprovalMismatch,
    BridleError,
    Code,
    ConversationBusy,
    CursorOutOfRange,
    DeadlineExceeded,
    Draining,
    EtagMismatch,
    FieldViolation,
    IllegalTransition,
    Internal,
    InternalCancelled,
    InvalidArgument,
    LimitExceeded,
    ModelCallFailed,
    NoPendingApproval,
    NotFound,
    NotImplementedYet,
    PendingApproval,
    PermissionDenied,
    RequestIdReused,
    ResourceInUse,
    SecretKeyMissing,
    SecretKeyWrong,
    StoreConflict,
    StoreUnavailable,
    ToolServerFailed,
    Unauthenticated,
)

EXAMPLES: list[tuple[BridleError, str, str, set[str]]] = [
    (InvalidArgument.of("name", "is required"), "INVALID_ARGUMENT", "INVALID_ARGUMENT", {"name"}),
    (ApprovalMismatch(["c1"], ["c2"]), "INVALID_ARGUMENT", "APPROVAL_MISMATCH", {"c1", "c2"}),
    (NotFound("agent", "agent-1"), "NOT_FOUND", "RESOURCE_NOT_FOUND", {"agent", "agent-1"}),
    (AlreadyExists("agent", "agent-1"), "ALREADY_EXISTS", "ALREADY_EXISTS", {"agent", "agent-1"}),
    (RequestIdReused("r1"), "ALREADY_EXISTS", "REQUEST_ID_REUSED", {"r1"}),
    (PendingApproval("approval-1", "run-1"), "FAILED_PRECONDITION", "PENDING_APPROVAL", {"approval-1", "run-1"}),
    (NoPendingApproval(), "FAILED_PRECONDITION", "NO_PENDING_APPROVAL", set()),
    (
        ApprovalAlreadyDecided("approval-1", "DENIED"),
        "FAILED_PRECONDITION",
        "APPROVAL_ALREADY_DECIDED",
        {"approval-1", "DENIED"},
    ),
    (
        IllegalTransition("run", "run-1", "FAILED", "cancel"),
        "FAILED_PRECONDITION",
        "ILLEGAL_TRANSITION",
        {"run", "run-1", "FAILED", "cancel"},
    ),
    (ResourceInUse("tool", "tool-1", "2 agents"), "FAILED_PRECONDITION", "RESOURCE_IN_USE", {"tool-1", "2 agents"}),
    (SecretKeyMissing(), "FAILED_PRECONDITION", "SECRET_KEY_MISSING", set()),
    (SecretKeyWrong("agent-1/KEY"), "FAILED_PRECONDITION", "SECRET_KEY_WRONG", {"agent-1/KEY"}),
    (ToolServerFailed("maps", "is down"), "FAILED_PRECONDITION", "TOOL_SERVER_FAILED", {"maps", "is down"}),
    (EtagMismatch("agent", "agent-1", "e2"), "ABORTED", "ETAG_MISMATCH", {"agent-1", "e2"}),
    (ConversationBusy("run-1"), "ABORTED", "CONVERSATION_BUSY", {"run-1"}),
    (StoreConflict(), "ABORTED", "STORE_CONFLICT", set()),
    (InternalCancelled(), "ABORTED", "INTERNAL_CANCELLED", set()),
    (LimitExceeded("runs", 7), "RESOURCE_EXHAUSTED", "LIMIT_EXCEEDED", {"runs", "7"}),
    (CursorOutOfRange(99, 1, 12), "OUT_OF_RANGE", "CURSOR_OUT_OF_RANGE", {"99", "1", "12"}),
    (Draining(), "UNAVAILABLE", "DRAINING", set()),
    (StoreUnavailable(), "UNAVAILABLE", "STORE_UNAVAILABLE", set()),
    (
        ModelCallFailed("llm_error", "The model provider failed.", "500"),
        "UNAVAILABLE",
        "MODEL_CALL_FAILED",
        {"llm_error", "500"},
    ),
    (Unauthenticated(), "UNAUTHENTICATED", "UNAUTHENTICATED", set()),
    (PermissionDenied("delete agents"), "PERMISSION_DENIED", "PERMISSION_DENIED", {"delete agents"}),
    (NotImplementedYet("/a/B"), "UNIMPLEMENTED", "NOT_IMPLEMENTED", {"/a/B"}),
    (DeadlineExceeded(1.5), "DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", {"1.5"}),
    (Internal("req-1"), "INTERNAL", "INTERNAL", {"req-1"}),
]

ABSTRACT = {"Aborted", "BridleError", "FailedPrecondition", "Unavailable"}


@pytest.mark.parametrize(("error", "code", "reason", "dynamic"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_an_error_owns_its_code_and_reason(error: BridleError, code: str, reason: str, dynamic: set[str]) -> None:
    assert (error.code.name, error.reason) == (code, reason)
    assert re.fullmatch(r"[A-Z][A-Z_]{0,62}", error.reason)
    assert str(error) == error.message
    assert dynamic <= set(error.metadata.values())


def test_every_leaf_has_an_example_and_stands_in_the_tree() -> None:
    leaves = {
        name
        for name in errors.__all__
        if isinstance(kind := getattr(errors, name), type) and issubclass(kind, BridleError)
    } - ABSTRACT
    assert leaves == {type(error).__name__ for error, *_ in EXAMPLES}
    assert errors.__doc__
    assert all(name in errors.__doc__ for name in leaves | ABSTRACT)


def test_reasons_are_unique() -> None:
    reasons = [error.reason for error, *_ in EXAMPLES]
    assert len(reasons) == len(set(reasons))


def test_codes_have_grpcs_names_and_numbers() -> None:
    assert {code.name: code.value for code in Code} == {code.name: code.value[0] for code in grpc.StatusCode}


def test_texts_that_existing_clients_match_on() -> None:
    assert str(PendingApproval("a", "r")) == (
        "Cannot send a new message: The agent is waiting for approval on a tool call. "
        "Please approve or deny the pending request before continuing."
    )
    assert str(NoPendingApproval()) == (
        "Cannot process approval response: No tool call is currently awaiting approval. "
        "Please send a regular message to interact with the agent."
    )
    assert str(ApprovalMismatch(["a"], ["b", "c"])) == (
        "Invalid tool call IDs. Expected '['a']', but received '['b', 'c']'."
    )
    assert str(ConversationBusy("run-1")) == (
        "Cannot send a new message: Another request (run_id=run-1) is currently being processed for this conversation."
    )
    assert str(ConversationBusy("run-1", "do that")).startswith("Cannot do that: Another request (run_id=run-1) is")


def test_several_fields_are_all_named() -> None:
    error = InvalidArgument([FieldViolation("a", "is required"), FieldViolation("b", "is too long")])
    assert str(error) == "Invalid argument: a is required; b is too long."
    assert error.metadata == {"fields": "a,b"}
