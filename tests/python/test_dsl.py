"""Algorithms of one's own: states, rules and masks through the objects of the C++ library."""
import attile
import numpy as np
import plain
import pytest
from attile.dsl import (Dim, abs, batch, dot, exp, for_tiles, head, head_dim, index, infinity, input, key, kv_head, length, log, maximum,
                        normalise, query, query_position, scalar, sigmoid, value_dim, where)

RANDOM = np.random.default_rng(11)
B, H, HK, N, M, D = 2, 4, 2, 11, 37, 8
Q, K, V = (RANDOM.standard_normal(shape).astype("f4") for shape in ((B, H, N, D), (B, HK, M, D), (B, HK, M, D)))

q = input("q", [batch, head, query, head_dim])
k = input("k", [batch, kv_head, key, head_dim])
v = input("v", [batch, kv_head, key, value_dim])


def softmax(t, s, more=()):
    m = t.running_max("m", s)
    p = exp(s - m)
    sums = [t.sum("l", p), t.sum("o", dot(p, v))] + [t.sum(name, p * x) for name, x in more]
    t.rescale(sums, lambda a, b: exp(a - b))
    return m, sums


def agree(got, want):
    assert np.abs(got - want).max() < 3e-5


def test_attention_with_entropy():
    def body(t):
        s = dot(q, k) * scalar("scale")
        m, (l, o, e) = softmax(t, s, [("e", s)])

        def finish(f):
            f.output("o", normalise(o, l))
            f.output("entropy", m + log(l) - normalise(e, l))
        t.finish(finish)
    attend = for_tiles("attention_with_entropy", query).stream(key, body)
    o, entropy = attend(q=Q, k=K, v=V, scale=D ** -0.5)
    agree(o, plain.attention(Q, K, V)[0])
    s = np.einsum("bhid,bhjd->bhij", Q.astype("f8"), np.repeat(K.astype("f8"), 2, 1)) * D ** -0.5
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    agree(entropy, -(p * np.log(p)).sum(-1))
    assert entropy.dtype == np.float32 and "running_max" in repr(attend)
    split = attend.run(dict(q=Q, k=K, v=V, scale=D ** -0.5), schedule="{lanes: positions, block: 4, tile_rows: 8, tile_keys: 16, splits: 4}")
    agree(split[0], o)
    agree(split[1], entropy)


def test_masks_tables_and_outputs_of_ones_own():
    table = input("table", [head, Dim("bucket")], outside=-1.5)

    def body(t):
        t.visible((key <= query_position()) | (key % 5 == 0))
        s = dot(q, k) * scalar("scale") + table[head, abs(query_position() - key)]
        m, (l, o) = softmax(t, where(index(key) == 3, -infinity(), s))
        t.finish(lambda f: f.output("o", normalise(o, l)))
    attend = for_tiles("own", query).stream(key, body)
    T = RANDOM.standard_normal((H, 9)).astype("f4")

    def score(s, b, h, i, j):
        far = np.abs(i + M - N - j)
        return -np.inf if j == 3 else s + (T[h, far] if far < 9 else -1.5)
    want, _ = plain.attention(Q, K, V, score_mod=score, mask_mod=lambda b, h, i, j: j <= i + M - N or j % 5 == 0, scale=0.5)
    agree(attend(q=Q, k=K, v=V, table=T, scale=0.5), want)
    out = np.full((B, H, N, D), np.nan, "f2")
    assert attend.run(dict(q=Q, k=K, v=V, table=T, scale=0.5), out={"o": out}) is out
    assert np.abs(out - want).max() < 4e-3


def test_a_rule_without_reference():
    def body(t):
        o = t.sum("o", dot(sigmoid(dot(q, k) * scalar("scale")), v))
        t.finish(lambda f: f.output("o", o))
    got = for_tiles("sigmoid", query).stream(key, body)(q=Q, k=K, v=V, scale=0.25)
    agree(got, plain.attention(Q, K, V, rule="sigmoid", scale=0.25)[0])


def test_used_and_packed_lengths():
    def body(t):
        t.visible(key < length(key))
        m, (l, o) = softmax(t, dot(q, k) * scalar("scale"))
        t.finish(lambda f: f.output("o", normalise(o, l)))
    used = for_tiles("used", query, lengths="used").stream(key, body)
    lens = np.array([5, 30], "i4")
    agree(used(q=Q, k=K, v=V, scale=D ** -0.5, kv_lens=lens), plain.attention(Q, K, V, kv_lens=lens)[0])
    packed = for_tiles("packed", query, lengths="packed").stream(key, body)
    bounds = dict(cu_seqlens_q=np.array([0, 4, 11], "i4"), cu_seqlens_k=np.array([0, 20, 37], "i4"))
    agree(packed(q=Q[:1], k=K[:1], v=V[:1], scale=D ** -0.5, **bounds), plain.attention(Q[:1], K[:1], V[:1], **bounds)[0])


