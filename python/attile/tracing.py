"""score_mod and mask_mod: ordinary functions of one score, called once with expressions in place of numbers.

    score_mod(score, b, h, q_idx, kv_idx) -> score      mask_mod(b, h, q_idx, kv_idx) -> condition, True keeps the key

The signature is FlexAttention's, and its users' functions run unchanged. b, h, q_idx and kv_idx count sequences, query
heads, queries and keys from 0. What may stand in a function: arithmetic, comparisons, &, | and ~; where, exp, exp2, log,
tanh, sigmoid, abs, minimum, maximum, clamp, floor as torch's, numpy's or attile.dsl's; numbers, which become part of the
kernel; and arrays indexed by expressions (bias[h, q_idx - kv_idx + n]). An array is read at each call, never built in; a
position outside it reads as 0. `if`, loops over traced values and other functions are a TracingError with file and line.

Arrays are found as variables of the function (and of functions it calls), PyTorch's wherever they come from; a NumPy or JAX
array held by an object is handed over as captured(array).
"""
import functools
import itertools
import sys
import threading
import types

from . import _attile, protocol
from ._attile import Expr
from .errors import Error, TracingError

_SCORE_DIMS = [_attile.batch, _attile.head, _attile.query, _attile.key]
_INDICES = tuple(_attile.index(dim) for dim in _SCORE_DIMS)
_KINDS = {"float32": "real", "float16": "real", "bfloat16": "real", "int32": "integer", "int64": "integer", "bool": "boolean"}
_SAFE_MODULES = {"torch", "numpy", "math", "jax", "cupy", "attile", "operator", "functools"}
_FACTS = {"shape", "ndim", "dtype", "device", "size", "__get__", "dim", "numel", "stride", "__len__", "__array_namespace__"}
_MOST_TRACES = 256

_active = threading.local()
_traces = {}    # by fingerprint: the Mods, the names of captured arrays with their places among those reached, what keeps ids valid
_names_of = {}  # by the id of a code object: the code, the names it and the functions in it read


def is_array(value):
    """An array, also one without dims, but neither a number of NumPy's nor an expression."""
    if isinstance(value, (Expr, type)) or not (hasattr(value, "dtype") and hasattr(value, "ndim") and hasattr(value, "shape")):
        return False
    numpy = sys.modules.get("numpy")
    return numpy is None or not isinstance(value, numpy.generic)


def _is_torch(value):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


class Trace:
    """The arrays that a function reads, in order, each with the name it has in the algorithm."""

    def __init__(self):
        self.captured = []
        self.depends_on_values = False  # of arrays, while it was traced: then it holds for this call alone
        self._known = {}

    def tensor(self, array):
        known = self._known.get(id(array))
        if known is None:
            name = f"captured_{len(self.captured)}"
            dtype = str(array.dtype).rpartition(".")[2]
            if dtype not in _KINDS:
                protocol.refuse(f"a captured array is {dtype}, and a kernel reads {', '.join(_KINDS)}")
            known = self._declared(name, array, _KINDS[dtype])
            self._known[id(array)] = known
            self.captured.append((name, array))
        return known

    @staticmethod
    def _declared(name, array, kind):
        if array.ndim == 0 and "cuda" not in str(getattr(array, "device", "")):  # a number, read at each call
            number = _attile.scalar(name, "real" if kind == "real" else "integer")
            return number != 0 if kind == "boolean" else number
        dims = [f"{name}_{i}" for i in range(max(array.ndim, 1))]
        tensor = _attile.input(name, dims, kind)
        return tensor if array.ndim else tensor(0)


class Captured:
    """An array, or some of its leading indices, waiting for the rest."""

    def __init__(self, array, prefix=()):
        self._array, self._prefix = array, prefix

    def __getitem__(self, at):
        at = at if isinstance(at, tuple) else (at,)
        if not self._prefix and not any(isinstance(i, Expr) for i in at):
            _active.trace.depends_on_values = True
            part = self._array[at]
            return Captured(part) if is_array(part) and part.ndim else part
        return _index(self._array, self._prefix + at)

    def __getattr__(self, name):
        if self._prefix:
            raise AttributeError(f"an array with {len(self._prefix)} of {self._array.ndim} indices given has no '{name}'")
        if name not in _FACTS:
            _active.trace.depends_on_values = True
        return getattr(self._array, name)

    def __len__(self):
        return len(self._array)

    def _incomplete(self, *_):
        protocol.refuse(f"{len(self._prefix)} indices are given for an array of {self._array.ndim} dims, which is used as a number here")

    for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "and", "rand", "or", "ror", "lt", "le", "gt",
                  "ge", "eq", "ne", "neg", "invert", "abs", "bool", "float", "int", "index"):
        locals()[f"__{_name}__"] = _incomplete
    __hash__ = object.__hash__


