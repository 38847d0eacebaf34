"""Attention from Python through ctypes, with nothing but the standard library: ctypes_test.py LIBRARY HEADER."""
import ctypes as c
import math
import os
import re
import subprocess
import sys
import tempfile


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int32), ("rank", c.c_int32), ("shape", c.c_int64 * 6), ("strides", c.c_int64 * 6)]


class Options(c.Structure):
    _fields_ = [("size", c.c_uint64), ("rule", c.c_int32), ("causal", c.c_int32), ("window_left", c.c_int64), ("window_right", c.c_int64),
                ("has_scale", c.c_int32), ("top_k", c.c_int32), ("scale", c.c_double), ("softcap", c.c_double), ("dropout", c.c_double),
                ("seed", c.c_uint64), ("offset", c.c_uint64), ("top_k_renormalise", c.c_int32), ("reserved", c.c_int32), ("schedule", c.c_char_p),
                ("device", c.c_int32), ("tf32", c.c_int32), ("tuning", c.c_int32), ("building", c.c_int32)]


class Tensors(c.Structure):
    _fields_ = [("size", c.c_uint64)] + [(name, Tensor) for name in
                "q k v o lse values indices alibi_slopes bias mask sink prefix_len doc_ids kv_lens cu_seqlens_q cu_seqlens_k".split()] + [
                ("stream", c.c_void_p), ("workspace", c.c_void_p), ("workspace_bytes", c.c_uint64)]


FLOAT32, INT32, BOOLEAN = 0, 3, 5
CTYPES = {FLOAT32: c.c_float, INT32: c.c_int32, BOOLEAN: c.c_uint8}
OK, ERROR_ARGUMENT, ERROR_UNSUPPORTED, ERROR_ENVIRONMENT = 0, 1, 2, 3
TUNING = OF_PROCESS, TUNING_NEVER, TUNING_CACHED, TUNING_NOW = 0, 1, 2, 3
BUILDING = OF_PROCESS, ON_DEMAND, BUILDING_NEVER, BACKGROUND = 0, 1, 2, 3


def tensor(values, dtype, *shape):
    data = (CTYPES[dtype] * len(values))(*values)
    t = Tensor(c.cast(data, c.c_void_p), dtype, len(shape))
    stride = 1
    for i in reversed(range(len(shape))):
        t.shape[i], t.strides[i] = shape[i], stride
        stride *= shape[i]
    t.keep = data
    return t, data


def numbers(count, step):
    return [(i * step % 41) / 20 - 1 for i in range(count)]


def plain(q, k, v, rows, keys, d, visible, score):
    out = []
    for i in range(rows):
        s = [score(sum(q[i * d + x] * k[j * d + x] for x in range(d)) / math.sqrt(d), i, j) for j in range(keys)]
        w = [math.exp(x) if visible(i, j) else 0 for j, x in enumerate(s)]
        out += [sum(w[j] * v[j * d + x] for j in range(keys)) / sum(w) for x in range(d)]
    return out


class Library:
    def __init__(self, path):
        self.lib = c.CDLL(path)
        self.lib.attile_last_error.restype = self.lib.attile_version.restype = c.c_char_p
        self.lib.attile_attention_options_init.argtypes = [c.POINTER(Options), c.c_uint64]
        self.lib.attile_attention_tensors_init.argtypes = [c.POINTER(Tensors), c.c_uint64]
        self.lib.attile_attention_create.argtypes = [c.POINTER(Options), c.POINTER(c.c_void_p)]
        self.lib.attile_attention_run.argtypes = self.lib.attile_attention_prepare.argtypes = [c.c_void_p, c.POINTER(Tensors)]
        self.lib.attile_attention_destroy.argtypes = [c.c_void_p]
        self.lib.attile_attention_destroy.restype = None

    def error(self):
        return self.lib.attile_last_error().decode()

    def number(self, name):
        value = c.c_int32()
        assert getattr(self.lib, "attile_get_" + name)(c.byref(value)) == OK, self.error()
        return value.value

    def attention(self, tensors, prepare=False, **options):
        o, t, handle = Options(), Tensors(), c.c_void_p()
        assert self.lib.attile_attention_options_init(o, c.sizeof(o)) == OK, self.error()
        assert self.lib.attile_attention_tensors_init(t, c.sizeof(t)) == OK, self.error()
        for name, value in options.items():
            setattr(o, name, value)
        for name, value in tensors.items():
            setattr(t, name, value)
        status = self.lib.attile_attention_create(o, handle)
        if status == OK:
            status = (self.lib.attile_attention_prepare if prepare else self.lib.attile_attention_run)(handle, t)
            self.lib.attile_attention_destroy(handle)
        return status


