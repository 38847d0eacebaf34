"""PyTorch on a GPU: results, streams, a second device, CUDA graphs, torch.compile, FlexAttention's examples, forks."""
import os
import warnings

import plain
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the Python package with PyTorch on a GPU")
if not torch.cuda.is_available():
    pytest.skip("no GPU that PyTorch sees: the Python package with PyTorch on a GPU", allow_module_level=True)

import attile  # noqa: E402
import attile.torch  # noqa: E402
import flex_cases  # noqa: E402
import torch.nn.functional as F  # noqa: E402

B, H, HK, N, M, D = 2, 4, 2, 130, 190, 64
DEVICE = torch.device("cuda", torch.cuda.current_device())
torch.manual_seed(1)
Q, K, V = (torch.randn(B, h, n, D, device=DEVICE) for h, n in ((H, N), (HK, M), (HK, M)))
TOLERANCE = {torch.float32: 5e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


def sdpa(q, k, v, **options):
    return F.scaled_dot_product_attention(q.double(), k.double(), v.double(), enable_gqa=q.shape[1] != k.shape[1], **options)


def agree(got, want):
    assert got.shape == want.shape and got.device == want.device
    assert (got.double() - want.double()).abs().max().item() < TOLERANCE[got.dtype]


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_against_sdpa(dtype):
    q, k, v = (x.to(dtype) for x in (Q, K, V))
    o, lse = attile.attention(q, k, v, return_lse=True)
    assert o.dtype == dtype and o.device == DEVICE and lse.dtype == torch.float32
    agree(o, sdpa(q, k, v))
    s = q.double() @ k.double().repeat_interleave(H // HK, 1).transpose(-1, -2) * D ** -0.5
    assert (lse - torch.logsumexp(s, -1)).abs().max() < 1e-3
    agree(attile.torch.sdpa(q, k, v, is_causal=True, enable_gqa=True), sdpa(q, k, v, is_causal=True))
    mask = torch.rand(B, 1, N, M, device=DEVICE) > 0.3
    agree(attile.torch.sdpa(q, k, v, attn_mask=mask, enable_gqa=True), sdpa(q, k, v, attn_mask=mask))
    turned = [x.transpose(1, 2) for x in (q, k, v)]
    agree(attile.attention(*turned, layout="bnhd").transpose(1, 2), sdpa(q, k, v))
    out = torch.full_like(q, float("nan"))
    assert attile.attention(q, k, v, out=out) is out
    agree(out, sdpa(q, k, v))


OPTIONS = {
    "causal window": dict(causal=True, window=(20, None)),
    "soft cap": dict(softcap=3.0),
    "ALiBi": dict(alibi_slopes=2.0 ** -torch.arange(1.0, H + 1), causal=True),
    "sink": dict(sink=torch.randn(H)),
    "sigmoid": dict(rule="sigmoid"),
    "used lengths": dict(kv_lens=torch.tensor([0, 77], dtype=torch.int32)),
    "documents": dict(doc_ids=torch.arange(M, dtype=torch.int32).div(50, rounding_mode="floor").int().expand(B, M).contiguous()),
    "prefix": dict(causal=True, prefix_len=torch.tensor([3, 99], dtype=torch.int32)),
    "dropout": dict(dropout=0.3, seed=12),
    "top-k": dict(top_k=5),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_against_float64(name):
    options = {key: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for key, value in OPTIONS[name].items()}
    rows = Q[:, :, :9]
    try:
        got = attile.attention(rows, K, V, **options)
    except attile.UnsupportedError as error:
        pytest.skip(f"{name} on this GPU: {error}")
    want, _ = plain.attention(rows.cpu(), K.cpu(), V.cpu(), **OPTIONS[name])
    agree(got, torch.as_tensor(want, device=DEVICE))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", flex_cases.NAMES)
def test_flex_attention_examples(name, dtype):
    mods = flex_cases.examples(DEVICE)[name]
    for heads_k in (flex_cases.H, 2):
        q, k, v = flex_cases.tensors(DEVICE, dtype, heads_k)
        got = attile.attention(q, k, v, score_mod=mods[0], mask_mod=mods[1])
        agree(got, flex_cases.by_sdpa(q, k, v, *mods))
        agree(got, flex_cases.by_flex(q, k, v, *mods))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["ALiBi", "soft cap", "causal documents", "prefix-LM", "sliding window", "relative bias"])
def test_compiled_flex_attention(name):
    torch._dynamo.reset()
    mods = flex_cases.examples(DEVICE)[name]
    q, k, v = flex_cases.tensors(DEVICE, torch.float16)
    try:
        want = flex_cases.by_flex(q, k, v, *mods, flex=torch.compile(flex_cases.flex_attention))
    except torch._inductor.exc.InductorError as error:  # its tiles may not fit the chip
        warnings.warn(f"FlexAttention could not be compiled, its plain form is compared with: {error}")
        want = flex_cases.by_flex(q, k, v, *mods, flex=flex_cases.flex_attention)
    agree(attile.attention(q, k, v, score_mod=mods[0], mask_mod=mods[1]), want)


def delayed(tensor, value):
    """Fills the tensor on the current stream after some milliseconds."""
    torch.cuda._sleep(50_000_000)
    tensor.copy_(value)


@pytest.mark.parametrize("score_mod", [None, lambda s, b, h, i, j: s * 1.5])
def test_the_current_stream(score_mod):
    wanted = sdpa(Q * 1.5 if score_mod else Q, K, V)
    attile.attention(Q, K, V, score_mod=score_mod)
    stream = torch.cuda.Stream()
    late = torch.zeros_like(Q)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        delayed(late, Q)
        o = attile.attention(late, K, V, score_mod=score_mod)
        assert not stream.query()  # nothing was waited for
        copy = o.clone()
    stream.synchronize()
    agree(copy, wanted)


@pytest.fixture
def second():
    """The second GPU, while the first is current; and it is so afterwards."""
    if torch.cuda.device_count() < 2:
        pytest.skip("a second GPU: the Python package on it")
    with torch.cuda.device(0):
        yield torch.device("cuda", 1)
        assert torch.cuda.current_device() == 0


def on(device, *tensors):
    return [x.to(device) for x in tensors]


def alibi_of(slopes):
    return lambda s, b, h, i, j: s - slopes[h] * (i - j)


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_a_second_device(second, dtype):
    q, k, v = (x.to(second, dtype) for x in (Q, K, V))
    o, lse = attile.attention(q, k, v, return_lse=True)
    assert o.device == lse.device == second
    agree(o, sdpa(q, k, v))
    out = torch.full_like(q, float("nan"))
    assert attile.attention(q, k, v, out=out) is out
    agree(out, sdpa(q, k, v))
    agree(attile.torch.sdpa(q, k, v, is_causal=True, enable_gqa=True), sdpa(q, k, v, is_causal=True))
    agree(attile.torch.attention(q, k, v, scale=0.5), sdpa(q, k, v, scale=0.5))
    attile.warm_up([dict(q=q, k=k, v=v, softcap=9.0)])
    attile.attention(q, k, v, softcap=9.0, building="never")


def test_score_mods_on_a_second_device(second):
    """One trace serves both devices; what it captured lies where q does."""
    slopes = 2.0 ** -torch.arange(1.0, H + 1)
    bias = -slopes[:, None, None] * (torch.arange(N)[:, None] - torch.arange(M))
    for device in (second, torch.device("cuda", 0), second):
        q, k, v = on(device, Q, K, V)
        agree(attile.attention(q, k, v, score_mod=alibi_of(slopes.to(device))), sdpa(q, k, v, attn_mask=bias.to(device).double()))
    with pytest.raises(ValueError, match="'captured_0' lies on cuda:0, but 'q' on cuda:1"):
        attile.attention(*on(second, Q, K, V), score_mod=alibi_of(slopes.to("cuda:0")))


def test_the_current_stream_of_a_second_device(second):
    q, k, v = on(second, Q, K, V)
    attile.attention(q, k, v)
    late, stream = torch.zeros_like(q), torch.cuda.Stream(second)
    torch.cuda.synchronize(second)
    with torch.cuda.stream(stream):
        delayed(late, q)
        with torch.cuda.device(0):
            o = attile.attention(late, k, v)
        assert not stream.query()
    stream.synchronize()
    agree(o, sdpa(q, k, v))


def test_both_devices_at_once(second):
    import threading
    places, faults = [torch.device("cuda", 0), second], []

    def calls(device, cap):
        try:
            q, k, v = on(device, Q, K, V)
            want = attile.attention(q, k, v, softcap=cap)
            for _ in range(50):
                assert torch.equal(attile.attention(q, k, v, softcap=cap), want)
        except BaseException as fault:
            faults.append(fault)
    threads = [threading.Thread(target=calls, args=(places[i % 2], 3.0 + i // 2)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults


def test_devices_are_not_mixed(second):
    first, (q, k, v) = torch.device("cuda", 0), on(second, Q, K, V)
    with pytest.raises(ValueError, match="'k' lies on cuda:1, but 'q' on cuda:0"):
        attile.attention(Q.to(first), k, v)
    for name, tensor in (("out", torch.empty(B, H, N, D, device=first)), ("kv_lens", torch.zeros(B, dtype=torch.int32, device=first))):
        with pytest.raises(ValueError, match=f"'{name}' lies on cuda:0, but 'q' on cuda:1"):
            attile.attention(q, k, v, **{name: tensor})


def test_errors():
    with pytest.raises(ValueError, match="'k' lies on cpu, but 'q' on cuda:"):
        attile.attention(Q, K.cpu(), V)
    with pytest.raises(ValueError, match="'out' lies on cpu, but 'q' on cuda:"):
        attile.attention(Q, K, V, out=torch.empty(B, H, N, D))
    with pytest.raises(NotImplementedError, match="no backward pass yet"):
        attile.attention(Q.clone().requires_grad_(), K, V)
    slopes = torch.ones(H)
    with pytest.raises(ValueError, match="'captured_0' lies on cpu, but 'q' on cuda:"):
        attile.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s * slopes[h])
    cap = torch.tensor(2.0)  # a number may lie anywhere
    agree(attile.attention(Q, K, V, score_mod=lambda s, b, h, i, j: cap * torch.tanh(s / cap)), attile.attention(Q, K, V, softcap=2.0).double())


def test_cuda_graph():
    q, o = Q.clone(), torch.empty_like(Q)
    factor = torch.tensor([1.0], device=DEVICE)

    def score_mod(s, b, h, i, j):
        return s * factor[0]
    calls = [lambda: attile.attention(q, K, V, out=o), lambda: attile.attention(q, K, V, score_mod=score_mod),
             lambda: attile.torch.sdpa(q, K, V, is_causal=True, enable_gqa=True)]
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [call() for call in calls]
    for scale in (1.0, -2.0, 0.5):
        q.copy_(Q * scale)
        factor.fill_(scale)
        graph.replay()
        torch.cuda.synchronize()
        for got, want in zip(results, (sdpa(q, K, V), sdpa(q * scale, K, V), sdpa(q, K, V, is_causal=True))):
            agree(got, want)


def test_a_kernel_that_is_not_built_in_a_capture():
    q, k, v = (torch.randn(1, 1, 33, 40, device=DEVICE, dtype=torch.float16) for _ in range(3))
    graph, fault = torch.cuda.CUDAGraph(), None
    try:
        with torch.cuda.graph(graph):
            try:
                attile.attention(q, k, v, softcap=7.0, causal=True, window=(3, 2))
            except attile.Error as error:
                fault = error
    except RuntimeError:
        pass  # the capture of nothing, or one that the refusal ended
    assert fault is not None and "capture" in str(fault)
    agree(attile.attention(q, k, v), sdpa(q, k, v))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compile(mode):
    torch._dynamo.reset()
    mods = attile.trace(lambda s, b, h, i, j: s - 0.1 * torch.abs(i - j))

    def model(q, k, v):
        a = attile.torch.sdpa(q * 2, k, v, is_causal=True, enable_gqa=True)
        return attile.torch.attention(a, k, v, score_mod=mods) * 0.5
    compiled = torch.compile(model, fullgraph=True, mode=mode)
    with torch.inference_mode():
        for _ in range(4):
            q = torch.randn_like(Q)
            agree(compiled(q, K, V).clone(), model(q, K, V).double())


def test_autocast():
    with torch.autocast("cuda", dtype=torch.bfloat16):
        o = attile.torch.attention(Q, K, V)
        compiled = torch.compile(lambda q, k, v: attile.torch.attention(q, k, v), fullgraph=True)(Q, K, V)
    assert o.dtype == compiled.dtype == torch.bfloat16
    agree(o, sdpa(Q, K, V))
    agree(compiled, sdpa(Q, K, V))


def test_inputs_may_be_freed_after_the_call():
    want = sdpa(Q, K, V)
    for _ in range(20):
        o = attile.attention(Q.clone(), K.clone(), V.clone())
        torch.full((8, B, H, M, D), float("nan"), device=DEVICE)  # takes the memory that was just given back
        agree(o, want)


@pytest.mark.parametrize("given", [False, True])
def test_a_forked_child_gets_an_error(given):
    out = torch.empty_like(Q) if given else None
    attile.attention(Q, K, V)
    torch.cuda.synchronize()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        import signal
        signal.alarm(60)
        try:
            attile.attention(Q, K, V, out=out)
            text = "no error"
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    text = os.read(read, 1 << 16).decode()
    os.waitpid(child, 0)
    assert "fork" in text, text
    assert text.startswith("EnvironmentError: "), text
    o = attile.attention(Q, K, V)
    agree(o, sdpa(Q, K, V))
