"""DLPack exporters that say what no array of this machine says: memory of a GPU, versions and types of elements."""
import ctypes


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_index", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Exporter:
    def __init__(self, shape, device_type=1, device_index=0, code=2, bits=32, lanes=1, fault=None):
        self.fault, self._shape = fault, (ctypes.c_int64 * len(shape))(*shape)
        self._memory = ctypes.create_string_buffer(1 << 16)
        self._managed = _Managed(_Tensor(ctypes.addressof(self._memory), device_type, device_index, len(shape), code, bits, lanes,
                                         self._shape, None, 0), None, None)

    def __dlpack__(self, **_):
        if self.fault:
            raise self.fault
        return _new(ctypes.addressof(self._managed), b"dltensor", None)
