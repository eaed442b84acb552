"""Tool rules: the wire's and ours."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from common.pb.bridle.v1.tool_rule_pb2 import ToolRule
from gateway.http.problems import invalid
from gateway.messages.inputs import fill
from gateway.structs import plain

Loc = tuple[str | int, ...]


class ChildArguments(Struct, frozen=True):
    """What a child is called with, whatever the model says."""

    name: str
    args: dict[str, Any] | None = None


class RuleIn(Struct, frozen=True, kw_only=True):
    """A rule; which of its fields matter depends on its type."""

    tool_name: str
    type: Literal[
        "run_first",
        "exit_loop",
        "continue_loop",
        "conditional",
        "constrain_child_tools",
        "max_count_per_step",
        "parent_last_tool",
        "required_before_exit",
        "requires_approval",
    ]
    args: dict[str, Any] | None = None
    children: list[str] | None = None
    child_arg_nodes: list[ChildArguments] | None = None
    child_output_mapping: dict[str, str] | None = None
    default_child: str | None = None
    require_output_mapping: bool = False
    max_count_limit: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


# Rules that say everything by their type.
_BARE: Final = {
    "exit_loop": "terminal",
    "continue_loop": "continue",
    "required_before_exit": "required_before_exit",
    "requires_approval": "requires_approval",
}
_TYPE_OF: Final = {
    **{ours: wire for wire, ours in _BARE.items()},
    "run_first": "run_first",
    "child_tools": "constrain_child_tools",
    "parent_tools": "parent_last_tool",
    "conditional": "conditional",
    "max_count": "max_count_per_step",
}


def to_pb(given: RuleIn, loc: Loc) -> ToolRule:
    """Ours, or 422 naming what is missing."""
    rule = ToolRule(tool_name=given.tool_name)
    match given.type:
        case "run_first":
            rule.run_first.SetInParent()
            fill(rule.run_first.args, given.args or {}, (*loc, "args"))
        case "constrain_child_tools":
            rule.child_tools.children.extend(_need(given.children, (*loc, "children")))
            for index, node in enumerate(given.child_arg_nodes or ()):
                if node.name not in rule.child_tools.children:
                    raise invalid((*loc, "child_arg_nodes", index, "name"), "Value error, is not one of the children")
                fill(rule.child_tools.child_args[node.name], node.args or {}, (*loc, "child_arg_nodes", index, "args"))
        case "parent_last_tool":
            rule.parent_tools.children.extend(_need(given.children, (*loc, "children")))
        case "conditional":
            rule.conditional.child_output_mapping.update(
                _need(given.child_output_mapping, (*loc, "child_output_mapping"))
            )
            rule.conditional.default_child = given.default_child or ""
            rule.conditional.require_output_mapping = given.require_output_mapping
        case "max_count_per_step":
            rule.max_count.limit = _need(given.max_count_limit, (*loc, "max_count_limit"))
        case _:
            getattr(rule, _BARE[given.type]).SetInParent()
    return rule


def _need(value: Any, loc: Loc) -> Any:
    if not value:
        raise invalid(loc, "Field required", "missing")
    return value


def from_pb(rule: ToolRule) -> dict[str, Any]:
    """The wire's."""
    kind = rule.WhichOneof("rule") or ""
    shown: dict[str, Any] = {"tool_name": rule.tool_name, "type": _TYPE_OF[kind], "prompt_template": None}
    match kind:
        case "run_first":
            shown["args"] = plain(rule.run_first.args) or None
        case "child_tools":
            shown["children"] = list(rule.child_tools.children)
            shown["child_arg_nodes"] = [
                {"name": name, "args": plain(args)} for name, args in sorted(rule.child_tools.child_args.items())
            ] or None
        case "parent_tools":
            shown["children"] = list(rule.parent_tools.children)
        case "conditional":
            shown["child_output_mapping"] = dict(sorted(rule.conditional.child_output_mapping.items()))
            shown["default_child"] = rule.conditional.default_child or None
            shown["require_output_mapping"] = rule.conditional.require_output_mapping
        case "max_count":
            shown["max_count_limit"] = rule.max_count.limit
    return shown
