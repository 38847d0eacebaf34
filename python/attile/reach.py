"""What a function can reach through its names: what decides its trace (reach.cpp makes a key of it), and its arrays."""
import functools
import types

from .captures import Captured, CapturedNumber, captured, is_array, is_torch

# Libraries whose own names stay what they are.
_SAFE_MODULES = {"torch", "numpy", "math", "jax", "cupy", "attile", "nanobind", "operator", "functools"}
_KINDS = ("array", "captured", "partial", "scalar", "other")


def kind_of(value):
    """The place in _KINDS of values of this one's type."""
    kind = type(value)
    return _KINDS.index("captured" if kind in (Captured, CapturedNumber) else
                        "array" if is_array(value) else
                        "partial" if kind is functools.partial else
                        "scalar" if _is_safe(kind.__module__) and hasattr(value, "item") else "other")


def is_library_name(module):
    """Of a function's module: its globals stay what they are."""
    return _is_safe(module or "")


def is_constant(value):
    """A library's own function, module, type or type of elements: nothing whose attributes or contents may change."""
    if isinstance(value, types.ModuleType):
        return _is_safe(value.__name__)
    if isinstance(value, type):
        return _is_safe(value.__module__) or value.__module__ == "builtins"
    if isinstance(value, types.BuiltinFunctionType):
        return isinstance(value.__self__, (type(None), type, types.ModuleType))
    kind = type(value)
    if not _is_safe(kind.__module__) or kind.__module__ == "functools":
        return False
    return (kind.__module__.startswith(("attile", "nanobind")) or hasattr(value, "__name__") or
            kind.__name__.lower().endswith(("dtype", "device")))


def _is_safe(module):
    return module.partition(".")[0] in _SAFE_MODULES


def names_of(code):
    """The names that a code object and the functions in it read."""
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += names_of(constant)
    return tuple(dict.fromkeys(names))


def _values(mapping):
    return tuple(mapping.values())


def with_captures(value, memo):
    """The same function with arrays that cannot answer for themselves replaced by Captured."""
    if isinstance(value, (tuple, list)):
        parts = [with_captures(part, memo) for part in value]
        make = getattr(type(value), "_make", type(value))  # of a namedtuple
        return value if all(a is b for a, b in zip(parts, value)) else make(parts)
    if is_array(value) and not is_torch(value):
        return captured(value)
    if type(value) is functools.partial:
        func, args, keywords = (with_captures(part, memo) for part in (value.func, value.args, _values(value.keywords)))
        if func is value.func and args is value.args and all(a is b for a, b in zip(keywords, value.keywords.values())):
            return value
        bound = functools.partial(func, *args, **dict(zip(value.keywords, keywords)))
        bound.__dict__.update(value.__dict__)
        return bound
    if not isinstance(value, types.FunctionType) or is_library_name(value.__module__):
        return value
    if id(value) in memo:
        return memo[id(value)]
    memo[id(value)] = value  # of a function that reaches itself
    cells = [with_captures(cell.cell_contents, memo) for cell in value.__closure__ or ()]
    names = {name: value.__globals__[name] for name in names_of(value.__code__) if name in value.__globals__}
    changed = {name: new for name, old in names.items() if (new := with_captures(old, memo)) is not old}
    defaults = with_captures(value.__defaults__ or (), memo)
    named = value.__kwdefaults__ or {}
    new_named = dict(zip(named, with_captures(_values(named), memo)))
    if not changed and defaults is (value.__defaults__ or ()) and all(new_named[name] is named[name] for name in named) and all(
            new is cell.cell_contents for new, cell in zip(cells, value.__closure__ or ())):
        return value
    bound = types.FunctionType(value.__code__, {**value.__globals__, **changed}, value.__name__, defaults or None,
                               tuple(types.CellType(cell) for cell in cells))
    bound.__kwdefaults__ = new_named or None
    bound.__dict__.update(value.__dict__)
    memo[id(value)] = bound
    return bound