def captured(array):
    """An array for use in a score_mod or mask_mod, where tracing would not find it by itself."""
    return Captured(array)


def _index(array, at):
    at = at if isinstance(at, tuple) else (at,)
    if len(at) < array.ndim:
        return Captured(array, at)
    if len(at) > array.ndim:
        protocol.refuse(f"{len(at)} indices for an array of {array.ndim} dims")
    indices = []
    for i in at:
        if isinstance(i, slice) or i is None or i is Ellipsis:
            protocol.refuse("a slice, None or ... beside a traced index; give one integer for each dim")
        indices.append(_number(i))
    return _active.trace.tensor(array)(*indices)


def _number(value):
    """A captured array without dims as an expression, a number of NumPy's as Python's; everything else as it is."""
    if type(value).__module__ == "numpy" and isinstance(value, sys.modules["numpy"].generic):
        return value.item()
    if isinstance(value, Captured):
        value._incomplete()
    if not is_array(value):
        return value
    if value.ndim == 0 or (_is_torch(value) and value.numel() == 1):
        return _active.trace.tensor(value.reshape(()) if value.ndim else value)
    protocol.refuse(f"an array of shape {list(value.shape)} is used as a number; index it by b, h, q_idx, kv_idx or what "
                    "follows from them")


def _traced_index(array, at):
    if isinstance(array, Expr):
        return array[at]
    return array[at] if isinstance(array, Captured) else _index(array, at)


protocol.lift.update(index=_traced_index, number=_number)


def _torch_mode():
    """PyTorch's functions while a function is traced: an index that holds an expression is not torch's to read."""
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func.__name__ == "__getitem__" and any(isinstance(i, Expr) for i in (args[1] if isinstance(args[1], tuple) else args[1:])):
                return _index(args[0], args[1])
            if func.__name__ not in _FACTS:
                _active.trace.depends_on_values = True
            return func(*args, **(kwargs or {}))
    return Mode()


# ---- What a function can reach

class _Opaque(Exception):
    """Something whose changes would not be noticed: such a function is traced at every call."""


def _reached(function):
    """The values that a plain function's names stand for: its closure, its globals, its defaults."""
    values = [cell.cell_contents for cell in function.__closure__ or ()]
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


def _fingerprint(value, key, arrays, codes):
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
            _fingerprint(part, key, arrays, codes)
    elif kind is Captured:
        _fingerprint(value._array, key, arrays, codes)
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
            _fingerprint(part, key, arrays, codes)
    elif kind is functools.partial:
        _fingerprint((value.func, *value.args, *value.keywords.values()), key, arrays, codes)
    elif isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] in _SAFE_MODULES:
        pass
    elif isinstance(value, (type, types.BuiltinFunctionType)) or kind.__module__.partition(".")[0] in _SAFE_MODULES:
        key.append(value)
    else:
        raise _Opaque


def _with_captures(value, memo):
    """The same function with arrays that cannot answer for themselves replaced by Captured."""
    if isinstance(value, (tuple, list)):
        parts = [_with_captures(part, memo) for part in value]
        return value if all(a is b for a, b in zip(parts, value)) else type(value)(parts)
    if is_array(value) and not _is_torch(value) and value.ndim:
        return Captured(value)
    if not isinstance(value, types.FunctionType) or value.__module__.partition(".")[0] in _SAFE_MODULES:
        return value
    if id(value) in memo:
        return memo[id(value)]
    memo[id(value)] = value  # of a function that reaches itself
    cells = [_with_captures(cell.cell_contents, memo) for cell in value.__closure__ or ()]
    names = {name: value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__}
    changed = {name: new for name, old in names.items() if (new := _with_captures(old, memo)) is not old}
    defaults = _with_captures(value.__defaults__ or (), memo)
    if not changed and defaults is (value.__defaults__ or ()) and all(
            new is cell.cell_contents for new, cell in zip(cells, value.__closure__ or ())):
        return value
    bound = types.FunctionType(value.__code__, {**value.__globals__, **changed}, value.__name__, defaults or None,
                               tuple(types.CellType(cell) for cell in cells))
    bound.__kwdefaults__ = value.__kwdefaults__
    memo[id(value)] = bound
    return bound


