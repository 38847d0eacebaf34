"""Attile: attention kernels generated, compiled and run from a short description of the algorithm.

attention() computes ready variants and a score_mod or mask_mod of one's own; attile.dsl describes whole algorithms with
carried states and a rescale rule; attile.torch has operators for PyTorch. Importing this touches no GPU and no compiler.
"""
from . import dsl, protocol
from ._attile import get_building, get_threads, get_tuning, set_building, set_threads, set_tuning, version
from .attention import attention, warm_up
from .errors import (ArgumentError, ArgumentTypeError, EnvironmentError, Error, InternalError, ResourceError, TracingError,
                     UnsupportedError)
from .tracing import captured, trace

__version__ = version()


def __getattr__(name):
    """attile.torch is there without an import of its own; PyTorch is imported when it is first named."""
    if name == "torch":
        import importlib
        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module 'attile' has no attribute '{name}'")


__all__ = ["attention", "captured", "dsl", "get_building", "get_threads", "get_tuning", "set_building", "set_threads",
           "set_tuning", "trace", "warm_up", "Error", "ArgumentError", "ArgumentTypeError", "TracingError",
           "UnsupportedError", "ResourceError", "InternalError"]
