"""What is refused: the kind of exception and the words, and that nothing was written."""
import os

import attile
import numpy as np
import pytest
from attile import dsl
from fake_arrays import Exporter

B, H, HK, NQ, NK, D, DV = 2, 4, 2, 5, 7, 8, 6
Q, K, V = np.ones((B, H, NQ, D), "f4"), np.ones((B, HK, NK, D), "f4"), np.ones((B, HK, NK, DV), "f4")


def ints(*values):
    return np.array(values, "i4")


def frozen(array):
    array.flags.writeable = False
    return array


ARGUMENT = [
    # shapes and types of elements
    (dict(q=Q[0]), "'q' has shape [4, 5, 8], but must be [B][H][N_q][D]"),
    (dict(q=np.array(3, "f4")), "'q' has shape [], but must be [B][H][N_q][D]"),
    (dict(q=Q[..., :4]), "'k' has shape [2, 2, 7, 8], but [B][H_k][N_k][D] is [2, 2, 7, 4] in this call"),
    (dict(q=Q[:1]), "'k' has shape [2, 2, 7, 8]"),
    (dict(v=V[:, :, :3]), "'v' has shape [2, 2, 3, 6], but [B][H_k][N_k][D_v] is [2, 2, 7, 6] in this call"),
    (dict(q=Q[:, :3]), "3 query heads are no multiple of 2 kv heads"),
    (dict(q=Q.astype("f8")), "'q' is float64, which Attile has no type for"),
    (dict(q=Q.astype("i4")), "'q' is int32, but must be float32, bfloat16 or float16"),
    (dict(k=K.astype("f2")), "'k' is float16, but 'q' is float32 (q, k and v are of one type)"),
    (dict(v=V.astype("f2")), "'v' is float16, but 'q' is float32"),
    (dict(q=Q.astype(">f4")), "'q' has the bytes of its elements in another machine's order"),
    (dict(q=np.ones((B, H, NQ, 2 * D), "f4")[..., ::2]), "the last dim of 'q' has stride 2, but must have stride 1"),
    (dict(q=np.ones((1,) * 7, "f4")), "'q' has 7 dims; a tensor has at most 6"),
    (dict(k=np.ones((B, HK, NK, D + 1), np.dtype([("x", "f4"), ("y", "i1")]))["x"][..., :D]), "the elements of 'k' lie 630 bytes apart"),
    (dict(q=np.frombuffer(bytes(B * H * NQ * D * 4 + 1), "u1")[1:].view("f4").reshape(Q.shape)), "the address of 'q' is no multiple of its element size"),
    # numbers
    (dict(scale=-1), "scale is -1, but must be a number from 0"),
    (dict(scale=float("nan")), "scale is nan"),
    (dict(softcap=-2.0), "softcap is -2, but must be positive and finite"),
    (dict(dropout=1.0), "dropout is 1, but is a probability from 0 to below 1"),
    (dict(window=(-2, 0)), "window_left is -2"),
    (dict(top_k=129), "top_k outside 1..128 is refused"),
    (dict(top_k=2 ** 40), "top_k outside 1..128 is refused"),
    (dict(top_k=-3), "top_k outside 1..128 is refused"),
    (dict(seed=2 ** 64), "'seed' is 18446744073709551616, which 64 bits do not hold"),
    (dict(rule="softmx"), 'rule: "softmx" is not a known rule (known are softmax, softmax_plus_one, sigmoid, linear)'),
    (dict(tuning="always"), 'tuning is "always", but must be "never", "cached" or "now"'),
    (dict(building=""), 'building is "", but must be "on_demand", "never" or "background"'),
    (dict(layout="bhdn"), 'layout is "bhdn", but must be "bhnd" or "bnhd"'),
    # options that do not go together
    (dict(rule="sigmoid", return_lse=True), "lse with rule sigmoid or linear is refused"),
    (dict(rule="linear", sink=np.zeros(H, "f4")), "sink with rule sigmoid or linear is refused"),
    (dict(rule="softmax_plus_one", sink=np.zeros(H, "f4")), "sink with rule softmax_plus_one is refused"),
    (dict(rule="sigmoid", top_k=2), "top_k with rule sigmoid or linear is refused"),
    (dict(top_k=2, dropout=0.1), "top_k with dropout is refused"),
    (dict(top_k_outputs=True), "'values' is given without top_k"),
    (dict(top_k_renormalise=False), "top_k_renormalise = false without top_k is refused"),
    (dict(prefix_len=ints(1, 2)), "prefix without causal is refused"),
    (dict(cu_seqlens_q=ints(0, 5)), "cu_seqlens_q is given without cu_seqlens_k"),
    (dict(q=Q[:1], k=K[:1], v=V[:1], cu_seqlens_q=ints(0, 5), cu_seqlens_k=ints(0, 7), kv_lens=ints(7)), "kv_lens is given with cu_seqlens"),
    (dict(q=Q[:1], k=K[:1], v=V[:1], cu_seqlens_q=ints(0, 5), cu_seqlens_k=ints(0, 7), mask=np.ones((1, 1, 1, NK), bool)), "mask with packed lengths is refused"),
    (dict(q=Q[:1], k=K[:1], v=V[:1], cu_seqlens_q=ints(0, 5), cu_seqlens_k=ints(0, 7), bias=np.ones((1, 1, 1, NK), "f4")), "bias with packed lengths is refused"),
    (dict(q=Q[:1], k=K[:1], v=V[:1], cu_seqlens_q=ints(0, 5), cu_seqlens_k=ints(0, 7), doc_ids=np.zeros((1, NK), "i4")), "documents with packed lengths is refused"),
    # optional tensors
    (dict(mask=np.ones((B, H, NQ, NK), "i4")), "'mask' is int32, but must be boolean"),
    (dict(mask=np.ones((NQ, NK), bool)), "'mask' has shape [5, 7], but must be [B or 1][H or 1][N_q or 1][N_k]"),
    (dict(bias=np.ones((B, H, NQ, 1), "f4")), "'bias' has shape [2, 4, 5, 1]"),
    (dict(bias=np.ones((B, H, NQ, NK), bool)), "'bias' is boolean, but must be float32, bfloat16 or float16"),
    (dict(sink=np.zeros(H + 1, "f4")), "'sink' has shape [5], but [H] is [4] in this call"),
    (dict(sink=np.zeros(H, "f2")), "'sink' is float16, but must be float32"),
    (dict(alibi_slopes=np.zeros((3, H), "f4")), "'alibi_slopes' has shape [3, 4]"),
    (dict(kv_lens=np.array([3, 3])), "'kv_lens' is int64, but must be int32"),
    (dict(kv_lens=ints(3, 8)), "kv_lens[1] is 8, outside [0, 7]"),
    (dict(kv_lens=ints(-1, 3)), "kv_lens[0] is -1, outside [0, 7]"),
    (dict(doc_ids=np.zeros((B, NK + 1), "i4")), "'doc_ids' has shape [2, 8], but [B][N_k] is [2, 7] in this call"),
    (dict(causal=True, prefix_len=ints(1)), "'prefix_len' has shape [1], but [B] is [2] in this call"),
    (dict(q=Q[:1], k=K[:1], v=V[:1], cu_seqlens_q=ints(0, 6), cu_seqlens_k=ints(0, 7)), "cu_seqlens_q[1] is 6, but there are 5 tokens"),
    (dict(q=Q[:1], k=K[:1], v=V[:1], cu_seqlens_q=ints(1, 5), cu_seqlens_k=ints(0, 7)), "cu_seqlens_q[0] is 1, but must be 0"),
    (dict(q=Q[:1], k=K[:1], v=V[:1], cu_seqlens_q=ints(0, 4, 2, 5), cu_seqlens_k=ints(0, 1, 2, 7)), "cu_seqlens_q falls from 4 to 2"),
    (dict(cu_seqlens_q=ints(0, 5), cu_seqlens_k=ints(0, 7)), "'q' has batch extent 2, but packed sequences lie in a tensor of batch extent 1"),
    # the output
    (dict(out=np.empty((B, H, NQ, DV + 1), "f4")), "'out' has shape [2, 4, 5, 7], but the result has [2, 4, 5, 6]"),
    (dict(out=np.empty((B, H, NQ - 1, DV), "f4")), "'out' has shape [2, 4, 4, 6], but the result has [2, 4, 5, 6]"),
    (dict(out=frozen(np.empty((B, H, NQ, DV), "f4"))), "'out' is read-only"),
    (dict(out=np.empty((B, H, NQ, DV), "i4")), "'o' is int32, but must be float32, bfloat16 or float16"),
    (dict(out=np.broadcast_to(np.empty((B, H, 1, DV), "f4"), (B, H, NQ, DV))), "'out' is read-only"),
    (dict(v=K, out=Q), "output 'o' overlaps 'q' (an output needs memory of its own)"),
    (dict(out=np.empty((B, H, NQ, 2 * DV), "f4")[..., ::2]), "the last dim of 'o' has stride 2"),
    (dict(out=np.lib.stride_tricks.as_strided(np.empty(999, "f4"), (B, H, NQ, DV), (16, 16, 16, 4))), "output 'o' overlaps itself"),
    # where arrays lie, and what DLPack cannot say
    (dict(k=Exporter(K.shape, device_type=2, device_index=1)), "'k' lies on cuda:1, but 'q' on cpu (all tensors of a call lie on one device)"),
    (dict(mask=Exporter((1, 1, 1, NK), device_type=2, code=6, bits=8)), "'mask' lies on cuda:0, but 'q' on cpu"),
    (dict(out=Exporter((B, H, NQ, DV), device_type=2)), "'out' lies on cuda:0, but 'q' on cpu"),
    (dict(q=Exporter(Q.shape, device_type=10)), "'q' lies on a device of DLPack's type 10"),
    (dict(q=Exporter(Q.shape, bits=64)), "'q' is float64, which Attile has no type for"),
    (dict(q=Exporter(Q.shape, lanes=2)), "'q' is float32x2, which Attile has no type for"),
    (dict(q=Exporter((1,) * 9)), "'q' has 9 dims; a tensor has at most 6"),
    (dict(q=Exporter(Q.shape, fault=BufferError("it is gone"))), "'q' cannot be read through DLPack: it is gone"),
    # schedules
    (dict(schedule="tiles: 5\n"), "schedule:1:1: a schedule has no 'tiles'"),
]

