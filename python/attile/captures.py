"""Arrays in a function that is traced: an index that holds an expression makes an array an argument of the kernel."""
import functools
import operator
import sys
import threading
import types

from . import _attile, protocol
from ._attile import Expr

_KINDS = {"float32": "real", "float16": "real", "bfloat16": "real", "int32": "integer", "int64": "integer", "bool": "boolean"}
# What a function may ask of an array without depending on more than the key of a trace holds (reach.cpp).
_FACTS = {"shape", "ndim", "dtype", "device", "is_cuda", "is_cpu", "size", "dim", "numel", "__len__", "__array_namespace__"}

active = threading.local()  # .trace: the Trace of this thread while it traces


def is_array(value):
    """An array, also one without dims, but neither a number of NumPy's nor an expression (nor NumPy itself, which has a shape())."""
    if isinstance(value, (Expr, type, types.ModuleType)) or not (hasattr(value, "dtype") and hasattr(value, "ndim") and hasattr(value, "shape")):
        return False
    numpy = sys.modules.get("numpy")
    return numpy is None or not isinstance(value, numpy.generic)


def is_torch(value):
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
            value = _attile.scalar(name, "real" if kind == "real" else "integer")
            return value != 0 if kind == "boolean" else value
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
            active.trace.depends_on_values = True
            part = self._array[at]
            return Captured(part) if is_array(part) and part.ndim else part
        return _index(self._array, self._prefix + at)

    def __getattr__(self, name):
        if self._prefix:
            raise AttributeError(f"an array with {len(self._prefix)} of {self._array.ndim} indices given has no '{name}'")
        if name not in _FACTS:
            active.trace.depends_on_values = True
        return getattr(self._array, name)

    def __len__(self):
        return len(self._array)

    def _incomplete(self, *_):
        protocol.refuse(f"{len(self._prefix)} indices are given for an array of {self._array.ndim} dims, which is used as a number here")

    for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "and", "rand", "or", "ror", "lt", "le", "gt",
                  "ge", "eq", "ne", "neg", "invert", "abs", "bool", "float", "int", "index"):
        locals()[f"__{_name}__"] = _incomplete
    __hash__ = object.__hash__


class CapturedNumber(Captured):
    """An array without dims: a number that the kernel reads at each call. Its value now is there for this call alone."""

    def _value(self, kind):
        active.trace.depends_on_values = True
        return kind(self._array)

    for _name, _kind in (("bool", bool), ("float", float), ("int", int), ("index", operator.index)):
        locals()[f"__{_name}__"] = functools.partialmethod(_value, _kind)
    for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lt", "le", "gt", "ge", "eq", "ne"):
        _act = getattr(operator, f"__{_name}__")
        locals()[f"__{_name}__"] = lambda self, other, _act=_act: _act(number(self), number(other))
        if _name not in ("lt", "le", "gt", "ge", "eq", "ne"):
            locals()[f"__r{_name}__"] = lambda self, other, _act=_act: _act(number(other), number(self))
    for _name in ("neg", "invert", "abs"):
        locals()[f"__{_name}__"] = lambda self, _act=getattr(operator, f"__{_name}__"): _act(number(self))
    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        return number(self).__array_ufunc__(ufunc, method, *args, **kwargs)

    def __array_function__(self, func, types, args, kwargs):
        return number(self).__array_function__(func, types, args, kwargs)


def captured(array):
    """An array for use in a score_mod or mask_mod, where tracing would not find it by itself."""
    return array if isinstance(array, Captured) else Captured(array) if getattr(array, "ndim", 1) else CapturedNumber(array)


def _index(array, at):
    at = at if isinstance(at, tuple) else (at,)
    if len(at) < array.ndim:
        return Captured(array, at)
    if len(at) > array.ndim:
        protocol.refuse(f"{len(at)} indices for an array of {array.ndim} dims")
    return active.trace.tensor(array)(*[_position(i, extent) for i, extent in zip(at, array.shape)])


def _position(i, extent):
    if isinstance(i, slice) or i is None or i is Ellipsis:
        protocol.refuse("a slice, None or ... beside a traced index; give one integer for each dim")
    i = number(i)
    if not isinstance(i, int) or isinstance(i, bool):
        return i
    if not -extent <= i < extent:
        protocol.refuse(f"the index {i} is outside a dim of {extent}")
    return i % extent


def number(value):
    """A captured array without dims as an expression, a number of NumPy's as Python's; everything else as it is."""
    if type(value).__module__ == "numpy" and isinstance(value, sys.modules["numpy"].generic):
        return value.item()
    if isinstance(value, CapturedNumber):
        return active.trace.tensor(value._array)
    if isinstance(value, Captured):
        value._incomplete()
    if not is_array(value):
        return value
    if value.ndim == 0 or (is_torch(value) and value.numel() == 1):
        return active.trace.tensor(value.reshape(()) if value.ndim else value)
    protocol.refuse(f"an array of shape {list(value.shape)} is used as a number; index it by b, h, q_idx, kv_idx or what "
                    "follows from them")


def _index_of_any(array, at):
    if isinstance(array, Expr):
        return array[at]
    return array[at] if isinstance(array, Captured) else _index(array, at)


protocol.lift.update(index=_index_of_any, number=number)


def torch_mode():
    """PyTorch's functions while a function is traced: an index that holds an expression is not torch's to read."""
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func.__name__ == "__getitem__" and any(isinstance(i, Expr) for i in (args[1] if isinstance(args[1], tuple) else args[1:])):
                return _index(args[0], args[1])
            asked = getattr(func.__self__, "__name__", "") if func.__name__ == "__get__" else func.__name__
            if Expr not in types and asked not in _FACTS:
                active.trace.depends_on_values = True
            return func(*args, **(kwargs or {}))
    return Mode()
