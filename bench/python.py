"""The Python package beside its peers in one process, alternating: FlashAttention 2 and cuDNN through PyTorch, FlashAttention 3 and
4, FlexAttention; on the CPU PyTorch's own. Medians, the ratio for each shape, the greatest difference, and what could not be run.

    python bench/python.py [--device cuda|cpu] [--only forward,mods,decode,overhead] [--threads N] [--json FILE]

Needs PyTorch and the package attile (pip install .). TFLOP/s count 4·B·H·Nq·Nk·D, half of it when causal, the kept pairs for other
masks; decode is GB/s of K and V, rotated beyond the last cache; overhead is µs of the host for a call on one key.
A ratio above 1 says that Attile is faster.
"""
import argparse
import functools
import json
import os
import sys

import torch
import torch.nn.functional as F

import attile
import attile.torch
from attile_ctypes import Attile
from timing import host_medians, medians

ROWS, MISSING = [], {}


def missing(peer, why):
    if peer not in MISSING:
        MISSING[peer] = str(why).strip().splitlines()[0][:150] if str(why).strip() else type(why).__name__


# ---- Peers: name -> function of (q, k, v, causal) in [B][H][N][D]

def by_backend(backend):
    from torch.nn.attention import sdpa_kernel

    def call(q, k, v, causal):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
    return call


def by_package(load):
    function = load()

    def call(q, k, v, causal):
        o = function(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal=causal)
        return (o[0] if isinstance(o, tuple) else o).transpose(1, 2)
    return call


def flash_attention_3():
    from flash_attn_interface import flash_attn_func
    return flash_attn_func


def flash_attention_4():
    from flash_attn.cute.interface import flash_attn_func
    return flash_attn_func


@functools.lru_cache(maxsize=None)
def peers(device):
    if device == "cpu":
        return {"torch": lambda q, k, v, causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])}
    from torch.nn.attention import SDPBackend
    found = {"fa2": by_backend(SDPBackend.FLASH_ATTENTION), "cudnn": by_backend(SDPBackend.CUDNN_ATTENTION)}
    for name, load in (("fa3", flash_attention_3), ("fa4", flash_attention_4)):
        try:
            found[name] = by_package(load)
        except Exception as error:
            missing(name, error)
    return found


# ---- Rows

def difference(result, got):
    """The greatest; None where shapes say that they are no results of one thing."""
    return (result.float() - got.float()).abs().max().item() if result is not None and result.shape == got.shape else None


def compare(device, group, name, unit, work, ours, others, checked=True, **timing):
    """A row for each peer that can do it. checked: all compute the same."""
    got, runnable, differences = ours(), {}, {}
    for peer, call in others.items():
        try:
            result = call()
            if device != "cpu":
                torch.cuda.synchronize()
            runnable[peer], differences[peer] = call, difference(result, got) if checked else None
        except Exception as error:
            missing(f"{peer} ({group} {name})", error)
            if device != "cpu":
                torch.cuda.synchronize()
    mine, *theirs = (work / seconds for seconds in medians(device, [ours, *runnable.values()], **timing))
    print(f"{group:8} {name:40} attile {mine:8.1f} {unit}", end="")
    for peer, rate in zip(runnable, theirs):
        ROWS.append(dict(group=group, name=name, unit=unit, attile=mine, peer=peer, theirs=rate, ratio=mine / rate, difference=differences[peer]))
        print(f"  {peer} {rate:8.1f} ratio {mine / rate:5.2f}", end="" if differences[peer] is None else f" diff {differences[peer]:.0e}")
    print(flush=True)


def tensors(device, dtype, B, H, Hk, Nq, Nk, D):
    return [torch.randn(B, h, n, D, device=device).to(dtype) for h, n in ((H, Nq), (Hk, Nk), (Hk, Nk))]


# ---- Groups