TYPES = [
    (dict(q=None), "'q' is of type NoneType, but must be an array"),
    (dict(q=Q.tolist()), "'q' is of type list, but must be an array"),
    (dict(kv_lens=[3, 4]), "'kv_lens' is of type list, but must be an array"),
    (dict(out="there"), "'out' is of type str, but must be an array"),
    (dict(causal=1), "'causal' is of type int, but must be True or False"),
    (dict(causal="no"), "'causal' is of type str"),
    (dict(scale="big"), "'scale' is of type str, but must be a number"),
    (dict(scale=True), "'scale' is of type bool"),
    (dict(window=3), "'window' is of type int, but must be a pair (left, right)"),
    (dict(window=(1, 2, 3)), "'window' is of type tuple, but must be a pair"),
    (dict(window=("a", 1)), "'window_left' is of type str, but must be an integer"),
    (dict(top_k=2.0), "'top_k' is of type float, but must be an integer"),
    (dict(seed=None), "'seed' is of type NoneType, but must be an integer"),
    (dict(rule=1), "'rule' is of type int, but must be a string"),
    (dict(tuning=True), "'tuning' is of type bool, but must be a string"),
    (dict(building=2), "'building' is of type int, but must be a string"),
    (dict(layout=None), "'layout' is of type NoneType, but must be a string"),
    (dict(schedule=7), "'schedule' is of type int, but must be a file, a name or YAML text"),
    (dict(return_lse=None), "'return_lse' is of type NoneType, but must be True or False"),
]


