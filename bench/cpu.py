"""Attile beside PyTorch on the CPU, in one process, alternating; medians, bests, spread and ratios.

    python3 bench/cpu.py --library build/lib/libattile.so [--part forward|masks|decode|overhead] [--threads 1 2] [--json FILE]

Needs PyTorch (the CPU wheel will do). Time is the calling thread's CPU time at one thread (a busy neighbour does not count)
and wall time otherwise. FLOPs are 4·H·N²·D, half of that for causal.
"""
import argparse
import json
import math
import os
import statistics
import sys
import time

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from attile_ctypes import Attile  # noqa: E402

sdpa = torch.nn.functional.scaled_dot_product_attention
rows = []
only = ""   # cases whose name holds this text


def wanted(name):
    return only in name


def alternate(functions, clock, repeats, seconds=2.0):
    """Times of each function, run in turn; the first round warms up and is dropped."""
    times = [[] for _ in functions]
    start = time.perf_counter()
    for round_number in range(repeats + 1):
        for function, seen in zip(functions, times):
            before = clock()
            function()
            elapsed = clock() - before
            if round_number:
                seen.append(elapsed)
        if round_number >= 3 and time.perf_counter() - start > seconds * len(functions):
            break
    return times


def clock_for(threads):
    return time.thread_time if threads == 1 else time.perf_counter


def summary(times):
    return {"best": min(times), "median": statistics.median(times), "spread": (max(times) - min(times)) / statistics.median(times)}


def report(part, name, work, unit, ours, theirs, threads, peer):
    a, b = summary(ours), summary(theirs) if theirs else None
    row = {"part": part, "case": name, "threads": threads, "unit": unit, "attile_best": work / a["best"], "attile_median": work / a["median"],
           "attile_spread": a["spread"]}
    text = f"{name:44s} t{threads}  {work / a['best']:7.1f} / {work / a['median']:7.1f} {unit}"
    if b:
        row.update(peer=peer, peer_best=work / b["best"], peer_median=work / b["median"], peer_spread=b["spread"],
                   ratio_best=b["best"] / a["best"], ratio_median=b["median"] / a["median"])
        text += f"   {peer} {work / b['best']:7.1f} / {work / b['median']:7.1f}   ratio {row['ratio_best']:5.2f} / {row['ratio_median']:5.2f}"
    rows.append(row)
    print(text, flush=True)


def forward(attile, threads, repeats):
    print("forward against scaled_dot_product_attention: best / median GFLOP/s")
    for dtype in (torch.float32, torch.bfloat16):
        for causal in (False, True):
            for head_dim in (64, 128, 72, 80, 96, 100):
                for length in (1024, 4096):
                    heads = 8 if length == 1024 else 2
                    name = f"{str(dtype)[6:]} D{head_dim} N{length} H{heads} {'causal' if causal else 'full'}"
                    if not wanted(name):
                        continue
                    q, k, v = (torch.randn(1, heads, length, head_dim).to(dtype) for _ in range(3))
                    o = torch.empty_like(q)
                    ours = attile.attention(causal=causal).bind(q=q, k=k, v=v, o=o)
                    theirs = lambda: sdpa(q, k, v, is_causal=causal)
                    flops = 4 * heads * length * length * head_dim / (2 if causal else 1)
                    a, b = alternate([ours, theirs], clock_for(threads), repeats)
                    error = (o.float() - theirs().float()).abs().max().item()
                    assert error < (1e-4 if dtype == torch.float32 else 5e-2), error
                    report("forward", name, flops / 1e9, "GFLOP/s", a, b, threads, "torch")


