"""PyTorch on the CPU: the same kernels from tensors, operators under torch.compile and autocast, sdpa, FlexAttention's functions."""
import math

import numpy as np
import plain
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the Python package with PyTorch")

import attile  # noqa: E402
import attile.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

B, H, HK, N, M, D = 2, 4, 2, 19, 27, 16
torch.manual_seed(1)
Q, K, V = torch.randn(B, H, N, D), torch.randn(B, HK, M, D), torch.randn(B, HK, M, D)
SQUARE = torch.randn(3, B, H, N, D).unbind()


def agree(got, want, tolerance=2e-5):
    assert got.shape == want.shape
    assert (got.double() - torch.as_tensor(want).double()).abs().max().item() < tolerance


def test_results_are_tensors_like_the_input():
    o, lse = attile.attention(Q, K, V, causal=True, return_lse=True)
    want, want_lse = plain.attention(Q, K, V, causal=True)
    assert isinstance(o, torch.Tensor) and o.dtype == Q.dtype and lse.dtype == torch.float32
    agree(o, want)
    agree(lse, want_lse)
    for dtype, tolerance in ((torch.bfloat16, 4e-2), (torch.float16, 4e-3)):
        small = [x.to(dtype) for x in (Q, K, V)]
        o = attile.attention(*small)
        assert o.dtype == dtype
        agree(o, plain.attention(*(x.float() for x in small))[0], tolerance)


def test_layouts_and_out():
    turned = [x.transpose(1, 2) for x in (Q, K, V)]
    want, _ = plain.attention(Q, K, V)
    agree(attile.attention(*turned, layout="bnhd").transpose(1, 2), want)
    agree(attile.attention(*(x.contiguous() for x in turned), layout="bnhd").transpose(1, 2), want)
    inner = torch.randn(B, N, 3, H, D).unbind(2)
    o = attile.attention(*inner, layout="bnhd")
    assert o.is_contiguous()
    agree(o.transpose(1, 2), plain.attention(*(x.transpose(1, 2) for x in inner))[0])
    out = torch.empty_like(Q)
    assert attile.attention(Q, K, V, out=out) is out
    agree(out, want)


def test_errors():
    for tensor in ("q", "k", "v", "out"):
        arguments = dict(q=Q, k=K, v=V, out=torch.empty_like(Q))
        arguments[tensor] = arguments[tensor].clone().requires_grad_()
        with pytest.raises(NotImplementedError, match=f"'{tensor}' requires a gradient, and there is no backward pass yet"):
            attile.attention(**arguments)
        with torch.no_grad():
            attile.attention(**arguments)
    freed = torch.empty_like(Q)
    freed.untyped_storage().resize_(0)
    small = torch.empty_like(Q)
    small.untyped_storage().resize_(1000)
    for out in (freed, small):
        with pytest.raises(ValueError, match="the memory of 'out' is freed or smaller than its shape"):
            attile.attention(Q, K, V, out=out)
    gone = Q.clone()
    gone.untyped_storage().resize_(0)
    for q, words in ((gone, "'q' has no data"), (Q.double(), "'q' is float64"), (Q.to_sparse(), "'q'"), (Q.to("meta"), "'q' lies on meta"),
                     (torch.randn(B, H, N, D, dtype=torch.complex64).imag[..., ::1], "stride 2"), (Q.half(), "'k' is float32, but 'q' is float16"),
                     (torch.randn(B, H, N, D, dtype=torch.complex64).conj().imag, "negates its memory")):
        with pytest.raises(ValueError, match=words):
            attile.attention(q, K, V)
    with pytest.raises(ValueError, match="'out' overlaps|overlaps"):
        attile.attention(SQUARE[0], SQUARE[1], SQUARE[2], out=SQUARE[0])


def test_numpy_and_torch_mix_on_the_cpu():
    agree(attile.attention(Q, K.numpy(), V), plain.attention(Q, K, V)[0])
    assert isinstance(attile.attention(Q.numpy(), K, V), np.ndarray)


