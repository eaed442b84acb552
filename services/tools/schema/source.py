"""A tool's source: the one public function in it, and what it takes."""

import ast
import re
import threading
import warnings
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from services.tools.schema import docstring
from services.tools.schema.fields import DESCRIPTION, Schema
from services.tools.schema.problem import problem
from services.tools.schema.scope import Scope
from services.tools.schema.types import Types, without_null

T = TypeVar("T")
_Function = ast.FunctionDef | ast.AsyncFunctionDef

_NAME = re.compile(r"[A-Za-z0-9_]{1,48}")
_PARAMETER = re.compile(r"[A-Za-z0-9_]{1,64}")
# What other servers hand to a tool as live objects. Here it is None: a tool runs in another process.
INJECTED = frozenset({"self", "agent_state"})
_quiet = threading.Lock()


class Parameter(Struct, frozen=True):
    """A parameter of the function as it is called."""

    name: str
    has_default: bool
    # The model is not told of it; it gets None.
    injected: bool = False


class Function(Struct, frozen=True):
    """The one public function of a source. It is called with keyword arguments only."""

    name: str
    docstring: str
    parameters: tuple[Parameter, ...]
    takes_anything: bool


class Derived(Struct, frozen=True):
    """What the model is told of a function."""

    name: str
    description: str
    parameters: dict[str, Any]
    # Those that may be None.
    nullable: frozenset[str]


@lru_cache(maxsize=128)
def function_of(source: str) -> Function:
    """The function of a source; InvalidArgument says what is wrong with it, and where."""
    node = _public_function(_parse(source))
    _check(node)
    arguments = node.args
    if arguments.posonlyargs:
        raise problem(
            f"has the positional-only parameter '{arguments.posonlyargs[0].arg}': tools are called by name", node
        )
    if arguments.vararg is not None:
        raise problem(f"has '*{arguments.vararg.arg}': a tool must name its parameters", node)
    function = Function(
        name=node.name,
        docstring=ast.get_docstring(node) or "",
        parameters=tuple(Parameter(arg.arg, default is not None, arg.arg in INJECTED) for arg, default in _each(node)),
        takes_anything=arguments.kwarg is not None,
    )
    return _storable(function, node)


@lru_cache(maxsize=128)
def derive(source: str) -> Derived:
    """Name, description and schema of a source's function, from its signature and its docstring."""
    function_of(source)
    module = _parse(source)
    node = _public_function(module)
    if node.args.kwarg is not None:
        raise problem(f"has '**{node.args.kwarg.arg}': a tool must name its parameters", node)
    told = docstring.parse(ast.get_docstring(node, clean=False) or "")
    if not told.description:
        raise problem(f"has the function '{node.name}' without a docstring that says what it does", node)
    types = Types(Scope(module))
    properties: dict[str, Schema] = {}
    required: list[str] = []
    nullable: set[str] = set()
    for arg, default in _each(node):
        if arg.arg in INJECTED:
            continue
        schema, may_be_none = without_null(_schema(types, node, arg))
        properties[arg.arg] = _described(schema, node, arg, told.parameters) | _default(types, default)
        may_be_none = may_be_none or (isinstance(default, ast.Constant) and default.value is None)
        if default is None and not may_be_none:
            required.append(arg.arg)
        if may_be_none:
            nullable.add(arg.arg)
    parameters: Schema = {"type": "object", "properties": properties, "required": required}
    if types.definitions:
        parameters["$defs"] = types.definitions
    return _storable(Derived(node.name, told.description, parameters, frozenset(nullable)), node)


def _storable(read: T, node: _Function) -> T:
    """Escapes can put into a literal what no text may hold."""
    try:
        encoded = msgspec.json.encode(read)
    except ValueError:
        encoded = b"\\u0000"
    if b"\\u0000" in encoded:
        raise problem(f"has a text in '{node.name}' that is not valid Unicode, or that contains NUL", node)
    return read


def _parse(source: str) -> ast.Module:
    if "\0" in source:
        raise problem("must not contain a NUL character")
    # Warnings are the process's, not a thread's: without the lock one caller could restore another's silence.
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except SyntaxError as error:
            raise problem(f"is not valid Python: {error.msg}", error.lineno) from None
        except ValueError:
            raise problem("is not valid text") from None
        except (RecursionError, MemoryError):
            raise problem("is nested too deeply") from None


def _public_function(module: ast.Module) -> _Function:
    functions = [each for each in module.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    # A later definition of the same name takes the place of the earlier one.
    public = list({each.name: each for each in functions if not each.name.startswith("_")}.values())
    if not public:
        hidden = f": the name '{functions[0].name}' begins with an underscore" if functions else ""
        raise problem(f"must define a public function{hidden}", functions[0] if functions else None)
    if len(public) > 1:
        names = ", ".join(f"'{each.name}'" for each in public[:5])
        raise problem(
            f"must define one public function and defines {len(public)}: {names}; begin the names of helpers with an "
            "underscore",
            public[1],
        )
    return public[0]


def _check(node: _Function) -> None:
    if not _NAME.fullmatch(node.name):
        raise problem(
            f"has the function '{node.name[:60]}': a tool's name is 1 to 48 letters, digits and underscores", node
        )
    if _yields(node.body):
        raise problem(f"has the generator '{node.name}': a tool returns one value, use return and not yield", node)
    for arg, _ in _each(node):
        if not _PARAMETER.fullmatch(arg.arg):
            raise problem(f"has the parameter '{arg.arg[:80]}': names are 1 to 64 letters, digits and underscores", arg)


def _yields(body: Iterable[ast.AST]) -> bool:
    """Whether this is the body of a generator; what functions inside it do is their business."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))
    return False


def _each(node: _Function) -> list[tuple[ast.arg, ast.expr | None]]:
    """The parameters that can be given by name, each with its default."""
    args = node.args
    plain = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(args.defaults))
    defaults += args.defaults
    both = [*zip(plain, defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    return both[len(args.posonlyargs) :]


def _schema(types: Types, node: _Function, arg: ast.arg) -> Schema:
    if arg.annotation is None:
        raise problem(f"has the parameter '{arg.arg}' of '{node.name}' without a type", arg)
    try:
        return types.schema(arg.annotation)
    except RecursionError:
        raise problem(f"has the parameter '{arg.arg}' of '{node.name}' with a type that has no end", arg) from None


def _described(schema: Schema, node: _Function, arg: ast.arg, told: dict[str, str]) -> Schema:
    text = told.get(arg.arg) or schema.get(DESCRIPTION, "")
    if not text:
        raise problem(
            f"has the parameter '{arg.arg}' of '{node.name}' without a description: add it to the section 'Args:' of "
            "the docstring",
            arg,
        )
    return {**schema, DESCRIPTION: text}


def _default(types: Types, default: ast.expr | None) -> Schema:
    if default is None:
        return {}
    known, value = types.default(default)
    return {"default": value} if known and value is not None else {}
