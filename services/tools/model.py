"""What a tool is when it is stored. Values only: no storage, no transport."""

from datetime import datetime
from typing import Any

from msgspec import Struct

from services.tools.api import CrashPolicy, Kind, ToolDefinition

RETURN_CHAR_LIMIT = 50_000


class ToolSpec(Struct, frozen=True, omit_defaults=True):
    """What is known of a tool, apart from what queries look at (name, tags)."""

    kind: Kind
    description: str = ""
    parameters: dict[str, Any] = {}
    # What a caller wrote; the rest follows from the source, and changes with it.
    own_description: bool = False
    own_parameters: bool = False
    default_requires_approval: bool = False
    parallel: bool = False
    return_char_limit: int = RETURN_CHAR_LIMIT
    timeout: float | None = None
    crash_policy: CrashPolicy = CrashPolicy.NEVER
    metadata: dict[str, Any] = {}


class Tool(Struct, frozen=True):
    """A tool as it is stored."""

    id: str
    organization_id: str
    name: str
    spec: ToolSpec
    tags: tuple[str, ...]
    version: int
    created_at: datetime
    updated_at: datetime

    @property
    def definition(self) -> ToolDefinition:
        """As the model sees it and as the engine treats it."""
        spec = self.spec
        return ToolDefinition(
            id=self.id,
            name=self.name,
            description=spec.description,
            parameters=spec.parameters,
            default_requires_approval=spec.default_requires_approval,
            parallel=spec.parallel,
            crash_policy=spec.crash_policy,
            return_char_limit=spec.return_char_limit,
            kind=spec.kind,
            timeout=spec.timeout,
        )


class ToolFilter(Struct, frozen=True):
    """Which tools are meant; what is empty does not count."""

    names: tuple[str, ...] = ()
    query: str = ""
    tags: tuple[str, ...] = ()
    # None: any; empty: none.
    ids: tuple[str, ...] | None = None
    kinds: tuple[str, ...] = ()


def kind_name(kind: Kind) -> str:
    """A kind in one word, as it is stored and counted."""
    return str(kind.__struct_config__.tag)
