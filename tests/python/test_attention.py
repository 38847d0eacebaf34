"""Every option on NumPy arrays, against float64."""
import attile
import ml_dtypes
import numpy as np
import plain
import pytest

RANDOM = np.random.default_rng(5)
TOLERANCE = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 4e-2}


def arrays(B=2, H=4, Hk=2, Nq=9, Nk=13, D=8, Dv=6, dtype="float32"):
    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return tuple(RANDOM.standard_normal(shape).astype(dtype) for shape in ((B, H, Nq, D), (B, Hk, Nk, D), (B, Hk, Nk, Dv)))


def agree(got, want, dtype="float32"):
    got = np.asarray(got, dtype=np.float64)
    assert got.shape == want.shape
    finite = np.isfinite(want)
    assert np.array_equal(np.isfinite(got), finite)
    error = np.abs(got[finite] - want[finite]).max(initial=0)
    assert error <= TOLERANCE[dtype] * max(1, np.abs(want[finite]).max(initial=0)), error


def check(q, k, v, **options):
    lse = options.get("rule", "softmax") not in ("sigmoid", "linear")
    got = attile.attention(q, k, v, return_lse=lse, **options)
    o, want_lse = plain.attention(q, k, v, **options)
    dtype = q.dtype.name
    agree(got[0] if lse else got, o, dtype)
    if lse:
        agree(got[1], want_lse, "float32" if dtype == "float32" else "float16")
        assert got[1].dtype == np.float32


