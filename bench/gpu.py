"""Attile on a GPU beside PyTorch's FlashAttention-2 and FlexAttention, in one process, alternating.

  python3 bench/gpu.py LIBRARY [--only forward,odd,mods,decode,first,host] [--json FILE]

LIBRARY is libattile.so. Times are medians of CUDA-event timings after warm-up, buffers of decode rows rotated beyond the
L2; TFLOP/s count 4·B·H·Nq·Nk·D, half of it when causal, the kept pairs for other masks. Needs PyTorch with CUDA.
"""
import argparse
import ctypes
import json
import math
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from attile_ctypes import Attile
from timing import host_medians, medians

ROWS = []


def row(group, name, unit, ours, theirs, peer, error=None):
    ROWS.append(dict(group=group, name=name, unit=unit, attile=ours, peer=peer, theirs=theirs, ratio=ours / theirs, error=error))
    print(f"{group:8} {name:44} {ours:8.1f} {unit:7} {peer} {theirs:8.1f}  ratio {ours / theirs:5.2f}" + (f"  error {error:.1e}" if error is not None else ""), flush=True)


def tensors(B, H, Hk, Nq, Nk, D):
    make = lambda h, n: torch.randn(B, h, n, D, device="cuda", dtype=torch.bfloat16)
    return make(H, Nq), make(Hk, Nk), make(Hk, Nk)


def forward(attile, group, B, H, N, D, causal):
    q, k, v = tensors(B, H, H, N, N, D)
    o = torch.full_like(q, float("nan"))
    ours = attile.attention(causal=causal, device=0).bind(q=q, k=k, v=v, o=o)

    def fa2():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    ours()
    error = (o.float() - fa2().float()).abs().max().item()
    a, b = medians("cuda", [ours, fa2])
    flops = 4 * B * H * N * N * D / (2 if causal else 1) / 1e12
    row(group, f"B{B} H{H} N{N} D{D} {'causal' if causal else 'full'}", "TFLOP/s", flops / a, flops / b, "fa2", error)


def mods(attile):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    flex = torch.compile(flex_attention, dynamic=False)
    B, H, N, D = 2, 16, 8192, 128
    q, k, v = tensors(B, H, H, N, N, D)
    o = torch.full_like(q, float("nan"))
    causal = lambda b, h, i, j: i >= j
    docs = torch.arange(N, device="cuda", dtype=torch.int32).div(1024, rounding_mode="floor").int().expand(B, N).contiguous()
    slopes = torch.tensor([2 ** (-8 * (h + 1) / H) for h in range(H)], device="cuda", dtype=torch.float32)
    block = lambda mask: create_block_mask(mask, None, None, N, N, device="cuda")
    pairs = N * (N + 1) / 2
    cases = [
        ("softcap 30 causal", dict(causal=True, softcap=30.0), {}, lambda s, b, h, i, j: 30.0 * torch.tanh(s / 30.0), causal, pairs),
        ("alibi causal", dict(causal=True), dict(alibi_slopes=slopes), lambda s, b, h, i, j: s - slopes[h] * (i - j), causal, pairs),
        ("documents of 1024", dict(), dict(doc_ids=docs), None, lambda b, h, i, j: docs[b, i] == docs[b, j], N * 1024),
        ("documents of 1024 causal", dict(causal=True), dict(doc_ids=docs), None, lambda b, h, i, j: (docs[b, i] == docs[b, j]) & (i >= j), N * 1024 / 2),
        ("window 1024 causal", dict(causal=True, window=(1024, 0)), {}, None, lambda b, h, i, j: (i >= j) & (i - j <= 1024), pairs - (N - 1024) * (N - 1025) / 2),
    ]
    for name, options, extra, score, mask, kept in cases:
        ours = attile.attention(device=0, **options).bind(q=q, k=k, v=v, o=o, **extra)
        blocks = block(mask)
        peer = lambda: flex(q, k, v, score_mod=score, block_mask=blocks)
        ours()
        error = (o.float() - peer().float()).abs().max().item()
        a, b = medians("cuda", [ours, peer])
        flops = 4 * B * H * kept * D / 1e12
        row("mods", f"B{B} H{H} N{N} D{D} {name}", "TFLOP/s", flops / a, flops / b, "flex", error)


def decode(attile, B, H, Hk, N, D=128):
    size = 2 * B * Hk * N * D * 2
    count = max(2, math.ceil(200e6 / size) + 1)
    sets = [tensors(B, H, Hk, 1, N, D) for _ in range(count)]
    o = torch.full_like(sets[0][0], float("nan"))
    attention = attile.attention(device=0)
    ours = [attention.bind(q=q, k=k, v=v, o=o) for q, k, v in sets]
    turn = [0, 0]

    def next_ours():
        turn[0] = (turn[0] + 1) % count
        ours[turn[0]]()

    def read():
        turn[1] = (turn[1] + 1) % count
        flat[turn[1]].sum()
    flat = [torch.empty(size // 4, device="cuda", dtype=torch.float32).zero_() for _ in range(count)]
    ours[0]()
    q, k, v = sets[0]
    want = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), enable_gqa=True)
    error = (o.float() - want).abs().max().item()
    del want
    a, b = medians("cuda", [next_ours, read], inner=2 * count)
    row("decode", f"B{B} H{H}/{Hk} N{N} D{D} {size >> 20} MiB", "GB/s", size / a / 1e9, size / b / 1e9, "sum", error)


