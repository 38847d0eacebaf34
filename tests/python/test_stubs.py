"""Type stubs say what is there: the same names, and for functions in Python the same parameters."""
import ast
import importlib
import inspect
import os

import attile
import pytest

FOLDER = os.path.dirname(attile.__file__)


def tree(name):
    with open(os.path.join(FOLDER, f"{name}.pyi")) as file:
        return ast.parse(file.read()).body


def names_in(body):
    return {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))} | {
        node.target.id for node in body if isinstance(node, ast.AnnAssign)}


def parameters(node):
    return [a.arg for a in node.args.posonlyargs + node.args.args + node.args.kwonlyargs]


def test_extension():
    stub, module = tree("_attile"), importlib.import_module("attile._attile")
    assert {n for n in names_in(stub) if n != "_Operators"} == {n for n in dir(module) if not n.startswith("__")}
    for node in stub:
        if isinstance(node, ast.ClassDef) and node.name != "_Operators":
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    assert hasattr(getattr(module, node.name), member.name), f"{node.name}.{member.name}"
    operators = next(node for node in stub if getattr(node, "name", "") == "_Operators")
    for kind in ("Expr", "Dim", "Tensor", "State"):
        assert all(hasattr(getattr(module, kind), member.name) for member in operators.body)


@pytest.mark.parametrize("name", ["attention", "tracing"])
def test_python(name):
    module = importlib.import_module(f"attile.{name}")
    for node in tree(name):
        if isinstance(node, ast.FunctionDef):
            assert parameters(node) == list(inspect.signature(getattr(module, node.name)).parameters)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert inspect.isclass(getattr(module, node.name))


def test_torch_has_the_parameters_of_attention():
    stub = {node.name: parameters(node) for node in tree("torch") if isinstance(node, ast.FunctionDef)}
    left_out = {"out", "top_k_outputs"}
    assert stub["attention"] == [p for p in inspect.signature(attile.attention).parameters if p not in left_out]


def test_docstrings_name_every_parameter():
    words = attile.attention.__doc__
    assert [p for p in inspect.signature(attile.attention).parameters if p not in words] == []
    assert os.path.exists(os.path.join(FOLDER, "py.typed"))