def test_top_k():
    def body(t):
        values, indices = t.top_k("top", dot(q, k), 3)
        m = t.running_max("m", dot(q, k))

        def finish(f):
            f.output("values", values)
            f.output("indices", indices)
            f.output("top", maximum(m, m))
        t.finish(finish)
    values, indices, top = for_tiles("select", query).stream(key, body)(q=Q, k=K)
    s = np.einsum("bhid,bhjd->bhij", Q.astype("f8"), np.repeat(K.astype("f8"), 2, 1))
    assert np.array_equal(indices, np.argsort(-s, axis=-1, kind="stable")[..., :3]) and indices.dtype == np.int32
    agree(values, -np.sort(-s, axis=-1)[..., :3])
    agree(top, s.max(-1))


def test_a_wrong_rule_is_refused_with_a_counter_example():
    def body(t):
        s = dot(q, k)
        m = t.running_max("m", s)
        l, o = t.sum("l", exp(s - m)), t.sum("o", dot(exp(s - m), v))
        t.rescale([l, o], lambda a, b: exp(b - a))
        t.finish(lambda f: f.output("o", normalise(o, l)))
    with pytest.raises(attile.ArgumentError, match="rescale"):
        for_tiles("wrong", query).stream(key, body)


def test_errors_inside_bodies():
    class Mine(Exception):
        pass

    def raises(t):
        raise Mine
    with pytest.raises(Mine):
        for_tiles("raises", query).stream(key, raises)
    kept = []
    with pytest.raises(attile.ArgumentError, match="no output"):
        for_tiles("empty", query).stream(key, kept.append)
    with pytest.raises(attile.ArgumentError, match="this body is over"):
        kept[0].visible(key < 3)
    with pytest.raises(TypeError, match="must be an expression or a number"):
        exp("x")
    with pytest.raises(attile.ArgumentError, match="is a boolean, but a number is needed"):
        exp(key < 3)
    with pytest.raises(attile.TracingError, match="need the truth"):
        bool(key < 3)
    with pytest.raises(attile.ArgumentError):
        input("t", [head])(head, head)
    for wrong in (3, head, [3], None):
        with pytest.raises(TypeError):
            input("t", wrong)
    with pytest.raises(TypeError, match="a dim is of type int"):
        dot(q, k, 3)


def test_wrong_calls():
    def body(t):
        o = t.sum("o", dot(dot(q, k) * scalar("scale"), v))
        t.finish(lambda f: f.output("o", o))
    linear = for_tiles("linear", query).stream(key, body)
    agree(linear(q=Q, k=K, v=V, scale=1), plain.attention(Q, K, V, rule="linear", scale=1)[0])
    for arguments, words in ((dict(q=Q, k=K, v=V), "number 'scale' is missing"), (dict(q=Q, k=K, scale=1), "the tensor 'v'"),
                             (dict(q=Q, k=K, v=V, scale=1, w=V), "there is no tensor 'w'"), ({}, "no tensor is given"),
                             (dict(q=Q, k=K[..., :3], v=V, scale=1), "head_dim")):
        with pytest.raises(ValueError, match=words):
            linear(**arguments)
    with pytest.raises(TypeError, match="'scale' is of type str"):
        linear(q=Q, k=K, v=V, scale="1")
    with pytest.raises(ValueError, match="there is no output 'p'"):
        linear.run(dict(q=Q, k=K, v=V, scale=1), out={"p": V})


def sums_of_products():
    def body(t):
        total = t.sum("sum", dot(q, k))
        t.finish(lambda f: f.output("total", total))
    return for_tiles("sums_of_products", query).stream(key, body)


def test_what_an_output_is_given_is_checked():
    algorithm = sums_of_products()
    fresh = np.zeros((B, H, N), "f4")
    agree(algorithm.run({"q": Q, "k": K}, out={"total": fresh}) / 10, algorithm(q=Q, k=K) / 10)
    fresh.flags.writeable = False
    with pytest.raises(attile.ArgumentError, match="'total' is read-only"):
        algorithm.run({"q": Q, "k": K}, out={"total": fresh})
    with pytest.raises(attile.ArgumentTypeError, match="arguments"):
        algorithm.run({1: Q})


def test_a_missing_tensor_is_named():
    with pytest.raises(attile.ArgumentError, match="the tensor 'k' is not given"):
        sums_of_products()(q=Q)
