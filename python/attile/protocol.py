"""What an expression answers when Python, NumPy or PyTorch ask it for something: functions become expressions, and what
cannot become part of a kernel is a TracingError that names the line of the user's code."""
import math
import os
import sys

from . import _attile
from .errors import TracingError

_HERE = os.path.dirname(os.path.abspath(__file__))


def place():
    """file:line of the innermost frame that is neither Attile's nor of a library that called back."""
    frame = sys._getframe(1)
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return "unknown place" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def is_library(filename):
    modules = (sys.modules.get(name) for name in ("torch", "numpy", "jax"))
    folders = [os.path.dirname(module.__file__) for module in modules if getattr(module, "__file__", None)]
    return filename.startswith((*(folder + os.sep for folder in (_HERE, *folders)), "<frozen"))


def refuse(what):
    raise TracingError(f"{place()}: {what}")


def _sqrt(a):
    return a ** 0.5


def _clamp(a, min=None, max=None):
    if min is not None:
        a = _attile.maximum(a, min)
    return a if max is None else _attile.minimum(a, max)


def _where(condition, a, b):
    if isinstance(condition, bool):
        return a if condition else b
    return _attile.where(condition, a, b)


def _logical_not(a):
    return not a if isinstance(a, bool) else ~a


# By the names that NumPy, PyTorch and Tensor methods have for them.
_FUNCTIONS = {
    ("add",): lambda a, b: a + b,
    ("sub", "subtract"): lambda a, b: a - b,
    ("mul", "multiply"): lambda a, b: a * b,
    ("div", "divide", "truediv", "true_divide"): lambda a, b: a / b,
    ("floordiv", "floor_divide"): lambda a, b: a // b,
    ("mod", "remainder"): lambda a, b: a % b,
    ("pow", "power", "float_power"): lambda a, b: a ** b,
    ("neg", "negative"): lambda a: -a,
    ("pos", "positive"): lambda a: a,
    ("abs", "absolute"): lambda a: _attile.abs(a),
    ("exp",): _attile.exp,
    ("exp2",): lambda a: _attile.exp(a * math.log(2)),
    ("log",): _attile.log,
    ("log2",): lambda a: _attile.log(a) / math.log(2),
    ("tanh",): _attile.tanh,
    ("sigmoid", "expit"): _attile.sigmoid,
    ("floor",): _attile.floor,
    ("sqrt",): _sqrt,
    ("rsqrt",): lambda a: 1 / _sqrt(a),
    ("square",): lambda a: a * a,
    ("reciprocal",): lambda a: 1 / a,
    ("relu",): lambda a: _attile.maximum(a, 0),
    ("minimum",): _attile.minimum,
    ("maximum",): _attile.maximum,
    ("clamp", "clip"): _clamp,
    ("where",): _where,
    ("lt", "less"): lambda a, b: a < b,
    ("le", "less_equal"): lambda a, b: a <= b,
    ("gt", "greater"): lambda a, b: a > b,
    ("ge", "greater_equal"): lambda a, b: a >= b,
    ("eq", "equal"): lambda a, b: a == b,
    ("ne", "not_equal"): lambda a, b: a != b,
    ("and", "logical_and", "bitwise_and"): lambda a, b: a & b,
    ("or", "logical_or", "bitwise_or"): lambda a, b: a | b,
    ("xor", "logical_xor", "bitwise_xor"): lambda a, b: a ^ b,
    ("not", "invert", "logical_not", "bitwise_not"): _logical_not,
    ("zeros_like",): lambda a: 0,
    ("ones_like",): lambda a: 1,
    ("full_like",): lambda a, fill_value: fill_value,
}
_BY_NAME = {name: function for names, function in _FUNCTIONS.items() for name in names}
_IGNORED = ("dtype", "device", "layout", "requires_grad", "memory_format", "pin_memory")

# What makes a captured array an expression; tracing.py sets it.
lift = {"index": None, "number": None}


def apply(name, args, kwargs):
    """The expression for a library's function of this name."""
    plain = name.strip("_")
    if plain == "getitem":
        return lift["index"](args[0], args[1])
    reverse = name.startswith("__r") and plain[1:] in _BY_NAME and plain not in _BY_NAME
    if reverse:
        plain, args = plain[1:], args[::-1]
    function = _BY_NAME.get(plain)
    if function is None:
        refuse(f"{name}() has no counterpart in a kernel; there are {', '.join(sorted(set(n[0] for n in _FUNCTIONS)))}")
    kwargs = {key: lift["number"](value) for key, value in (kwargs or {}).items() if key not in _IGNORED}
    return function(*[lift["number"](value) for value in args], **kwargs)