FIRST = """
import sys, time, torch
sys.path.insert(0, {here!r})
from attile_ctypes import Attile
attile = Attile({library!r})
q = torch.randn(1, 1, 256, {D}, device="cuda", dtype=torch.bfloat16)
o = torch.empty_like(q)
call = attile.attention(causal={causal}, device=0).bind(q=q, k=q, v=q, o=o)
torch.cuda.synchronize()
begin = time.perf_counter()
call(), torch.cuda.synchronize()
print(time.perf_counter() - begin)
"""


def first_calls(library):
    """Milliseconds of a process's first call: built (medians of five processes, several at a time) and from the disk cache
    (medians of three, one after another). Each has one core."""
    here, library = os.path.dirname(os.path.abspath(__file__)), os.path.abspath(library)
    cores = sorted(os.sched_getaffinity(0))
    workers = max(1, len(cores) // 2)
    cases = [(D, causal) for D in (64, 128, 256) for causal in (False, True)]
    with tempfile.TemporaryDirectory() as folders:
        def first(core, D, causal, repeat):
            code = FIRST.format(here=here, library=library, D=D, causal=causal)
            # NVRTC keeps what it compiled in the driver's cache, too.
            environment = {**os.environ, "ATTILE_CACHE_DIR": f"{folders}/{D}-{causal}-{repeat}", "CUDA_CACHE_DISABLE": "1"}
            out = subprocess.run(["taskset", "-c", str(core), sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
            return float(out.stdout.split()[-1]) * 1e3

        def lane(worker):
            jobs = [(*case, repeat) for case in cases for repeat in range(5)][worker::workers]
            return [(*job[:2], first(cores[worker], *job)) for job in jobs]
        with ThreadPoolExecutor(workers) as pool:
            built = [time for times in pool.map(lane, range(workers)) for time in times]
        loaded = [(*case, first(cores[0], *case, repeat)) for case in cases for repeat in range(3)]
    for kind, times in (("built", built), ("from disk", loaded)):
        for case in cases:
            mine = sorted(time[2] for time in times if time[:2] == case)
            name = f"D{case[0]} {'causal' if case[1] else 'full'} {kind}, one core"
            ROWS.append(dict(group="first", name=name, unit="ms", attile=mine[len(mine) // 2]))
            print(f"first    {name:44} {mine[len(mine) // 2]:8.1f} ms", flush=True)


EMPTY = b""".version 7.0
.target sm_80
.address_size 64
.visible .entry empty(.param .align 8 .b8 a[184]) { ret; }
"""


def bare_launch():
    """A launch of an empty kernel by the driver, as ctypes calls it."""
    driver = ctypes.CDLL("libcuda.so.1")
    module, function, block = ctypes.c_void_p(), ctypes.c_void_p(), (ctypes.c_byte * 184)()
    assert driver.cuModuleLoadData(ctypes.byref(module), EMPTY) == 0
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"empty") == 0
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    launch = driver.cuLaunchKernel
    launch.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3
    return lambda _keep=block: launch(function, 8, 1, 1, 128, 1, 1, 0, None, parameters, None)


def host_time(attile):
    """Host microseconds of a call, of a bare launch and of PyTorch's cheapest, in turn."""
    q = torch.randn(1, 8, 64, 64, device="cuda", dtype=torch.bfloat16)
    o = torch.empty_like(q)
    one = torch.zeros(1, device="cuda")
    calls = {"attile through ctypes": attile.attention(device=0).bind(q=q, k=q, v=q, o=o),
             "cuLaunchKernel through ctypes": bare_launch(), "torch add_": lambda: one.add_(1)}
    for name, (median, _) in host_medians(calls, repeats=20, inner=50).items():
        ROWS.append(dict(group="host", name=name, unit="us", attile=median * 1e6))
        print(f"host     {name:44} {median * 1e6:8.2f} us a call", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--only", default="forward,odd,mods,decode,first,host")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    attile = Attile(arguments.library)
    print(f"Attile {attile.version()}, PyTorch {torch.__version__}, {torch.cuda.get_device_name(0)}")
    if "forward" in only:
        for D in (64, 128, 256):
            for N in (1024, 4096, 16384):
                for causal in (False, True):
                    forward(attile, "forward", 16384 // N, 2048 // D, N, D, causal)
    if "odd" in only:
        for D in (72, 80, 96, 112, 160, 192, 224):
            for causal in (False, True):
                forward(attile, "odd", 4, 16, 4096, D, causal)
    if "mods" in only:
        mods(attile)
    if "decode" in only:
        for B, N in ((1, 32768), (1, 131072), (16, 8192), (64, 8192), (128, 2048)):
            for H in (32, 64):
                decode(attile, B, H, 8, N)
    if "host" in only:
        host_time(attile)
    if "first" in only:
        first_calls(arguments.library)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(ROWS, file, indent=1)


if __name__ == "__main__":
    main()
