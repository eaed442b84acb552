"""Typed ids: `<prefix>-<uuid4>` in lower case."""

from __future__ import annotations

import enum
import hashlib
import re
import uuid
from typing import TYPE_CHECKING, Final, NewType, Protocol

from common.errors import InvalidArgument

if TYPE_CHECKING:
    import random

OrganizationId = NewType("OrganizationId", str)
AgentId = NewType("AgentId", str)
RunId = NewType("RunId", str)
MessageId = NewType("MessageId", str)
StepId = NewType("StepId", str)
ConversationId = NewType("ConversationId", str)
ApprovalId = NewType("ApprovalId", str)
ToolId = NewType("ToolId", str)
BlockId = NewType("BlockId", str)
NodeId = NewType("NodeId", str)

# What every row belongs to while nobody has to authenticate.
DEFAULT_ORGANIZATION: Final = OrganizationId("org-00000000-0000-4000-8000-000000000000")


class Prefix(enum.StrEnum):
    """The kind of a resource, as it begins its ids."""

    ORGANIZATION = "org"
    AGENT = "agent"
    RUN = "run"
    MESSAGE = "message"
    STEP = "step"
    CONVERSATION = "conv"
    APPROVAL = "approval"
    TOOL = "tool"
    BLOCK = "block"
    NODE = "node"


_UUID4: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_ANY_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class IdSource(Protocol):
    """Makes ids; simulation passes a seeded one so that a run can be replayed."""

    def __call__(self, prefix: Prefix) -> str:
        """A new id of this kind."""
        ...


def new_id(prefix: Prefix) -> str:
    """A new random id."""
    return f"{prefix}-{uuid.uuid4()}"


def seeded_ids(rng: random.Random) -> IdSource:
    """Ids that repeat for the same seed. Guessable: for simulation and tests only."""

    def make(prefix: Prefix) -> str:
        return f"{prefix}-{uuid.UUID(int=rng.getrandbits(128), version=4)}"

    return make


def derive_id(prefix: Prefix, *parts: object) -> str:
    """The id that these parts always give: lets pure code name what it creates, and a repeat name it the same."""
    digest = hashlib.sha256("\x00".join(map(str, parts)).encode()).digest()
    return f"{prefix}-{uuid.UUID(bytes=digest[:16], version=4)}"


def is_id(prefix: Prefix, text: str) -> bool:
    """Whether the text has the form of an id of this kind."""
    head, _, rest = text.partition("-")
    # Ids of approval-request messages are derived from another uuid and need not be version 4.
    form = _ANY_UUID if prefix is Prefix.MESSAGE else _UUID4
    return head == prefix and form.fullmatch(rest) is not None


def pattern(prefix: Prefix) -> str:
    """The form of ids of this kind, for documents; without anchors."""
    return f"{prefix}-{(_ANY_UUID if prefix is Prefix.MESSAGE else _UUID4).pattern}"


def require_id(field: str, prefix: Prefix, text: str) -> str:
    """The text itself when it is an id of this kind; otherwise InvalidArgument on the field."""
    if not text:
        raise InvalidArgument.of(field, "is required")
    if not is_id(prefix, text):
        raise InvalidArgument.of(field, f"must look like '{prefix}-<uuid4>' in lower case")
    return text