def masks(attile, threads, repeats):
    """Soft cap and document masks against the faster of compiled flex_attention and masked SDPA."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    print("soft cap and documents against the faster of compiled flex_attention and masked SDPA: best / median GFLOP/s of the full square")
    compiled = torch.compile(flex_attention)
    for dtype in (torch.float32, torch.bfloat16):
        length, heads, head_dim = 2048, 4, 64
        q, k, v = (torch.randn(1, heads, length, head_dim).to(dtype) for _ in range(3))
        o = torch.empty_like(q)
        flops = 4 * heads * length * length * head_dim
        peers = {}

        def attempt(label, function):
            try:
                function()
                peers[label] = function
            except Exception as error:  # what a peer cannot do is named, not hidden
                print(f"  {label}: {str(error).splitlines()[0][:120]}")

        cap = 20.0
        attempt("flex", lambda: compiled(q, k, v, score_mod=lambda s, b, h, i, j: cap * torch.tanh(s / cap)))
        attempt("eager", lambda: torch.softmax(cap * torch.tanh(q @ k.transpose(-1, -2) / math.sqrt(head_dim) / cap), -1) @ v)
        faster(attile.attention(softcap=cap).bind(q=q, k=k, v=v, o=o), peers, f"{str(dtype)[6:]} D{head_dim} N{length} soft cap", flops, threads, repeats)

        peers.clear()
        bounds = torch.tensor([0, 90, 370, 441, 801, 1100, 1313, 1790, 2048])   # lengths as texts have them
        documents = (torch.bucketize(torch.arange(length), bounds, right=True) - 1).to(torch.int32)
        allowed = documents[:, None] == documents[None, :]
        mask = create_block_mask(lambda b, h, i, j: documents[i] == documents[j], None, None, length, length, device="cpu")
        attempt("flex", lambda: compiled(q, k, v, block_mask=mask))
        attempt("masked sdpa", lambda: sdpa(q, k, v, attn_mask=allowed))
        ours = attile.attention().bind(q=q, k=k, v=v, o=o, doc_ids=documents[None, :].contiguous())
        faster(ours, peers, f"{str(dtype)[6:]} D{head_dim} N{length} 8 documents", flops, threads, repeats)


def faster(ours, peers, name, flops, threads, repeats):
    labels = list(peers)
    times = alternate([ours] + [peers[label] for label in labels], clock_for(threads), repeats)
    best = min(range(1, len(times)), key=lambda i: statistics.median(times[i])) if labels else None
    report("masks", name, flops / 1e9, "GFLOP/s", times[0], times[best] if best else None, threads, labels[best - 1] if best else None)


def decode(attile, threads, repeats):
    """One query token, 32 query heads on 8 kv heads, 4096 keys, over 512 MB of K and V in turn."""
    print("decode: best / median GB/s of K and V, beside a plain read of the same memory")
    for dtype in (torch.float32, torch.bfloat16):
        for head_dim in (64, 128):
            length, heads, kv_heads = 4096, 32, 8
            name = f"{str(dtype)[6:]} D{head_dim} decode"
            if not wanted(name):
                continue
            element = torch.finfo(dtype).bits // 8
            pair_bytes = 2 * kv_heads * length * head_dim * element
            copies = max(2, (512 << 20) // pair_bytes)
            k = torch.randn(copies, kv_heads, length, head_dim).to(dtype)
            v = torch.randn(copies, kv_heads, length, head_dim).to(dtype)
            q = torch.randn(1, heads, 1, head_dim).to(dtype)
            o = torch.empty_like(q)
            attention = attile.attention()
            calls = [attention.bind(q=q, k=k[i:i + 1], v=v[i:i + 1], o=o) for i in range(copies)]
            turn = [0, copies // 3, 2 * copies // 3]   # apart, so that none finds in the cache what another has just read

            def next_of(which):
                turn[which] = (turn[which] + 1) % copies
                return turn[which]

            ours = lambda: calls[next_of(0)]()
            def read():
                i = next_of(1)
                return k[i].view(torch.int32).sum(dtype=torch.int32), v[i].view(torch.int32).sum(dtype=torch.int32)
            def theirs():
                i = next_of(2)
                return sdpa(q, k[i:i + 1], v[i:i + 1], enable_gqa=True)
            a, b, c = alternate([ours, read, theirs], clock_for(threads), 40 * repeats, seconds=4.0)
            report("decode", name, pair_bytes / 1e9, "GB/s", a, b, threads, "sum")
            report("decode", name, pair_bytes / 1e9, "GB/s", a, c, threads, "torch")


def overhead(attile, threads, repeats):
    print("a call on one key: best / median µs")
    q, k, v = (torch.randn(1, 1, 1, 64) for _ in range(3))
    o = torch.empty_like(q)
    call = attile.attention().bind(q=q, k=k, v=v, o=o)
    def many():
        for _ in range(1000):
            call()
    (a,) = alternate([many], time.perf_counter, repeats)
    s = summary(a)
    rows.append({"part": "overhead", "threads": threads, "unit": "us", "best": s["best"] * 1e3, "median": s["median"] * 1e3})
    print(f"  {s['best'] * 1e3:.2f} / {s['median'] * 1e3:.2f} µs, the call from Python included", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--part", choices=["forward", "masks", "decode", "overhead"], action="append")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", default="", help="forward and decode: only cases whose name holds this text")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    global only
    only = arguments.only
    attile = Attile(arguments.library)
    torch.manual_seed(0)
    parts = {"forward": forward, "masks": masks, "decode": decode, "overhead": overhead}
    print(f"attile {attile.version()}, torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        attile.set_threads(threads)
        for part in arguments.part or parts:
            parts[part](attile, threads, arguments.repeats)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"attile": attile.version(), "torch": torch.__version__, "command": " ".join(sys.argv), "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