def close(got, want):
    assert max(abs(a - b) for a, b in zip(got, want)) < 1e-5, (list(got), want)


def check_results(attile):
    rows, keys, d = 4, 7, 8
    q, k, v = numbers(rows * d, 37), numbers(keys * d, 29), numbers(keys * d, 31)
    o, out = tensor([float("nan")] * rows * d, FLOAT32, 1, 1, rows, d)
    base = {"q": tensor(q, FLOAT32, 1, 1, rows, d)[0], "k": tensor(k, FLOAT32, 1, 1, keys, d)[0],
            "v": tensor(v, FLOAT32, 1, 1, keys, d)[0], "o": o}
    at = lambda i: i + keys - rows
    documents, lens = [0, 0, 0, 1, 1, 1, 1], [5]
    bias, mask = numbers(keys, 23), [1, 0, 1, 1, 1, 0, 1]
    same, always = (lambda s, i, j: s), (lambda i, j: True)
    cases = [
        ({}, {}, always, same),
        ({}, {"causal": 1, "window_left": 2}, lambda i, j: at(i) - 2 <= j <= at(i), same),
        ({}, {"softcap": 0.5}, always, lambda s, i, j: 0.5 * math.tanh(s / 0.5)),
        ({}, {"causal": 1, "schedule": b"tile_rows: 48\ntile_keys: 16\npanel_vectors: 2\nblock: 4\n"}, lambda i, j: j <= at(i), same),
        ({"doc_ids": tensor(documents, INT32, 1, keys)[0]}, {}, lambda i, j: documents[j] == documents[at(i)], same),
        ({"kv_lens": tensor(lens, INT32, 1)[0]}, {}, lambda i, j: j < 5, same),
        ({"bias": tensor(bias, FLOAT32, 1, 1, 1, keys)[0], "mask": tensor(mask, BOOLEAN, 1, 1, 1, keys)[0]}, {},
         lambda i, j: mask[j] == 1, lambda s, i, j: s + bias[j]),
    ]
    for extra, options, visible, score in cases:
        assert attile.attention({**base, **extra}, **options) == OK, attile.error()
        close(out, plain(q, k, v, rows, keys, d, visible, score))
    return base


def check_errors(attile, base):
    wrong = {**base, "k": base["v"], "v": Tensor()}
    assert attile.attention(wrong) == ERROR_ARGUMENT and "'v' has shape []" in attile.error(), attile.error()
    assert attile.attention(base, dropout=2) == ERROR_ARGUMENT and "dropout is 2" in attile.error()
    assert attile.attention(base, schedule=b"tile_keys: 7") == ERROR_UNSUPPORTED and "tile_keys 7" in attile.error(), attile.error()
    larger = (c.c_uint8 * (c.sizeof(Options) + 16))()   # as a later version's struct would be
    later = c.cast(larger, c.POINTER(Options))
    assert attile.lib.attile_attention_options_init(later, len(larger)) == OK
    handle = c.c_void_p()
    assert attile.lib.attile_attention_create(later, handle) == OK, attile.error()
    attile.lib.attile_attention_destroy(handle)
    larger[c.sizeof(Options) + 3] = 1
    assert attile.lib.attile_attention_create(later, handle) == ERROR_ARGUMENT and "newer library" in attile.error()


