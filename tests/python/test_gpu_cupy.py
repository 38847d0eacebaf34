"""CuPy arrays."""
import numpy as np
import plain
import pytest

cupy = pytest.importorskip("cupy", reason="CuPy is not installed: the Python package with CuPy")
try:
    cupy.cuda.runtime.getDeviceCount()
except cupy.cuda.runtime.CUDARuntimeError as error:
    pytest.skip(f"no GPU that CuPy sees: the Python package with CuPy ({error})", allow_module_level=True)

import attile  # noqa: E402

RANDOM = np.random.default_rng(5)
ARRAYS = [RANDOM.standard_normal((2, 4, 19, 64)).astype("f4") for _ in range(3)]
Q, K, V = map(cupy.asarray, ARRAYS)


def agree(got, want, tolerance=5e-5):
    assert isinstance(got, cupy.ndarray) and got.shape == want.shape
    assert np.abs(cupy.asnumpy(got).astype("f8") - want).max() < tolerance


def test_results_are_cupy_arrays():
    o, lse = attile.attention(Q, K, V, causal=True, return_lse=True)
    want, want_lse = plain.attention(*ARRAYS, causal=True)
    agree(o, want)
    agree(lse, want_lse)
    half = [x.astype("f2") for x in (Q, K, V)]
    agree(attile.attention(*half), plain.attention(*map(cupy.asnumpy, half))[0], 5e-3)


def test_views_out_and_streams():
    want, _ = plain.attention(*ARRAYS)
    turned = [x.swapaxes(1, 2) for x in (Q, K, V)]
    agree(attile.attention(*turned, layout="bnhd").swapaxes(1, 2), want)
    out = cupy.full_like(Q, cupy.nan)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        assert attile.attention(Q * 1, K, V, out=out) is out
        stream.synchronize()
    agree(out, want)


def test_score_mod():
    slopes = cupy.asarray(2.0 ** -np.arange(1, 5), dtype="f4")
    agree(attile.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s * slopes[h]), plain.attention(*ARRAYS, score_mod=lambda s, b, h, i, j: s * 2.0 ** -(h + 1))[0])