@pytest.mark.parametrize("options", [dict(), dict(causal=True, window=(5, None), tuning="never", building="on_demand"), dict(rule="sigmoid"), dict(layout="bnhd"),
                                     dict(bias=torch.randn(1, H, N, M)), dict(kv_lens=torch.tensor([3, 20], dtype=torch.int32))], ids=str)
def test_compile_has_no_graph_break(options):
    tensors = [x.transpose(1, 2).contiguous() for x in (Q, K, V)] if options.get("layout") == "bnhd" else (Q, K, V)
    lse = options.get("rule") != "sigmoid"

    def model(q, k, v):
        return attile.torch.attention(q * 2, k, v, return_lse=lse, **options)
    got = torch.compile(model, fullgraph=True, backend="aot_eager")(*tensors)
    want = attile.attention(tensors[0] * 2, *tensors[1:], return_lse=lse, **options)
    for x, y in zip(*(((a,) if isinstance(a, torch.Tensor) else a) for a in (got, want))):
        assert torch.equal(x, y)


def test_compile_of_a_layer_and_export():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(H * D, 3 * H * D), torch.nn.Linear(H * D, H * D)

        def forward(self, x):
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, H, D).permute(2, 0, 3, 1, 4)
            o = self.attend(q, k, v).transpose(1, 2)
            return self.out(o.reshape(*x.shape[:2], H * D))

    layer, x = Layer().eval(), torch.randn(B, N, H * D)
    with torch.inference_mode():
        layer.attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
        want = layer(x)
        layer.attend = lambda q, k, v: attile.torch.sdpa(q, k, v, is_causal=True)
        agree(layer(x), want)
        agree(torch.compile(layer, fullgraph=True)(x), want)
    with torch.no_grad():
        agree(torch.export.export(layer, (x,)).module()(x), want)


def test_lse_of_a_rule_without_one():
    for model in (lambda q: attile.torch.attention(q, q, q, rule="sigmoid", return_lse=True),):
        with pytest.raises(ValueError, match="lse with rule sigmoid or linear is refused"):
            model(SQUARE[0])
        with pytest.raises(Exception, match="lse with rule sigmoid or linear is refused"):
            torch.compile(model, fullgraph=True, backend="aot_eager")(SQUARE[0])


def test_compile_with_inductor_and_changing_lengths():
    def model(q, k, v):
        return attile.torch.sdpa(q + 1, k, v, is_causal=True).relu()
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    for n in (5, 19, 33):
        q, k, v = torch.randn(3, B, H, n, D).unbind()
        agree(compiled(q, k, v), F.scaled_dot_product_attention(q + 1, k, v, is_causal=True).relu())