# ---- Tracing

def _defined(function):
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def _place_of(error, function):
    found, at = None, error.__traceback__
    while at is not None:
        if not protocol.is_library(at.tb_frame.f_code.co_filename):
            found = f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"
        at = at.tb_next
    return found or _defined(function)


def _call(function, role, wanted, arguments):
    try:
        result = _number(_with_captures(function, {})(*arguments))
    except TracingError:
        raise
    except Exception as error:
        raise TracingError(f"{_place_of(error, function)}: {role}: {error}") from error
    if isinstance(result, bool) and wanted == "boolean":
        return result
    kind = result.kind if isinstance(result, Expr) else "real" if isinstance(result, (int, float)) else type(result).__name__
    if kind != wanted and (wanted, kind) != ("real", "integer"):
        raise TracingError(f"{_defined(function)}: {role} returns {'a value of kind ' if isinstance(result, Expr) else ''}{kind}, but "
                           f"must return {'a score' if wanted == 'real' else 'a condition'}")
    return result


def _trace(score_mod, mask_mod):
    trace, before = Trace(), getattr(_active, "trace", None)
    _active.trace = trace
    try:
        score = mask = None
        if score_mod is not None:
            score = _call(score_mod, "score_mod", "real", (_attile.variable("score", _SCORE_DIMS), *_INDICES))
        if mask_mod is not None:
            mask = _call(mask_mod, "mask_mod", "boolean", _INDICES)
    finally:
        _active.trace = before
    trace.mods = _attile.Mods(score, mask)
    return trace


def _trace_under_torch(score_mod, mask_mod):
    if "torch" not in sys.modules or not hasattr(sys.modules["torch"], "Tensor"):
        return _trace(score_mod, mask_mod)
    # A frame that torch.compile gave up runs here, and would have the user's function compiled with expressions in it.
    dynamo = sys.modules.get("torch._dynamo")
    run = dynamo.disable(_trace) if dynamo is not None else _trace
    with _torch_mode():
        return run(score_mod, mask_mod)


def traced(score_mod, mask_mod):
    """(Mods, [(name, array), ...]) of two functions: from an earlier call where nothing but the contents of arrays has changed."""
    for function, role in ((score_mod, "score_mod"), (mask_mod, "mask_mod")):
        if function is not None and not callable(function):
            raise TracingError(f"{role} is of type {type(function).__name__}, but must be a function")
    key, arrays, functions = [], [], []
    try:
        _fingerprint(score_mod, key, arrays, functions)
        _fingerprint(mask_mod, key, arrays, functions)
        key = tuple(key)
        known = _traces.get(key)
    except (_Opaque, TypeError, ValueError):  # not plain, not hashable, or an empty cell
        trace = _trace_under_torch(score_mod, mask_mod)
        return trace.mods, trace.captured
    if known is not None:
        return known[0], [(name, arrays[place]) for name, place in known[1]]
    trace = _trace_under_torch(score_mod, mask_mod)
    # An array made while tracing is made anew at each call.
    places = [(name, next((i for i, reached in enumerate(arrays) if reached is array), None)) for name, array in trace.captured]
    if not trace.depends_on_values and all(place is not None for _, place in places):
        if len(_traces) >= _MOST_TRACES:
            _traces.pop(next(iter(_traces)))
        _traces[key] = trace.mods, places, [function.__code__ for function in functions]
    return trace.mods, trace.captured


class Traced:
    """A score_mod and a mask_mod, traced; what attention(score_mod=...) takes in their place. arrays: those they read."""
    _count, _known = itertools.count(), {}

    def __init__(self, mods, captured):
        self.mods, self.handle = mods, next(self._count)
        self.names, self.arrays = tuple(name for name, _ in captured), [array for _, array in captured]
        self._known[self.handle] = self.mods, self.names  # without the arrays: code that was compiled with a handle may outlive this

    @classmethod
    def again(cls, handle, arrays):
        """What the handle stands for, with these arrays in place of its own; None for -1."""
        if handle < 0:
            return None
        self = cls.__new__(cls)
        (self.mods, self.names), self.arrays = cls._known[handle], arrays
        return self

    def parts(self):
        return self.mods, list(zip(self.names, self.arrays))


def trace(score_mod=None, mask_mod=None):
    """Traces both now: for code that is compiled by torch.compile, and where a trace at the first call comes too late."""
    return Traced(*traced(score_mod, mask_mod))
