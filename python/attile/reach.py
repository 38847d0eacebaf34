"""What a function can reach through its names: what decides its trace, and the arrays in it."""
import functools
import types

from .captures import Captured, is_array, is_torch

# Libraries whose own names stay what they are.
_SAFE_MODULES = {"torch", "numpy", "math", "jax", "cupy", "attile", "nanobind", "operator", "functools"}
_names_of = {}  # by the id of a code object: the code, the names it and the functions in it read


class Opaque(Exception):
    """Something whose changes would not be noticed: such a function is traced at every call."""


def _reached(function):
    """The values that a plain function's names stand for: its closure, its defaults, and its globals unless a library's."""
    values = [cell.cell_contents for cell in function.__closure__ or ()]
    if (function.__module__ or "").partition(".")[0] not in _SAFE_MODULES:
        values += [function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__]
    if function.__defaults__:
        values += function.__defaults__
    return values + list(function.__kwdefaults__.values()) if function.__kwdefaults__ else values


def _names(code):
    known = _names_of.get(id(code))
    if known is None or known[0] is not code:
        names = list(code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                names += _names(constant)
        if len(_names_of) >= 4096:
            _names_of.clear()
        known = _names_of[id(code)] = code, tuple(dict.fromkeys(names))
    return known[1]


def fingerprint(value, key, arrays, codes):
    """Adds to `key` all that decides the trace of `value`: code, numbers, and what an array is like, not what it holds."""
    kind = type(value)
    if kind is int or kind is float or kind is bool or kind is str or value is None:
        key += (kind, value)
    elif kind is types.FunctionType:
        code = value.__code__
        key.append(id(code))
        if any(value is seen for seen in codes):
            return
        codes.append(value)
        for part in _reached(value):
            fingerprint(part, key, arrays, codes)
    elif kind is Captured:
        fingerprint(value._array, key, arrays, codes)
    elif is_array(value):
        for i, seen in enumerate(arrays):
            if seen is value:
                key.append(i)
                return
        key += (value.dtype, value.shape)
        if not value.ndim:
            key.append(str(getattr(value, "device", "")))
        arrays.append(value)
    elif kind is tuple or kind is list:
        key.append(len(value))
        for part in value:
            fingerprint(part, key, arrays, codes)
    elif kind is functools.partial:
        fingerprint((value.func, *value.args, *value.keywords.values()), key, arrays, codes)
    elif isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] in _SAFE_MODULES:
        pass
    elif isinstance(value, (type, types.BuiltinFunctionType)) or kind.__module__.partition(".")[0] in _SAFE_MODULES:
        key.append(value)
    else:
        raise Opaque


def with_captures(value, memo):
    """The same function with arrays that cannot answer for themselves replaced by Captured."""
    if isinstance(value, (tuple, list)):
        parts = [with_captures(part, memo) for part in value]
        return value if all(a is b for a, b in zip(parts, value)) else type(value)(parts)
    if is_array(value) and not is_torch(value) and value.ndim:
        return Captured(value)
    if not isinstance(value, types.FunctionType) or (value.__module__ or "").partition(".")[0] in _SAFE_MODULES:
        return value
    if id(value) in memo:
        return memo[id(value)]
    memo[id(value)] = value  # of a function that reaches itself
    cells = [with_captures(cell.cell_contents, memo) for cell in value.__closure__ or ()]
    names = {name: value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__}
    changed = {name: new for name, old in names.items() if (new := with_captures(old, memo)) is not old}
    defaults = with_captures(value.__defaults__ or (), memo)
    if not changed and defaults is (value.__defaults__ or ()) and all(
            new is cell.cell_contents for new, cell in zip(cells, value.__closure__ or ())):
        return value
    bound = types.FunctionType(value.__code__, {**value.__globals__, **changed}, value.__name__, defaults or None,
                               tuple(types.CellType(cell) for cell in cells))
    bound.__kwdefaults__ = value.__kwdefaults__
    memo[id(value)] = bound
    return bound