def refused(arguments, kind, words):
    arguments = {"q": Q, "k": K, "v": V, **arguments}
    out = arguments.get("out")
    if isinstance(out, np.ndarray) and out.flags.writeable and out is not Q:
        out.fill(7)
    with pytest.raises(kind) as caught:
        attile.attention(arguments.pop("q"), arguments.pop("k"), arguments.pop("v"), **arguments)
    assert isinstance(caught.value, attile.Error)
    assert words in str(caught.value)
    if isinstance(out, np.ndarray) and out.flags.writeable and out is not Q:
        assert (out == 7).all()


@pytest.mark.parametrize("arguments,words", ARGUMENT, ids=[words[:60] for _, words in ARGUMENT])
def test_argument(arguments, words):
    refused(arguments, ValueError, words)


@pytest.mark.parametrize("arguments,words", TYPES, ids=[words[:60] for _, words in TYPES])
def test_type(arguments, words):
    refused(arguments, TypeError, words)


def test_schedule_that_is_not_there():
    refused(dict(schedule="no such schedule"), attile.errors.EnvironmentError, "is neither a file that can be read nor a shipped schedule")


def test_illegal_schedule():
    refused(dict(schedule="tile_keys: 3\n"), NotImplementedError, "tile_keys")


def test_unknown_option():
    with pytest.raises(TypeError):
        attile.attention(Q, K, V, casual=True)