OPTIONS = {
    "plain": {},
    "causal": dict(causal=True),
    "window": dict(window=(3, 1)),
    "half open window": dict(window=(None, 2), causal=True),
    "scale": dict(scale=0.3),
    "soft cap": dict(softcap=2.5),
    "ALiBi": dict(alibi_slopes=np.array([0.5, 0.25, 0.125, 0.0625], "f4"), causal=True),
    "ALiBi by sequence": dict(alibi_slopes=RANDOM.random((2, 4), "f4")),
    "bias": dict(bias=RANDOM.standard_normal((2, 4, 9, 13)).astype("f4")),
    "bias of heads": dict(bias=RANDOM.standard_normal((1, 4, 1, 13)).astype("f4")),
    "mask": dict(mask=RANDOM.random((2, 4, 9, 13)) > 0.4),
    "mask of sequences": dict(mask=RANDOM.random((2, 1, 1, 13)) > 0.4),
    "mask of everything": dict(mask=np.zeros((1, 1, 1, 13), bool)),
    "sink": dict(sink=np.array([0.5, -1, 2, 0], "f4")),
    "softmax plus one": dict(rule="softmax_plus_one"),
    "sigmoid": dict(rule="sigmoid", causal=True),
    "linear": dict(rule="linear"),
    "dropout": dict(dropout=0.4, seed=2 ** 63 + 12345, offset=7),
    "used lengths": dict(kv_lens=np.array([0, 11], "i4"), causal=True),
    "prefix": dict(causal=True, prefix_len=np.array([2, 9], "i4")),
    "documents": dict(doc_ids=np.repeat(np.array([[0, 1, 2], [5, 6, 7]], "i4"), (4, 4, 5), axis=1), causal=True),
    "top-k": dict(top_k=3),
    "top-k of the whole row": dict(top_k=3, top_k_renormalise=False),
    "several": dict(causal=True, window=(5, None), softcap=4.0, sink=np.zeros(4, "f4"), bias=RANDOM.standard_normal((2, 1, 9, 13)).astype("f4")),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_option(name):
    check(*arrays(), **OPTIONS[name])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_types(dtype):
    q, k, v = arrays(dtype=dtype)
    check(q, k, v, causal=True)
    assert attile.attention(q, k, v).dtype == q.dtype
    wide = np.full((2, 4, 9, 6), np.nan, "f4")
    assert attile.attention(q, k, v, out=wide) is wide
    agree(wide, plain.attention(q, k, v)[0], dtype)


@pytest.mark.parametrize("shape", [dict(Nq=1), dict(Nq=20, Nk=5), dict(H=6, Hk=1), dict(D=1, Dv=1), dict(D=100, Dv=3), dict(B=1, Nq=70, Nk=130, D=64, Dv=64)])
def test_shapes(shape):
    q, k, v = arrays(**shape)
    for causal in (False, True):
        check(q, k, v, causal=causal)


@pytest.mark.parametrize("empty", [dict(Nq=0), dict(Nk=0), dict(B=0), dict(H=0, Hk=0)])
def test_empty(empty):
    q, k, v = arrays(**empty)
    o, lse = attile.attention(q, k, v, return_lse=True)
    assert o.shape == (*q.shape[:3], 6) and not o.any() and np.all(lse == -np.inf)


@pytest.mark.parametrize("seed", range(60))
def test_random_calls(seed):
    random = np.random.default_rng(seed)
    chance = lambda p=0.3: random.random() < p  # noqa: E731
    Hk, group, B, Nq, Nk = (int(random.integers(1, n)) for n in (4, 5, 3, 40, 70))
    H = Hk * group
    dtype = random.choice(["float32", "float16", "bfloat16"])
    q, k, v = arrays(B, H, Hk, Nq, Nk, int(random.integers(1, 80)), int(random.integers(1, 80)), dtype)
    one = lambda n: n if chance(0.5) else 1  # noqa: E731
    options = dict(causal=chance(), rule=str(random.choice(["softmax"] * 4 + ["softmax_plus_one", "sigmoid"])))
    if chance():
        options["window"] = (int(random.integers(-1, 20)), int(random.integers(-1, 20)))
    if chance():
        options["scale"] = float(random.random())
    if chance():
        options["softcap"] = float(1 + 5 * random.random())
    if chance():
        options["alibi_slopes"] = random.random((B, H)).astype("f4")
    if chance():
        options["bias"] = random.standard_normal((one(B), one(H), one(Nq), Nk)).astype("f4")
    if chance():
        options["mask"] = random.random((one(B), one(H), one(Nq), Nk)) > 0.3
    if chance() and options["rule"] == "softmax":
        options["sink"] = random.standard_normal(H).astype("f4")
    if chance():
        options["kv_lens"] = random.integers(0, Nk + 1, B).astype("i4")
    if chance() and options["causal"]:
        options["prefix_len"] = random.integers(0, Nk + 1, B).astype("i4")
    if chance():
        options["doc_ids"] = np.sort(random.integers(0, 4, (B, Nk)), axis=1).astype("i4")
    if chance(0.2):
        options.update(dropout=0.5, seed=int(random.integers(0, 2 ** 62)), offset=int(random.integers(0, 9)))
    check(q, k, v, **options)


def test_packed():
    bounds_q, bounds_k = np.array([0, 2, 2, 5, 9], "i4"), np.array([0, 3, 5, 5, 13], "i4")
    q, k, v = arrays(B=1)
    packed = dict(cu_seqlens_q=bounds_q, cu_seqlens_k=bounds_k)
    check(q, k, v, causal=True, **packed)
    want, want_lse = plain.attention(q, k, v, **packed)
    o, lse = attile.attention(q[0], k[0], v[0], return_lse=True, **packed)
    agree(o, want[0])
    agree(lse, want_lse[0])
    o = attile.attention(*(x[0].swapaxes(0, 1).copy() for x in (q, k, v)), layout="bnhd", **packed)
    agree(o.swapaxes(0, 1), want[0])


def test_layout_by_strides():
    q, k, v = arrays()
    want, want_lse = plain.attention(q, k, v, causal=True)
    turned = [x.swapaxes(1, 2).copy() for x in (q, k, v)]
    o, lse = attile.attention(*turned, layout="bnhd", causal=True, return_lse=True)
    assert o.shape == (2, 9, 4, 6)
    agree(o.swapaxes(1, 2), want)
    agree(lse, want_lse)
    agree(attile.attention(*(x.swapaxes(1, 2) for x in turned), causal=True), want)


def test_views():
    big = RANDOM.standard_normal((4, 8, 40, 3, 8)).astype("f4")
    q, k, v = (big[::2, ::-2, 5:35:3, i] for i in range(3))
    want, _ = plain.attention(q, k, v)
    agree(attile.attention(q, k, v), want)
    room = np.full((2, 4, 20, 8), np.nan, "f4")
    out = room[:, :, ::2]
    assert attile.attention(q, k, v, out=out) is out
    agree(out, want)
    assert np.isnan(room[:, :, 1::2]).all()
    broadcast = np.broadcast_to(k[:, :1], k.shape)
    agree(attile.attention(q, broadcast, v), plain.attention(q, broadcast, v)[0])
    for x in (q, k, v):
        x.flags.writeable = False
    agree(attile.attention(q, k, v), want)


def test_top_k_outputs():
    q, k, v = arrays()
    o, lse, values, indices = attile.attention(q, k, v, causal=True, top_k=4, top_k_outputs=True, return_lse=True)
    assert values.shape == indices.shape == (2, 4, 9, 4) and indices.dtype == np.int32 and values.dtype == np.float32
    for i in range(9):
        s = k[1, 0, :i + 5].astype("f8") @ q[1, 1, i].astype("f8") / 8 ** 0.5
        order = np.argsort(-s, kind="stable")[:4]
        assert list(indices[1, 1, i]) == list(order)
        agree(values[1, 1, i], s[order])
    got = attile.attention(q, k, v, causal=True, top_k=4, top_k_outputs=True)
    assert len(got) == 3 and np.array_equal(got[2], indices)


def test_equal_calls_give_equal_bits_and_leave_inputs_alone():
    q, k, v = arrays(Nq=33, Nk=200)
    before = [x.tobytes() for x in (q, k, v)]
    first = attile.attention(q, k, v, causal=True)
    assert all(attile.attention(q, k, v, causal=True).tobytes() == first.tobytes() for _ in range(5))
    assert [x.tobytes() for x in (q, k, v)] == before


def test_schedule(tmp_path):
    q, k, v = arrays()
    want, _ = plain.attention(q, k, v)
    agree(attile.attention(q, k, v, schedule="few rows"), want)
    agree(attile.attention(q, k, v, schedule="lanes: positions\nblock: 4\ntile_rows: 8\ntile_keys: 32\nsplits: 2"), want)
    file = tmp_path / "a schedule.yaml"
    file.write_text("{lanes: positions, block: 4, tile_rows: 8, tile_keys: 16, splits: 3}")
    agree(attile.attention(q, k, v, schedule=file), want)
    agree(attile.attention(q, k, v, schedule=str(file)), want)


def test_threads():
    before = attile.get_threads()
    attile.set_threads(1)
    assert attile.get_threads() == 1
    check(*arrays(), causal=True)
    attile.set_threads(0)
    assert attile.get_threads() == before


class OnlyDLPack:
    """The least that speaks the protocol, of version 0."""

    def __init__(self, array):
        self.array, self.dtype, self.device = array, array.dtype, "cpu"

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __array_namespace__(self):
        return OnlyDLPack

    float32 = "float32"

    @staticmethod
    def empty(shape, dtype, device):
        return OnlyDLPack(np.empty(shape, dtype))


def test_anything_with_dlpack():
    q, k, v = arrays()
    o, lse = attile.attention(*map(OnlyDLPack, (q, k, v)), mask=OnlyDLPack(np.ones((1, 1, 9, 13), bool)), return_lse=True)
    assert isinstance(o, OnlyDLPack)
    want, want_lse = plain.attention(q, k, v)
    agree(o.array, want)
    agree(lse.array, want_lse)