def check_tuning_and_building(attile, base):
    """Of the call, then of the process; a kernel that no other check has is refused until it is prepared."""
    assert (attile.number("tuning"), attile.number("building")) == (TUNING_CACHED, ON_DEMAND)
    for name, values in (("tuning", TUNING), ("building", BUILDING)):
        setter, before = getattr(attile.lib, "attile_set_" + name), attile.number(name)
        for wrong in (-1, 0, 4):
            assert setter(wrong) == ERROR_ARGUMENT and f"there is no {name} {wrong}" in attile.error(), attile.error()
            assert attile.error().count("ATTILE_%s_" % name.upper()) == 3 and attile.number(name) == before
            if wrong:
                assert attile.attention(base, **{name: wrong}) == ERROR_ARGUMENT and f"there is no {name} {wrong}" in attile.error()
        for value in values[1:]:
            assert setter(value) == OK and attile.number(name) == value
            assert value == TUNING_NOW or attile.attention(base) == OK, attile.error()
        assert setter(before) == OK
    new = {"softcap": 0.25, "causal": 1, "window_left": 3}
    assert attile.attention(base, building=BUILDING_NEVER, **new) == ERROR_ENVIRONMENT and "not built yet" in attile.error(), attile.error()
    assert attile.lib.attile_set_building(BUILDING_NEVER) == OK
    assert attile.attention(base, **new) == ERROR_ENVIRONMENT
    assert attile.attention(base, prepare=True, **new) == OK, attile.error()
    assert attile.attention(base, **new) == OK, attile.error()
    assert attile.lib.attile_set_building(ON_DEMAND) == OK
    for tuning in (TUNING_NEVER, TUNING_CACHED):
        for building in BUILDING:
            assert attile.attention(base, tuning=tuning, building=building) == OK, attile.error()


def check_environment(header):
    """What is wrong around the process is said with the variable that mends it; nothing is printed by the library."""
    for variables, says in (({"ATTILE_LLVM_MODULE": "/no/such/module.so", "ATTILE_CACHE": "off"}, "/no/such/module.so"),
                            ({"ATTILE_THREADS": "many"}, "ATTILE_THREADS")):
        child = subprocess.run([sys.executable, __file__, sys.argv[1], header, "expect-failure"], capture_output=True, text=True,
                               env={**os.environ, **variables})
        assert child.returncode == 0 and says in child.stdout and not child.stderr, (child.stdout, child.stderr)


def fail_once(attile):
    one = tensor([1.0] * 64, FLOAT32, 1, 1, 64, 1)[0]
    out = tensor([0.0] * 64, FLOAT32, 1, 1, 64, 1)[0]
    assert attile.attention({"q": one, "k": one, "v": one, "o": out}, causal=1) != OK
    print(attile.error())


def check_header(path):
    """The structs above are the header's, field by field."""
    text = re.sub(r"/\*.*?\*/", "", open(path, encoding="utf-8").read(), flags=re.S)
    for name, struct in (("attile_tensor", Tensor), ("attile_attention_options", Options), ("attile_attention_tensors", Tensors)):
        body = re.search(r"typedef struct %s \{(.*?)\}" % name, text, re.S).group(1)
        fields = re.findall(r"(\w+)(?:\[\w+\])?\s*[,;]", body)
        assert fields == [f[0] for f in struct._fields_], (name, fields)


if __name__ == "__main__":
    library = Library(sys.argv[1])
    if sys.argv[3:] == ["expect-failure"]:
        sys.exit(fail_once(library))
    check_environment(sys.argv[2])
    check_header(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ATTILE_CACHE_DIR"] = folder  # nothing is built yet
        base = check_results(library)
        check_errors(library, base)
        check_tuning_and_building(library, base)
    print("attile", library.lib.attile_version().decode(), "through ctypes: good")