def c_interface():
    import importlib.util
    import os
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../c_abi/ctypes_test.py")
    spec = importlib.util.spec_from_file_location("ctypes_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, module.Library(os.path.join(os.path.dirname(attile.__file__), "lib", "libattile.so.0"))


DTYPES = {"float32": 0, "float16": 2, "int32": 3, "int64": 4, "bool": 5}
# What the binding finds before the library could: types that no TensorRef has, its own options, its own rules.
OF_THE_BINDING = ("has no type for", "q, k and v are of one type", "'v' is float16, but 'q' is float32", "another machine's order", "at most 6",
                  "bytes apart", "which 64 bits do not hold", "softmx", "layout is", "tuning is", "building is", "'out'", "lies on", "DLPack", "schedule:", "'values' is given",
                  "top_k outside")


def test_same_text_as_the_c_interface():
    module, library = c_interface()
    compared = 0
    for arguments, words in ARGUMENT:
        if any(text in words for text in OF_THE_BINDING):
            continue
        given = {"q": Q, "k": K, "v": V, **arguments}
        with pytest.raises(attile.Error) as caught:
            attile.attention(given["q"], given["k"], given["v"], **arguments_without_qkv(arguments))
        given["o"] = given.pop("out") if "out" in given else np.empty((*given["q"].shape[:-1], *given["v"].shape[-1:]), "f4")
        if given.pop("return_lse", False):
            given["lse"] = np.empty(given["q"].shape[:3], "f4")
        options = {name: given.pop(name) for name in ("causal", "scale", "softcap", "dropout", "rule", "top_k", "top_k_renormalise", "window") if name in given}
        if "rule" in options:
            options["rule"] = ["softmax", "softmax_plus_one", "sigmoid", "linear"].index(options["rule"])
        if "scale" in options:
            options["has_scale"] = 1
        if "window" in options:
            options["window_left"], options["window_right"] = options.pop("window")
        tensors = {}
        for name, array in given.items():
            t = module.Tensor(array.ctypes.data, DTYPES[array.dtype.name], array.ndim)
            for i in range(array.ndim):
                t.shape[i], t.strides[i] = array.shape[i], array.strides[i] // array.itemsize
            tensors[name] = t
        assert library.attention(tensors, **options) != module.OK, words
        assert library.error() == str(caught.value)
        compared += 1
    assert compared > 35


def arguments_without_qkv(arguments):
    return {name: value for name, value in arguments.items() if name not in ("q", "k", "v")}


def test_kinds():
    for kind, base in ((attile.ArgumentError, ValueError), (attile.ArgumentTypeError, TypeError), (attile.UnsupportedError, NotImplementedError),
                       (attile.errors.EnvironmentError, RuntimeError), (attile.ResourceError, MemoryError), (attile.InternalError, RuntimeError)):
        assert issubclass(kind, attile.Error) and issubclass(kind, base)


def test_every_refusal_is_attiles_own():
    half = "\ud800"
    for options, kind in (({"layout": half}, attile.ArgumentError), ({"rule": half}, attile.ArgumentError), ({"tuning": half}, attile.ArgumentError),
                          ({"schedule": half}, attile.Error), ({"schedule": "a\0b"}, attile.ArgumentError), ({"scale": 10 ** 400}, attile.ArgumentError),
                          ({"seed": 10 ** 5000}, attile.ArgumentError), ({"softcap": -10 ** 400}, attile.ArgumentError)):
        with pytest.raises(kind):
            attile.attention(Q, Q, Q, **options)
    for threads in (1.5, "2", None, True):
        with pytest.raises(attile.ArgumentTypeError, match="threads"):
            attile.set_threads(threads)
    for threads in (-1, 5000, 10 ** 30):
        with pytest.raises(attile.ArgumentError):
            attile.set_threads(threads)
    with pytest.raises(attile.ArgumentError, match="64 bits"):
        dsl.query_position() + 10 ** 400


class Bare:
    """Memory and no more."""

    def __init__(self, array, fault=None):
        self.array, self.fault = array, fault

    def __dlpack__(self, **options):
        if self.fault:
            raise self.fault
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_exporters_without_a_library():
    with pytest.raises(attile.ArgumentError, match="Bare has no library"):
        attile.attention(Bare(Q), Bare(Q), Bare(Q))
    assert np.allclose(attile.attention(Q, Bare(Q), Bare(Q)), attile.attention(Q, Q, Q))


def test_an_interrupt_stays_one():
    class Number:
        def __float__(self):
            raise KeyboardInterrupt

        def __index__(self):
            raise KeyboardInterrupt
    for call in (lambda: attile.attention(Q, Bare(Q, KeyboardInterrupt()), Q), lambda: attile.attention(Q, Q, Q, scale=Number()),
                 lambda: attile.attention(Q, Q, Q, seed=Number())):
        with pytest.raises(KeyboardInterrupt):
            call()


def test_warm_up_tries_all_before_it_tells():
    with pytest.raises(attile.ArgumentTypeError, match="warm_up"):
        attile.warm_up([dict(q=Q, k=Q, v=Q, no_such=1), dict(q=Q, k=Q, v=Q)])
    with pytest.raises(attile.ArgumentTypeError, match="warm_up"):
        attile.warm_up([3])


def test_a_schedule_file_is_read_again(tmp_path):
    path = tmp_path / "edited.yaml"
    path.write_text("{lanes: positions, block: 4, tile_rows: 8, tile_keys: 16, splits: 3}")
    attile.attention(Q, Q, Q, schedule=path)
    attile.attention(Q, Q, Q, schedule=os.fsencode(path))
    path.write_text("no such key: 1\n")
    for form in (path, str(path), os.fsencode(path)):
        with pytest.raises(attile.Error, match="edited.yaml"):
            attile.attention(Q, Q, Q, schedule=form)
