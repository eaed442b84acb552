"""What names mean in a source: what it imports, its classes, its names for types."""

import ast
from collections.abc import Iterable

_ALIAS = getattr(ast, "TypeAlias", None)  # `type X = ...`, from Python 3.12 on


class Scope:
    """The names of one module."""

    def __init__(self, module: ast.Module) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        self.aliases: dict[str, ast.expr] = {}
        self._imports: dict[str, str] = {}
        for statement in _statements(module.body):
            self._learn(statement)

    def name_of(self, node: ast.expr) -> str:
        """What a dotted name stands for, or nothing: `t.List` is `typing.List` after `import typing as t`."""
        if isinstance(node, ast.Name):
            return self._imports.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self.name_of(node.value)
            return base and f"{base}.{node.attr}"
        return ""

    def last_name_of(self, node: ast.expr) -> str:
        """The last part of that name: where a well-known name comes from does not matter."""
        return self.name_of(node).rpartition(".")[2]

    def _learn(self, statement: ast.stmt) -> None:
        match statement:
            case ast.ClassDef(name=name):
                self.classes[name] = statement
            case ast.Import(names=names):
                for each in names:
                    top = each.name.partition(".")[0]
                    self._imports[each.asname or top] = each.name if each.asname else top
            case ast.ImportFrom(module=module, names=names):
                for each in names:
                    self._imports[each.asname or each.name] = f"{module or ''}.{each.name}"
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.aliases[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self.aliases[name] = value
            case _:
                if _ALIAS is not None and isinstance(statement, _ALIAS):
                    self.aliases[statement.name.id] = statement.value


def _statements(body: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """Those of a module, also under `if TYPE_CHECKING:` and `try:`."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try):
            yield from _statements([*statement.body, *statement.orelse])
