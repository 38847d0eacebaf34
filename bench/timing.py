"""How long calls take, for benchmarks with PyTorch: run in turn in one process, so that drift meets all alike."""
import statistics
import time

import torch


def seconds(device, call, inner):
    """Of one call, as the mean of `inner`: by events of the GPU, or by the host's clock for "cpu"."""
    if device == "cpu":
        begin = time.perf_counter()
        for _ in range(inner):
            call()
        return (time.perf_counter() - begin) / inner
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(inner):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / inner * 1e-3


def medians(device, calls, repeats=9, inner=3):
    """Seconds of each call; two rounds warm up."""
    for call in [*calls, *calls]:
        call()
    if device != "cpu":
        torch.cuda.synchronize()
    times = [[seconds(device, call, inner) for call in calls] for _ in range(repeats)]
    return [statistics.median(seen) for seen in zip(*times)]


def host_medians(calls, repeats, inner):
    """Seconds that the host spends in each call of the dict `calls`, with the GPU idle before each turn; by name (median, best)."""
    times = {name: [] for name in calls}
    for turn in range(repeats + 2):  # two warm up
        for name, call in calls.items():
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            took = seconds("cpu", call, inner)
            if turn >= 2:
                times[name].append(took)
    return {name: (statistics.median(seen), min(seen)) for name, seen in times.items()}
