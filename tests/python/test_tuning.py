"""Which schedule a call may have and what it may wait for: tuning, building and warm_up, of a call and of the process."""
import os
import subprocess
import sys

import attile
import numpy as np
import pytest

USE = """
import attile, numpy as np, pytest, time
q = np.random.default_rng(3).standard_normal((2, 4, 40, 16)).astype("f4")
def use(**options):
    return attile.attention(q, q, q, **options)
def refused(**options):
    out = np.full_like(q, 7)
    with pytest.raises(attile.errors.EnvironmentError, match="not built yet"):
        use(out=out, **options)
    assert (out == 7).all()
def own(s, b, h, i, j):
    return s - 0.5 * abs(i - j)
"""


def fresh(code, tmp_path):
    """In a process and a cache folder of its own: nothing is built yet."""
    out = subprocess.run([sys.executable, "-c", USE + code], env={**os.environ, "ATTILE_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True,
                         timeout=300)
    assert out.returncode == 0, out.stderr
    return out


@pytest.mark.parametrize("name,values", [("tuning", ("never", "cached", "now")), ("building", ("on_demand", "never", "background"))])
def test_of_the_process(name, values):
    get, put = getattr(attile, f"get_{name}"), getattr(attile, f"set_{name}")
    before = get()
    assert before == {"tuning": "cached", "building": "on_demand"}[name]
    try:
        for value in values:
            put(value)
            assert get() == value
        for wrong, kind in (("sometimes", ValueError), (1, TypeError), (None, TypeError)):
            with pytest.raises(kind, match=f"{name}.* but must be ") as caught:
                put(wrong)
            assert isinstance(caught.value, attile.Error) and get() == values[-1]
    finally:
        put(before)


def test_all_values_give_the_same_numbers():
    q = np.random.default_rng(3).standard_normal((2, 4, 40, 16)).astype("f4")
    want = attile.attention(q, q, q, causal=True)
    for options in (dict(tuning="never"), dict(tuning="cached"), dict(building="never"), dict(building="background"), dict(building="on_demand")):
        assert np.abs(attile.attention(q, q, q, causal=True, **options) - want).max() < 1e-5


def test_nothing_is_built_where_it_may_not(tmp_path):
    fresh("""
for options in ({}, dict(score_mod=own)):
    refused(building="never", **options)
    attile.set_building("never")
    refused(**options)
    o = use(building="on_demand", **options)
    assert np.array_equal(use(**options), o)
    attile.set_building("on_demand")
refused(building="never", causal=True)
""", tmp_path)


def test_building_in_the_background(tmp_path):
    fresh("""
for options in ({}, dict(score_mod=own)):
    refused(building="background", **options)
    for _ in range(600):
        try:
            use(building="background", **options)
            break
        except attile.errors.EnvironmentError:
            time.sleep(0.05)
    use(building="never", **options)
""", tmp_path)


def test_an_algorithm_of_ones_own(tmp_path):
    fresh("""
from attile.dsl import *
k = input("k", [batch, kv_head, key, head_dim])
def body(t):
    t.finish(lambda f, l=t.sum("l", dot(input("q", [batch, head, query, head_dim]), k)): f.output("l", l))
algorithm = for_tiles("sums", query).stream(key, body)
attile.set_building("never")
with pytest.raises(attile.errors.EnvironmentError, match="not built yet"):
    algorithm(q=q, k=q)
attile.set_building("on_demand")
l = algorithm(q=q, k=q)
attile.set_building("never")
assert np.array_equal(algorithm(q=q, k=q), l)
""", tmp_path)


def test_warm_up(tmp_path):
    fresh("""
calls = [dict(q=q, k=q, v=q, causal=True), dict(q=q, k=q, v=q, score_mod=own, return_lse=True), dict(q=q, k=q, v=q, softcap=-1.0),
         dict(q=q, k=q, v=q, softcap=5.0, building="never"), dict(q=q, k=q, v=q[:1])]
with pytest.raises(attile.ArgumentError, match="softcap is -1"):  # the first error, after all others were tried
    attile.warm_up(calls)
attile.set_building("never")
use(causal=True), use(score_mod=own, return_lse=True), use(softcap=5.0)
refused(sink=np.zeros(4, "f4"))
out = np.full_like(q, 7)
attile.warm_up([dict(q=q, k=q, v=q, sink=np.zeros(4, "f4"), out=out)])
assert (out == 7).all()
use(sink=np.zeros(4, "f4"))
""", tmp_path)


def test_warm_up_is_refused_what_attention_is():
    q = np.zeros((1, 1, 2, 8), "f4")
    for call, kind in ((dict(q=q, k=q), TypeError), (dict(q=q, k=q, v=q, casual=True), TypeError), (dict(q=q, k=q, v=q, layout="hbnd"), ValueError)):
        with pytest.raises(kind):
            attile.warm_up([call])
    with pytest.raises(ValueError, match='tuning is "always"'):
        attile.warm_up([dict(q=q, k=q, v=q)], tuning="always")
    attile.warm_up([])


def test_a_call_that_tunes(tmp_path):
    """What it found is kept, and later calls take it without another look."""
    fresh("""
import glob, os
def kept():
    return [open(name).read() for name in glob.glob(os.environ["ATTILE_CACHE_DIR"] + "/**/tuned/*.yaml", recursive=True)]
big = np.random.default_rng(3).standard_normal((1, 2, 256, 16)).astype("f4")
want = attile.attention(big, big, big, tuning="never")
assert not kept()
attile.warm_up([dict(q=big, k=big, v=big)], tuning="now")
found = kept()
assert found
for tuning in ("now", "cached"):
    assert np.abs(attile.attention(big, big, big, tuning=tuning, building="never") - want).max() < 1e-5
assert kept() == found
""", tmp_path)
