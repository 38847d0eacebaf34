"""Attile through its C interface with nothing but ctypes: what the benchmarks need of it.

Tensors are PyTorch tensors, passed by address, shape and strides; nothing is copied.
"""
import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int32, c_int64, c_uint64, c_void_p, sizeof

import torch

_DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.int32: 3, torch.int64: 4, torch.bool: 5}


class _Tensor(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int32), ("rank", c_int32), ("shape", c_int64 * 6), ("strides", c_int64 * 6)]


class _Options(Structure):
    _fields_ = [("size", c_uint64), ("rule", c_int32), ("causal", c_int32), ("window_left", c_int64), ("window_right", c_int64),
                ("has_scale", c_int32), ("top_k", c_int32), ("scale", c_double), ("softcap", c_double), ("dropout", c_double),
                ("seed", c_uint64), ("offset", c_uint64), ("top_k_renormalise", c_int32), ("reserved", c_int32), ("schedule", c_char_p),
                ("device", c_int32), ("tf32", c_int32)]


class _Tensors(Structure):
    _fields_ = [("size", c_uint64)] + [(name, _Tensor) for name in (
        "q", "k", "v", "o", "lse", "values", "indices", "alibi_slopes", "bias", "mask", "sink", "prefix_len", "doc_ids",
        "kv_lens", "cu_seqlens_q", "cu_seqlens_k")] + [("stream", c_void_p), ("workspace", c_void_p), ("workspace_bytes", c_uint64)]


class Attile:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.attile_last_error.restype = c_char_p
        self.library.attile_version.restype = c_char_p

    def check(self, status):
        if status:
            raise RuntimeError(self.library.attile_last_error().decode())

    def version(self):
        return self.library.attile_version().decode()

    def set_threads(self, threads):
        self.check(self.library.attile_set_threads(c_int32(threads)))

    def attention(self, causal=False, softcap=0.0, schedule=None, device=-1, window=(-1, -1), tf32=False):
        options = _Options()
        self.check(self.library.attile_attention_options_init(byref(options), c_uint64(sizeof(options))))
        options.causal, options.softcap, options.device, options.tf32 = int(causal), softcap, device, int(tf32)
        options.window_left, options.window_right = window
        options.schedule = schedule.encode() if schedule else None
        handle = c_void_p()
        self.check(self.library.attile_attention_create(byref(options), byref(handle)))
        return Attention(self, handle)


class Attention:
    def __init__(self, attile, handle):
        self.attile, self.handle = attile, handle

    def bind(self, stream=None, **tensors):
        """A function without arguments that runs on these tensors (q, k, v, o, doc_ids…)."""
        arguments = _Tensors()
        self.attile.check(self.attile.library.attile_attention_tensors_init(byref(arguments), c_uint64(sizeof(arguments))))
        arguments.stream = stream
        for name, t in tensors.items():
            to = getattr(arguments, name)
            to.data, to.dtype, to.rank = t.data_ptr(), _DTYPES[t.dtype], t.dim()
            for i in range(t.dim()):
                to.shape[i], to.strides[i] = t.shape[i], t.stride(i)
        run, handle, check = self.attile.library.attile_attention_run, self.handle, self.attile.check

        def call(_keep=tensors):
            check(run(handle, byref(arguments)))
        return call
