"""What is wrong with a tool's source, for whoever wrote it."""

import ast

from common.errors import InvalidArgument

FIELD = "tool.python.source"


def problem(text: str, at: ast.AST | int | None = None) -> InvalidArgument:
    """The error to raise; the text completes the sentence that the field's name begins."""
    line = at if isinstance(at, int) or at is None else getattr(at, "lineno", None)
    return InvalidArgument.of(FIELD, text if line is None else f"{text} (line {line})")
