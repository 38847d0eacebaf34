"""JAX arrays, on the CPU and on a GPU where JAX has one."""
import numpy as np
import plain
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: the Python package with JAX")

import attile  # noqa: E402
import jax.numpy as jnp  # noqa: E402

RANDOM = np.random.default_rng(5)
ARRAYS = [RANDOM.standard_normal((2, 4, 9, 8)).astype("f4") for _ in range(3)]
Q, K, V = map(jnp.asarray, ARRAYS)


def agree(got, want, tolerance=3e-5):
    assert isinstance(got, jax.Array) and got.shape == want.shape
    assert np.abs(np.asarray(got, dtype="f8") - want).max() < tolerance


def test_results_are_jax_arrays():
    o, lse = attile.attention(Q, K, V, causal=True, return_lse=True)
    want, want_lse = plain.attention(*ARRAYS, causal=True)
    agree(o, want)
    agree(lse, want_lse)
    assert o.devices() == Q.devices()
    agree(o + 1, want + 1)
    for dtype, tolerance in ((jnp.bfloat16, 5e-2), (jnp.float16, 5e-3)):
        small = [x.astype(dtype) for x in (Q, K, V)]
        o = attile.attention(*small)
        assert o.dtype == dtype
        agree(o, plain.attention(*(np.asarray(x, dtype="f4") for x in small))[0], tolerance)


def test_inputs_that_are_still_computed():
    for _ in range(20):
        q = jnp.matmul(jnp.sin(Q * 3), jnp.eye(8), precision="highest")
        agree(attile.attention(q, K, V), plain.attention(np.sin(ARRAYS[0] * 3), *ARRAYS[1:])[0])


def test_options_and_layout():
    mask = RANDOM.random((2, 1, 9, 9)) > 0.4
    agree(attile.attention(Q, K, V, mask=jnp.asarray(mask)), plain.attention(*ARRAYS, mask=mask)[0])
    turned = [x.swapaxes(1, 2) for x in (Q, K, V)]
    agree(attile.attention(*turned, layout="bnhd"), plain.attention(*ARRAYS)[0].swapaxes(1, 2))


slopes = jnp.asarray(2.0 ** -np.arange(1, 5), dtype=jnp.float32)


def test_score_mod():
    table = jnp.asarray(RANDOM.standard_normal(20).astype("f4"))
    got = attile.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s * slopes[h] + table[i - j + 10])
    agree(got, plain.attention(*ARRAYS, score_mod=lambda s, b, h, i, j: s * 2.0 ** -(h + 1) + float(table[i - j + 10]))[0])


def test_errors():
    with pytest.raises(ValueError, match="'out' is read-only|cannot be written to"):
        attile.attention(Q, K, V, out=jnp.zeros_like(Q))
    with pytest.raises((attile.Error, jax.errors.ConcretizationTypeError)):
        jax.jit(lambda q: attile.attention(q, K, V))(Q)
    with pytest.raises(ValueError, match="'q' is int8"):
        attile.attention(Q.astype(jnp.int8), K, V)


def test_an_algorithm_does_not_write_into_jax_arrays():
    from attile import dsl
    q = dsl.input("q", [dsl.batch, dsl.head, dsl.query, dsl.head_dim])
    k = dsl.input("k", [dsl.batch, dsl.head, dsl.key, dsl.head_dim])

    def body(t):
        total = t.sum("sum", dsl.dot(q, k))
        t.finish(lambda f: f.output("total", total))
    algorithm = dsl.for_tiles("sums", dsl.query).stream(dsl.key, body)
    given = jnp.zeros(Q.shape[:3])
    with pytest.raises(attile.ArgumentError, match="cannot be written to"):
        algorithm.run({"q": Q, "k": K}, out={"total": given})
    assert (given == 0).all()


def test_arrays_without_dims_in_a_score():
    factor, flag = jnp.float32(2.0), jnp.array(True)
    got = attile.attention(Q, K, V, score_mod=lambda s, b, h, i, j: factor * s * factor, mask_mod=lambda b, h, i, j: (i >= j) | flag)
    agree(got, plain.attention(*ARRAYS, score_mod=lambda s, b, h, i, j: 4 * s)[0])