def _torch_function(cls, func, types, args=(), kwargs=None):
    return apply(func.__name__, args, kwargs)


def _array_ufunc(self, ufunc, method, *args, **kwargs):
    if method != "__call__":
        refuse(f"numpy.{ufunc.__name__}.{method} has no counterpart in a kernel")
    return apply(ufunc.__name__, args, kwargs)


def _array_function(self, func, types, args, kwargs):
    return apply(func.__name__, args, kwargs)


def _no_truth(self):
    refuse(f"`if`, `and`, `or`, `not` and `while` need the truth of {self!r}, which differs from element to element and is "
           "not known while the function is traced; use where(condition, a, b), &, | and ~")


def _no_number(self, *_):
    refuse(f"{self!r} is needed as a number here (an index of an array that tracing does not see, range(), int() or "
           "float()), and is not known while the function is traced; hand arrays over as variables of the function, or as "
           "attile.captured(array)")


def _no_elements(self, *_):
    refuse(f"{self!r} is a single value of each pair of query and key; it has no elements and no length")


def _cast(self, dtype=None, *_, **__):
    """Tensor.to and Tensor.type: the kind decides, not the width."""
    text = dtype.__name__ if isinstance(dtype, type) else str(dtype).rpartition(".")[2]
    if text.startswith("bool") or text == "?":
        return self if self.kind == "boolean" else self != 0
    if text.startswith(("int", "uint", "long", "short", "i", "u")):
        return _integer(self)
    if text.startswith(("float", "bfloat", "half", "double", "f", "e", "d")):
        return _real(self)
    if dtype is None or text.startswith(("cpu", "cuda")) or hasattr(dtype, "index"):  # a device
        return self
    return refuse(f"{dtype!r} is no type that a traced value can have")


def _real(self):
    return _attile.where(self, 1.0, 0.0) if self.kind == "boolean" else _attile.to_real(self)


def _integer(self):
    if self.kind == "boolean":
        return _attile.where(self, 1, 0)
    return self if self.kind == "integer" else refuse(f"{self!r} cannot be made an integer; indices and lengths are integers already")


def _method(name):
    return lambda self, *args, **kwargs: apply(name, (self, *args), kwargs)


class _NoAttribute(TracingError, AttributeError):
    """So that hasattr() has an answer."""


def _missing(self, name):
    raise _NoAttribute(f"{place()}: a traced value has no '{name}'")


def _install(Expr):
    for name in ("__bool__",):
        setattr(Expr, name, _no_truth)
    for name in ("__index__", "__int__", "__float__", "item", "tolist", "__array__"):
        setattr(Expr, name, _no_number)
    for name in ("__len__", "__iter__", "__getitem__"):
        setattr(Expr, name, _no_elements)
    for name in ("abs", "exp", "exp2", "log", "tanh", "sigmoid", "floor", "sqrt", "square", "clamp", "minimum", "maximum", "add",
                 "sub", "mul", "div", "neg", "pow", "remainder", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or",
                 "logical_not", "relu"):
        setattr(Expr, name, _method(name))
    Expr.where = lambda self, condition, other: apply("where", (condition, self, other), {})
    Expr.to = Expr.type = Expr.astype = _cast
    Expr.float = Expr.double = Expr.half = Expr.bfloat16 = _real
    Expr.int = Expr.long = _integer
    Expr.bool = lambda self: _cast(self, "bool")
    Expr.new_ones = lambda self, *shape, dtype=None, **_: True if "bool" in str(dtype) else 1
    Expr.new_zeros = lambda self, *shape, dtype=None, **_: False if "bool" in str(dtype) else 0
    Expr.new_full = lambda self, shape, fill_value, **_: fill_value
    Expr.shape, Expr.ndim = (), 0
    Expr.__getattr__ = _missing
    Expr.__torch_function__ = classmethod(_torch_function)
    Expr.__array_ufunc__ = _array_ufunc
    Expr.__array_function__ = _array_function


_install(_attile.Expr)
for _kind in (_attile.Dim, _attile.Tensor, _attile.State):
    _kind.__bool__ = _no_truth
    _kind.__len__ = _kind.__iter__ = _no_elements
