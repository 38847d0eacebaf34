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
import itertools
import os
import sys
import threading
import weakref

from . import _attile, protocol
from ._attile import Expr
from .captures import Captured, Trace, active, captured, number, torch_mode  # noqa: F401
from .errors import ArgumentError, TracingError
from .reach import with_captures

_SCORE_DIMS = [_attile.batch, _attile.head, _attile.query, _attile.key]
_INDICES = tuple(_attile.index(dim) for dim in _SCORE_DIMS)
_MOST_TRACES = 256
_MOST_HANDLES = 4096
# By what the functions reach: the Mods, the names of captured arrays with their places among those reached, and what
# keeps addresses valid.
_traces = {}


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
        result = number(with_captures(function, {})(*arguments))
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
    trace, before = Trace(), getattr(active, "trace", None)
    active.trace = trace
    try:
        score = mask = None
        if score_mod is not None:
            score = _call(score_mod, "score_mod", "real", (_attile.variable("score", _SCORE_DIMS), *_INDICES))
        if mask_mod is not None:
            mask = _call(mask_mod, "mask_mod", "boolean", _INDICES)
    finally:
        active.trace = before
    trace.mods = _attile.Mods(score, mask)
    return trace


def _trace_under_torch(score_mod, mask_mod):
    if "torch" not in sys.modules or not hasattr(sys.modules["torch"], "Tensor"):
        return _trace(score_mod, mask_mod)
    # A frame that torch.compile gave up runs here, and would have the user's function compiled with expressions in it.
    dynamo = sys.modules.get("torch._dynamo")
    run = dynamo.disable(_trace) if hasattr(dynamo, "disable") else _trace
    with torch_mode():
        return run(score_mod, mask_mod)


def traced(score_mod, mask_mod):
    """(Mods, [(name, array), ...]) of two functions: from an earlier call where nothing but the contents of arrays has changed."""
    reached = _attile.reach(score_mod, mask_mod)
    if reached is not None:
        key, arrays, kept = reached
        known = _traces.get(key)
        if known is not None:
            return known[0], [(name, arrays[place]) for name, place in known[1]]
    for function, role in ((score_mod, "score_mod"), (mask_mod, "mask_mod")):
        if function is not None and not callable(function):
            raise TracingError(f"{role} is of type {type(function).__name__}, but must be a function")
    trace = _trace_under_torch(score_mod, mask_mod)
    if reached is None:
        return trace.mods, trace.captured
    # An array made while tracing is made anew at each call.
    places = [(name, next((i for i, reached in enumerate(arrays) if reached is array), None)) for name, array in trace.captured]
    if not trace.depends_on_values and all(place is not None for _, place in places):
        if len(_traces) >= _MOST_TRACES:
            _traces.clear()
        _traces[key] = trace.mods, places, kept
    return trace.mods, trace.captured


def need_no_mask_mod(mask_mod):
    """Beside a score_mod that is traced already."""
    if mask_mod is not None:
        raise ArgumentError("attention: mask_mod is given beside a traced score_mod, which has the mask of its own; trace both: "
                            "score_mod=attile.trace(score_mod, mask_mod)")


class Traced:
    """A score_mod and a mask_mod, traced; what attention(score_mod=...) takes in their place. arrays: those they read."""
    _count = itertools.count()
    # Without the arrays: code that was compiled with a handle may outlive this. Equal traces share one; of those that
    # nobody holds any more, the latest stay.
    _known, _handles, _alive = {}, {}, weakref.WeakSet()
    _lock = threading.RLock()  # what is collected amid its use may trace

    def __init__(self, mods, captured):
        self.mods, self.names = mods, tuple(name for name, _ in captured)
        self.arrays = [array for _, array in captured]
        with Traced._lock:
            self.handle = self._handles.setdefault((mods, self.names), next(self._count))
            self._known.pop(self.handle, None)  # put last: a key that stays keeps its place
            self._known[self.handle] = self.mods, self.names
            self._alive.add(self)
            if len(self._known) > _MOST_HANDLES:
                self._forget()

    @classmethod
    def _forget(cls):
        held = {trace.handle for trace in cls._alive}
        loose = [handle for handle in cls._known if handle not in held]
        for handle in loose[:-_MOST_HANDLES // 2]:
            del cls._handles[cls._known.pop(handle)]

    @classmethod
    def again(cls, handle, arrays):
        """What the handle stands for, with these arrays in place of its own; None for -1."""
        if handle < 0:
            return None
        with Traced._lock:
            known = cls._known.get(handle)
        if known is None:
            raise ArgumentError("attention: the trace that this code was compiled with is forgotten; keep what attile.trace() gives")
        self = cls.__new__(cls)
        (self.mods, self.names), self.arrays = known, arrays
        return self

    def parts(self):
        return self.mods, list(zip(self.names, self.arrays))


# A child of fork() finds the lock free, and what it guards whole.
os.register_at_fork(before=lambda: Traced._lock.acquire(), after_in_parent=lambda: Traced._lock.release(),
                    after_in_child=lambda: setattr(Traced, "_lock", threading.RLock()))


def trace(score_mod=None, mask_mod=None):
    """Traces both now: for code that is compiled by torch.compile, and where a trace at the first call comes too late."""
    return Traced(*traced(score_mod, mask_mod))