def test_operator_is_well_formed():
    arguments = (Q, K, V, *[None] * 10, [], -1, True, None, None, 0.0, "softmax", 0.0, 0, 0, 0, True, "bhnd", None, False, "never", "on_demand")
    torch.library.opcheck(torch.ops.attile.attention.default, arguments, test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"))


def test_autocast():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        o = attile.torch.attention(Q, K, V)
        assert o.dtype == torch.bfloat16
    agree(o, attile.attention(Q.bfloat16(), K.bfloat16(), V.bfloat16()), 1e-6)
    with torch.autocast("cpu", enabled=False):
        assert attile.torch.attention(Q, K, V).dtype == torch.float32


def test_gradients_are_refused_clearly():
    q = Q.clone().requires_grad_()
    with pytest.raises(NotImplementedError, match="no backward pass yet"):
        attile.torch.attention(q, K, V)
    with pytest.raises(Exception, match="UnsupportedError: attile::attention: there is no backward pass yet"):
        torch.compile(lambda q: attile.torch.attention(q, K, V).sum(), backend="aot_eager", fullgraph=True)(q).backward()
    with torch.no_grad():
        agree(torch.compile(lambda q: attile.torch.attention(q, K, V), backend="aot_eager", fullgraph=True)(q), plain.attention(Q, K, V)[0])


MASK = torch.rand(B, H, N, M) > 0.3
SDPA = {
    "plain": dict(),
    "causal": dict(is_causal=True),
    "scale": dict(scale=0.3),
    "bool mask": dict(attn_mask=MASK),
    "bool mask of two dims": dict(attn_mask=MASK[0, 0]),
    "bool mask of three dims": dict(attn_mask=MASK[0, :1]),
    "bool mask by key": dict(attn_mask=MASK[:, :1, :1]),
    "bool mask by row": dict(attn_mask=torch.arange(N)[:, None] < 7),
    "float mask": dict(attn_mask=torch.randn(B, 1, N, M)),
    "float mask with -inf": dict(attn_mask=torch.zeros(N, M).masked_fill(~MASK[1, 1], -math.inf)),
}


@pytest.mark.parametrize("name", SDPA)
@pytest.mark.parametrize("grouped", [False, True])
def test_sdpa(name, grouped):
    k, v = (K, V) if grouped else (torch.randn(B, H, M, D), torch.randn(B, H, M, D + 3))
    want = F.scaled_dot_product_attention(Q, k, v, enable_gqa=grouped, **SDPA[name]).nan_to_num(0)
    agree(attile.torch.sdpa(Q, k, v, enable_gqa=grouped, **SDPA[name]), want)


def test_sdpa_causal_is_top_left():
    q, k, v = SQUARE
    for a, b in ((q, k[..., :7, :]), (q[..., :7, :], k), (q, k), (q[..., :1, :], k)):
        agree(attile.torch.sdpa(a, b, b, is_causal=True), F.scaled_dot_product_attention(a, b, b, is_causal=True))


def test_sdpa_dims():
    for shape in ((7, 16), (3, 7, 16), (2, 3, 7, 16), (2, 2, 3, 7, 16)):
        q, k, v = torch.randn(3, *shape).unbind()
        agree(attile.torch.sdpa(q, k, v, is_causal=True), F.scaled_dot_product_attention(q, k, v, is_causal=True))
        mask = torch.randn(*shape[:-2], 7, 7)
        agree(attile.torch.sdpa(q, k, v, attn_mask=mask), F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    q, k, v = torch.randn(3, 2, 16, 3, 7).unbind()
    agree(attile.torch.sdpa(*(x.transpose(1, 3) for x in (q, k, v))), F.scaled_dot_product_attention(*(x.transpose(1, 3) for x in (q, k, v))))


def test_sdpa_dropout():
    ones = torch.ones(1, 1, 512, 8)
    torch.manual_seed(0)
    a = attile.torch.sdpa(ones, ones, ones, dropout_p=0.25)
    b = attile.torch.sdpa(ones, ones, ones, dropout_p=0.25)
    torch.manual_seed(0)
    assert torch.equal(a, attile.torch.sdpa(ones, ones, ones, dropout_p=0.25)) and not torch.equal(a, b)
    assert abs(a.mean().item() - 1) < 0.01 and a.std() > 0


def test_dropout_under_compile():
    torch.manual_seed(0)
    ones = torch.ones(1, 2, 256, 8)
    for backend in ("aot_eager", "inductor"):
        compiled = torch.compile(lambda q: attile.torch.sdpa(q, q, q, dropout_p=0.25) + 0, fullgraph=True, backend=backend)
        a, b = compiled(ones), compiled(ones)
        assert abs(a.mean().item() - 1) < 0.02 and a.std() > 0 and not torch.equal(a, b)


def test_sdpa_errors():
    for arguments, words in (((Q, K, V), "grouped heads need enable_gqa=True"), ((Q, K[0], V), "the same number")):
        with pytest.raises(ValueError, match=words):
            attile.torch.sdpa(*arguments)
    with pytest.raises(ValueError, match="both given"):
        attile.torch.sdpa(*SQUARE, is_causal=True, attn_mask=torch.ones(N, N, dtype=torch.bool))


def test_an_own_algorithm_on_tensors():
    from attile.dsl import batch, dot, for_tiles, head, head_dim, input, key, kv_head, query, scalar, sigmoid, value_dim
    q, k = input("q", [batch, head, query, head_dim]), input("k", [batch, kv_head, key, head_dim])
    v = input("v", [batch, kv_head, key, value_dim])

    def body(t):
        o = t.sum("o", dot(sigmoid(dot(q, k) * scalar("scale")), v))
        t.finish(lambda f: f.output("o", o))
    got = for_tiles("sigmoid", query).stream(key, body)(q=Q, k=K, v=V, scale=0.25)
    assert isinstance(got, torch.Tensor)
    agree(got, plain.attention(Q, K, V, rule="sigmoid", scale=0.25)[0])


def test_traced_mods_under_compile():
    slopes = 2.0 ** -torch.arange(1.0, H + 1)

    def alibi(s, b, h, i, j):
        return s - slopes[h] * (i - j)
    mods = attile.trace(alibi, lambda b, h, i, j: i >= j)
    want, _ = plain.attention(*SQUARE, score_mod=lambda s, b, h, i, j: s - 2.0 ** -(h + 1) * (i - j), mask_mod=lambda b, h, i, j: i >= j)
    agree(attile.torch.attention(*SQUARE, score_mod=mods), want)
    for backend in ("aot_eager", "inductor"):
        compiled = torch.compile(lambda q, k, v: attile.torch.attention(q, k, v, score_mod=mods) + 0, fullgraph=True, backend=backend)
        agree(compiled(*SQUARE), want)
    slopes.zero_()  # read at each call
    agree(compiled(*SQUARE), F.scaled_dot_product_attention(*SQUARE, is_causal=True))
    with pytest.raises(Exception, match="traced before: score_mod=attile.trace"):
        torch.compile(lambda q: attile.torch.attention(q, q, q, score_mod=alibi), backend="aot_eager", fullgraph=True)(SQUARE[0])
    broken = torch.compile(lambda q: attile.attention(q, q, q, score_mod=alibi), backend="aot_eager")  # a graph break, no fault
    agree(broken(SQUARE[0]), plain.attention(*SQUARE[:1] * 3, score_mod=lambda s, *_: s)[0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert attile.torch.attention(*SQUARE, score_mod=alibi).dtype == torch.bfloat16


def test_without_the_exchange_functions():
    """PyTorch before 2.10 has none; then tensors are read by their attributes."""
    import os
    import subprocess
    import sys
    code = """
import torch
del torch.Tensor.__dlpack_c_exchange_api__
import attile, test_torch as t
assert not hasattr(t.Q, "__dlpack_c_exchange_api__")
t.test_results_are_tensors_like_the_input(); t.test_layouts_and_out(); t.test_errors(); t.test_numpy_and_torch_mix_on_the_cpu()
"""
    if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        done = subprocess.run([sys.executable, "-c", code], cwd=os.path.dirname(os.path.abspath(__file__)), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_out_is_a_new_version():
    out = torch.zeros_like(Q)
    before = out._version
    attile.attention(Q, K, V, out=out)
    assert out._version > before
    x = torch.randn_like(Q, requires_grad=True)
    saved = torch.zeros_like(Q)
    result = (x * saved).sum()
    attile.attention(Q, K, V, out=saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()
    with torch.inference_mode():
        attile.attention(Q, K, V, out=torch.zeros_like(Q))


def test_an_algorithm_checks_the_memory_of_its_outputs():
    from attile import dsl
    q, k = (dsl.input(name, [dsl.batch, dsl.head, at, dsl.head_dim]) for name, at in (("q", dsl.query), ("k", dsl.key)))

    def body(t):
        total = t.sum("sum", dsl.dot(q, k))
        t.finish(lambda f: f.output("total", total))
    algorithm = dsl.for_tiles("sums", dsl.query).stream(dsl.key, body)
    out = torch.zeros(B, H, N)
    before = out._version
    algorithm.run({"q": Q, "k": Q}, out={"total": out})
    assert out._version > before
    out.untyped_storage().resize_(16)
    with pytest.raises(attile.ArgumentError, match="freed or smaller"):
        algorithm.run({"q": Q, "k": Q}, out={"total": out})


def test_dual_tensors_are_refused():
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        attile.attention(Q, K, V)
        for place in range(3):
            tensors = [Q, K, V]
            tensors[place] = forward.make_dual(tensors[place], torch.ones_like(tensors[place]))
            with pytest.raises(attile.UnsupportedError, match="tangent"):
                attile.attention(*tensors)


def test_a_mask_mod_beside_a_trace_is_refused_under_compile():
    traced = attile.trace(lambda s, b, h, i, j: s * 2)
    for function in (attile.attention, attile.torch.attention):
        with pytest.raises(attile.ArgumentError, match="trace both"):
            function(Q, K, V, score_mod=traced, mask_mod=lambda b, h, i, j: i >= j)


def test_what_a_function_asks_of_a_tensor():
    """Strides, and what Python code hung on it, are no part of a trace."""
    bias = torch.arange(6.0).reshape(2, 3)

    def by_stride(s, b, h, i, j):
        return s * bias.stride(0)
    agree(attile.attention(Q, K, V, score_mod=by_stride), plain.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s * 3)[0])
    bias.as_strided_((2, 3), (1, 2))
    agree(attile.attention(Q, K, V, score_mod=by_stride), plain.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s * 1)[0])

    def by_attribute(s, b, h, i, j):
        return s * bias.weight
    for weight in (2, 3):
        bias.weight = weight
        agree(attile.attention(Q, K, V, score_mod=by_attribute), plain.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s * weight)[0])


def test_masks_that_sdpa_refuses():
    q, k, v = SQUARE
    for mask in (torch.zeros(N, N, dtype=torch.float64), torch.zeros(N, N, dtype=torch.int64), torch.zeros(N, N, dtype=torch.float16),
                 torch.zeros(1, 1, 1, N, N)):
        for function in (F.scaled_dot_product_attention, attile.torch.sdpa):
            with pytest.raises((RuntimeError, attile.ArgumentError)):
                function(q, k, v, attn_mask=mask)
    small = [x.bfloat16() for x in SQUARE]
    agree(attile.torch.sdpa(*small, attn_mask=torch.ones(N, N)), F.scaled_dot_product_attention(*small, attn_mask=torch.ones(N, N, dtype=torch.bfloat16)), 4e-2)
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(attile.ArgumentError):
            attile.torch.sdpa(*(x.double() for x in SQUARE))
        attile.torch.sdpa(*SQUARE, attn_mask=torch.zeros(N, N, dtype=torch.float16))


def test_sdpa_of_nothing():
    for shape in ((0, B, H, N, D), (B, 0, H, N, D), (B, H, 1, 0, D)):
        x = torch.zeros(shape)
        assert attile.torch.sdpa(x, x, x).shape == x.shape


def test_numbers_of_the_operator():
    compiled = torch.compile(lambda q, k, v, **options: attile.torch.attention(q, k, v, dropout=0.5, **options), backend="eager", fullgraph=True)
    for seed in (2 ** 63, 2 ** 64 - 1, 3):
        agree(compiled(Q, K, V, seed=seed), attile.attention(Q, K, V, dropout=0.5, seed=seed))
    with pytest.raises(Exception, match="causal"):
        compiled(Q, K, V, causal=1)