def forward(device):
    on_cpu = device == "cpu"
    shapes = [(1, 8, 1024, 64), (1, 4, 4096, 64), (1, 4, 2048, 128)] if on_cpu else \
        [(16384 // N, 2048 // D, N, D) for D in (64, 128, 256) for N in (1024, 4096, 16384)]
    for dtype in (torch.float32, torch.bfloat16) if on_cpu else (torch.bfloat16,):
        for B, H, N, D in shapes:
            for causal in (False, True):
                q, k, v = tensors(device, dtype, B, H, H, N, N, D)
                work = 4 * B * H * N * N * D / (2 if causal else 1) / (1e9 if on_cpu else 1e12)
                others = {peer: functools.partial(call, q, k, v, causal) for peer, call in peers(device).items()}
                compare(device, "forward", f"{str(dtype)[6:]} B{B} H{H} N{N} D{D} {'causal' if causal else 'full'}", "GFLOP/s" if on_cpu else "TFLOP/s",
                        work, lambda: attile.attention(q, k, v, causal=causal), others)


def mods(device):
    """The user's own functions, the same for both."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    flex = torch.compile(flex_attention, dynamic=False)
    on_cpu = device == "cpu"
    B, H, N, D = (1, 4, 2048, 64) if on_cpu else (2, 16, 8192, 128)
    dtype = torch.float32 if on_cpu else torch.bfloat16
    q, k, v = tensors(device, dtype, B, H, H, N, N, D)
    slopes = 2.0 ** (-8 * torch.arange(1, H + 1, device=device) / H)
    documents = torch.arange(N, device=device) // (N // 8)
    table = torch.randn(2 * N, device=device)

    def causal(b, h, i, j):
        return i >= j
    pairs = N * (N + 1) / 2
    cases = [("soft cap causal", lambda s, b, h, i, j: 30.0 * torch.tanh(s / 30.0), causal, pairs),
             ("alibi causal", lambda s, b, h, i, j: s - slopes[h] * (i - j), causal, pairs),
             ("relative bias causal", lambda s, b, h, i, j: s + table[i - j + N], causal, pairs),
             ("8 documents", None, lambda b, h, i, j: documents[i] == documents[j], N * N / 8),
             ("8 documents causal", None, lambda b, h, i, j: (documents[i] == documents[j]) & (i >= j), N * N / 16),
             ("window 1024 causal", None, lambda b, h, i, j: (i >= j) & (i - j <= 1024), pairs - max(N - 1024, 0) * (N - 1025) / 2)]
    for name, score_mod, mask_mod, kept in cases:
        def theirs():
            nonlocal block
            block = block or create_block_mask(mask_mod, None, None, N, N, device=device)
            return flex(q, k, v, score_mod=score_mod, block_mask=block)
        block = None
        compare(device, "mods", f"{str(dtype)[6:]} B{B} H{H} N{N} D{D} {name}", "GFLOP/s" if on_cpu else "TFLOP/s",
                4 * B * H * kept * D / (1e9 if on_cpu else 1e12),
                lambda: attile.attention(q, k, v, score_mod=score_mod, mask_mod=mask_mod), {"flex": theirs})


def decode(device):
    on_cpu = device == "cpu"
    dtype = torch.float32 if on_cpu else torch.bfloat16
    for B, H, Hk, N, D in [(1, 32, 8, 4096, 128)] if on_cpu else [(1, 32, 8, 32768, 128), (16, 32, 8, 8192, 128), (64, 32, 8, 8192, 128)]:
        size = 2 * B * Hk * N * D * torch.finfo(dtype).bits // 8
        count = max(2, (256 << 20) // size + 1)
        sets = [tensors(device, dtype, B, H, Hk, 1, N, D) for _ in range(count)]
        turn = [0] * 8

        def rotated(which, call):
            def next_one():
                turn[which] = (turn[which] + 1) % count
                return call(*sets[turn[which]])
            return next_one
        others = {peer: rotated(i + 1, functools.partial(lambda call, q, k, v: call(q, k, v, False), call)) for i, (peer, call) in enumerate(peers(device).items())}
        compare(device, "decode", f"{str(dtype)[6:]} B{B} H{H}/{Hk} N{N} D{D}", "GB/s", size / 1e9, rotated(0, attile.attention), others, checked=False, inner=count)


def overhead(device):
    """Host time of a warm call through the package, over the same call through the C interface with everything bound."""
    c = Attile(os.path.join(os.path.dirname(attile.__file__), "lib", "libattile.so.0"))
    q = torch.randn(1, 1, 1, 64, device=device, dtype=torch.float32 if device == "cpu" else torch.bfloat16)
    o, slopes = torch.empty_like(q), torch.ones(1, device=device)
    bound = c.attention(device=-1 if device == "cpu" else q.get_device()).bind(q=q, k=q, v=q, o=o, stream=None if device == "cpu" else torch.cuda.current_stream().cuda_stream)
    calls = {"C interface, bound": bound, "attention, out given": lambda: attile.attention(q, q, q, out=o), "attention": lambda: attile.attention(q, q, q),
             "attention, score_mod": lambda: attile.attention(q, q, q, score_mod=alibi), "torch.sdpa": lambda: attile.torch.sdpa(q, q, q),
             "PyTorch's sdpa": lambda: F.scaled_dot_product_attention(q, q, q)}

    def alibi(s, b, h, i, j):
        return s - slopes[h] * (i - j)
    with torch.inference_mode():
        times = host_medians(calls, repeats=31, inner=200)
    base = times["C interface, bound"][0]
    for name, (median, best) in times.items():
        ROWS.append(dict(group="overhead", name=name, unit="us", attile=median * 1e6, over_c=(median - base) * 1e6))
        print(f"overhead {name:40} {median * 1e6:8.2f} us, {(median - base) * 1e6:6.2f} over the C interface, best {best * 1e6:.2f}", flush=True)


GROUPS = {"forward": forward, "mods": mods, "decode": decode, "overhead": overhead}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cuda", "cpu"])
    parser.add_argument("--only", default=",".join(GROUPS), help="groups with commas between")
    parser.add_argument("--threads", type=int, help="of the CPU, for Attile and PyTorch")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
        attile.set_threads(arguments.threads)
    torch.manual_seed(0)
    chip = torch.cuda.get_device_name() if arguments.device == "cuda" else torch.backends.cpu.get_cpu_capability()
    print(f"attile {attile.__version__}, torch {torch.__version__}, {chip}, {attile.get_threads()} threads")
    for group in arguments.only.split(","):
        try:
            GROUPS[group](arguments.device)
        except ImportError as error:
            missing(group, error)
    for peer, why in MISSING.items():
        print(f"not run: {peer}: {why}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(dict(attile=attile.__version__, torch=torch.__version__, chip=chip, command=" ".join(sys.argv), rows=ROWS, missing=MISSING), file, indent=1)


if __name__ == "__main__":
    main()
