"""What differs between array libraries beyond reading their memory: making an array, and where their work is queued."""
import sys

from .errors import ArgumentError


def empty(like, shape, dtype):
    """A new array of like's kind and on its device, not initialised. shape: extents; dtype: "float32", "int32" and so on."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(like, numpy.ndarray):
        return numpy.empty(shape, _numpy_dtype(like, dtype))
    library = _library_of(like)
    if library is None:
        raise ArgumentError(f"attention: an array of type {type(like).__name__} has no library that makes its like, so there is none for the "
                            "result; give q (or the first tensor) as an array of NumPy, PyTorch, JAX or CuPy")
    dtype = like.dtype if str(like.dtype) == dtype else getattr(library, dtype)
    if _module_of(like) == "cupy":
        with like.device:
            return library.empty(shape, dtype)
    made = library.empty(shape, dtype=dtype, device=like.device)
    # A JAX array is promised not to change, but nobody else has seen this one yet.
    return made.block_until_ready() if hasattr(made, "block_until_ready") else made


def stream(like, device):
    """(handle, wait) of the stream that work on arrays like this one goes to; wait: the call must finish it itself."""
    if _module_of(like) == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(device):
            return cupy.cuda.get_current_stream().ptr, False
    return 0, True


def _numpy_dtype(like, dtype):
    if like.dtype.name == dtype:
        return like.dtype
    if dtype != "bfloat16":
        return dtype
    import ml_dtypes
    return ml_dtypes.bfloat16


def _library_of(array):
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    library = sys.modules.get(_module_of(array))
    return library if hasattr(array, "dtype") and hasattr(library, "empty") else None


def _module_of(array):
    return type(array).__module__.partition(".")[0]
