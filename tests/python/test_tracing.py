"""score_mod and mask_mod as ordinary functions over NumPy: what is traced, what is refused and where."""
import collections
import functools
import inspect

import attile
import numpy as np
import plain
import pytest
from attile import captures, dsl
from score_cases import N, Q, K, V, slopes, table, alibi, soft_cap, relative, document, SCORES, MASKS, agree, named


@pytest.mark.parametrize("function", SCORES, ids=named)
def test_score(function):
    agree(attile.attention(Q, K, V, score_mod=function), plain.attention(Q, K, V, score_mod=function)[0])


@pytest.mark.parametrize("function", MASKS, ids=named)
def test_mask(function):
    agree(attile.attention(Q, K, V, mask_mod=function), plain.attention(Q, K, V, mask_mod=function)[0])


def test_beside_ready_options():
    want, want_lse = plain.attention(Q, K, V, score_mod=alibi, mask_mod=document, causal=True, softcap=2.0)
    o, lse = attile.attention(Q, K, V, score_mod=alibi, mask_mod=document, causal=True, softcap=2.0, return_lse=True)
    agree(o, want)
    agree(lse, want_lse)
    turned = [x.swapaxes(1, 2) for x in (Q, K, V)]
    agree(attile.attention(*turned, score_mod=alibi, mask_mod=document, causal=True, softcap=2.0, layout="bnhd").swapaxes(1, 2), want)


def test_numpy_and_dsl_functions_are_the_same():
    got = attile.attention(Q, K, V, score_mod=lambda s, b, h, i, j: dsl.where(i >= j, 3.0 * dsl.tanh(s / 3.0), -dsl.infinity()))
    agree(got, plain.attention(Q, K, V, score_mod=soft_cap, causal=True)[0])


wide = slopes.astype("f8")


class Model:
    def __init__(self, bias):
        self.bias = bias

    def score(self, score, b, h, i, j):
        return score + attile.captured(self.bias)[h, i - j + N]


def test_arrays_are_read_at_each_call():
    model = Model(table.copy())
    agree(attile.attention(Q, K, V, score_mod=model.score), plain.attention(Q, K, V, score_mod=relative)[0])
    model.bias = table * 2
    want = plain.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s + 2 * table[h, i - j + N])[0]
    agree(attile.attention(Q, K, V, score_mod=model.score), want)

    bias = table.copy()
    number = np.array(1.0, "f4")

    def score(s, b, h, i, j):
        return s + number * bias[h, i - j + N]
    agree(attile.attention(Q, K, V, score_mod=score), plain.attention(Q, K, V, score_mod=relative)[0])
    bias *= 2
    agree(attile.attention(Q, K, V, score_mod=score), want)
    bias = table
    number[()] = 2
    agree(attile.attention(Q, K, V, score_mod=score), want)


hidden = Model(slopes)


def branches(score, b, h, i, j):
    if i > j:  # refused here
        return score
    return -score


def chained(score, b, h, i, j):
    return score * (0 < i < j)  # refused here


def whole_array(score, b, h, i, j):
    return score + dsl.exp(table)  # refused here


def unknown_function(score, b, h, i, j):
    return np.arctan(score)  # refused here


def a_condition_as_number(score, b, h, i, j):
    return score + (i > j)  # refused here


def a_real_index(score, b, h, i, j):
    return score + slopes[score]  # refused here


def too_many_indices(score, b, h, i, j):
    return score + slopes[h, i]  # refused here


def too_few_indices(score, b, h, i, j):
    return score + table[h]  # refused here


def beyond_the_end(score, b, h, i, j):
    return score + table[4, i]  # refused here


def a_slice(score, b, h, i, j):
    return score + table[h, 2:]  # refused here


def a_loop(score, b, h, i, j):
    for _ in range(i):  # refused here
        score = score + 1
    return score


def inner(value):
    return int(value)  # refused here


def in_a_helper(score, b, h, i, j):
    return score + inner(i)


def unknown_attribute(score, b, h, i, j):
    return score.magic()  # refused here


def fewer_arguments(score, b):  # refused here
    return score


def returns_nothing(score, b, h, i, j):  # refused here
    pass


def returns_a_condition(score, b, h, i, j):  # refused here
    return i > j


def hidden_array(score, b, h, i, j):
    return score + hidden.bias[h]  # refused here


def wide_numbers(score, b, h, i, j):
    return score + wide[h]  # refused here


def negative_divisor(score, b, h, i, j):
    return score + i // -3  # refused here


REFUSED = [(branches, "`if`"), (chained, "`if`"), (whole_array, "exp"), (unknown_function, "arctan() has no counterpart"),
           (a_condition_as_number, "is a boolean, but a number is needed"), (a_real_index, "indices are integers"),
           (too_many_indices, "2 indices for an array of 1 dims"), (too_few_indices, "indices"), (a_slice, "a slice"), (beyond_the_end, "the index 4 is outside a dim of 4"),
           (a_loop, "is needed as a number"), (in_a_helper, "is needed as a number"), (unknown_attribute, "no 'magic'"),
           (fewer_arguments, "positional arguments"), (returns_nothing, "must return a score"), (returns_a_condition, "must return a score"),
           (hidden_array, "attile.captured(array)"), (wide_numbers, "float64"), (negative_divisor, "not positive")]


@pytest.mark.parametrize("function,words", REFUSED, ids=[f.__name__ for f, _ in REFUSED])
def test_refused_with_the_line(function, words):
    with pytest.raises(attile.TracingError) as caught:
        attile.attention(Q, K, V, score_mod=function)
    lines, first = inspect.getsourcelines(inner if function is in_a_helper else function)
    line = first + next(i for i, text in enumerate(lines) if "refused here" in text)
    assert f"{__file__}:{line}: " in str(caught.value)
    assert words in str(caught.value)


def test_constant_indices_count_from_the_end():
    agree(attile.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s + table[-1, i] + table[0, -2]),
          plain.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s + table[-1, i] + table[0, -2])[0])


def test_inversion():
    agree(attile.attention(Q, K, V, mask_mod=lambda b, h, i, j: ~(i == j)), plain.attention(Q, K, V, mask_mod=lambda b, h, i, j: i != j)[0])


def test_masks_return_conditions():
    for mask, words in ((lambda b, h, i, j: i - j, "must return a condition"), (lambda b, h, i, j: 1, "must return a condition")):
        with pytest.raises(attile.TracingError, match=words):
            attile.attention(Q, K, V, mask_mod=mask)
    with pytest.raises(attile.TracingError, match="must be a function"):
        attile.attention(Q, K, V, mask_mod=3)


def test_captured_arrays_are_checked():
    short = np.zeros((2, 3, 4, 5, 6, 7, 1), "f4")
    with pytest.raises(attile.Error):
        attile.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s + short[b, h, i, j, 0, 0, 0])


def test_outside_of_an_array_reads_as_zero():
    few = np.array([5.0, 6.0, 7.0], "f4")
    got = attile.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s + few[j - i])
    agree(got, plain.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s + (few[j - i] if 0 <= j - i < 3 else 0))[0])


def test_a_failed_trace_leaves_nothing_behind():
    with pytest.raises(attile.TracingError):
        attile.attention(Q, K, V, score_mod=branches)
    agree(attile.attention(Q, K, V, score_mod=alibi), plain.attention(Q, K, V, score_mod=alibi)[0])
    assert getattr(captures.active, "trace", None) is None


def test_values_that_are_used_several_times():
    def score(s, b, h, i, j):
        for _ in range(64):
            s = s * 0.5 + s * s * 0.01
        return s

    def mask(b, h, i, j):
        for _ in range(64):
            i = dsl.minimum(i, (i + i) % 7 + j)
        return i >= 0
    agree(attile.attention(Q, K, V, score_mod=score, mask_mod=mask), plain.attention(Q, K, V, score_mod=score)[0])


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 20, 33, 0.5, 2.5])
@pytest.mark.parametrize("base", [lambda s: abs(s), lambda s: s], ids=["positive", "any"])
def test_powers_of_a_score(base, exponent):
    def power(s, b, h, i, j):
        value = (base(s) / 8) ** exponent
        return value if exponent >= 0 else np.minimum(np.maximum(value, -50), 50)
    if exponent != int(exponent):
        base = abs
    agree(attile.attention(Q, K, V, score_mod=power), plain.attention(Q, K, V, score_mod=power)[0])


def test_powers_of_integers():
    """Small ones are integers; of the others no product wraps around: (3 j + 1) ** 20 is beyond 64 bits from j = 3 on."""
    for exponent, kind in ((0, "integer"), (4, "integer"), (4.0, "integer"), (5, "real"), (-1, "real"), (0.5, "real")):
        assert (dsl.index(dsl.key) ** exponent).kind == kind, exponent
    for exponent in (4, 5, 20, -3, -20):
        def power(s, b, h, i, j):
            return s * ((3 * j + 1) ** exponent / 55.0 ** exponent)

        def want(s, b, h, i, j):
            return s * ((3 * np.asarray(j, "f8") + 1) / 55) ** exponent
        # A negative power grows as j falls: of the later keys alone.
        late = {"mask_mod": lambda b, h, i, j: j >= 12} if exponent < 0 else {}
        agree(attile.attention(Q, K, V, score_mod=power, **late), plain.attention(Q, K, V, score_mod=want, **late)[0])


@pytest.mark.parametrize("base", [-1, -2.0, 0, 2, 0.5])
def test_powers_with_traced_exponents(base):
    def score(s, b, h, i, j):
        return s + base ** h + (base + 0.0) ** (h * 1.0) + (h - 1) ** h + (h - 1.0) ** (h * 1.0)

    def want(s, b, h, i, j):
        h = np.asarray(h, "f8")
        return s + 2 * float(base) ** h + 2 * (h - 1) ** h
    agree(attile.attention(Q, K, V, score_mod=score), plain.attention(Q, K, V, score_mod=want)[0])


def test_exclusive_or_is_of_conditions():
    for function in (lambda b, h, i, j: (i ^ j) == 0, lambda b, h, i, j: (i ^ 1) == 0):
        with pytest.raises(attile.TracingError, match=r"test_tracing\.py:\d+: .*is a number, not a boolean"):
            attile.attention(Q, K, V, mask_mod=function)

    def mask(b, h, i, j):
        return (i >= j) ^ (j > 100)
    agree(attile.attention(Q, K, V, mask_mod=mask), plain.attention(Q, K, V, mask_mod=mask)[0])


def test_a_mask_beside_a_trace_is_refused():
    traced = attile.trace(alibi)
    with pytest.raises(attile.ArgumentError, match="trace both"):
        attile.attention(Q, K, V, score_mod=traced, mask_mod=document)


@pytest.mark.parametrize("kind", [int, np.int32, np.int64, np.uint8])
def test_integers_as_indices(kind):
    last = table.shape[1] - 1
    want = plain.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s + table[h, np.full_like(h, last)])[0]
    agree(attile.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s + table[h, kind(last)]), want)
    if kind is not np.uint8:
        agree(attile.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s + table[h, kind(-1)]), want)
    with pytest.raises(attile.TracingError, match="outside a dim"):
        attile.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s + table[h, kind(last + 1)])


def test_a_score_that_does_not_use_the_score():
    infinite = Q.copy()
    infinite[0, 0, 0, 0] = np.inf
    for function in (lambda s, b, h, i, j: slopes[h] * j, lambda s, b, h, i, j: 1.0, lambda s, b, h, i, j: 0, lambda s, b, h, i, j: i - j):
        want = plain.attention(Q, K, V, score_mod=lambda s, b, h, i, j: 0 * s + function(s, b, h, i, j))[0]
        agree(attile.attention(infinite, K, V, score_mod=function), want)


def test_arrays_without_dims():
    flag, count = np.array(True), np.array(3)
    for value in (True, False):
        flag[...] = value
        want = plain.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s + 3 * j, mask_mod=lambda b, h, i, j: value | (i >= j))[0]
        agree(attile.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s + count * j, mask_mod=lambda b, h, i, j: flag | (i >= j)), want)
    factor = np.array(2.0, "f4")

    def score(s, b, h, i, j):
        return s * float(factor)
    for value in (2.0, 3.0):
        factor[...] = value
        agree(attile.attention(Q, K, V, score_mod=score), plain.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s * value)[0])


Pair = collections.namedtuple("Pair", "bias factor")


def test_arrays_in_partials_defaults_and_tuples():
    def with_bias(bias, s, b, h, i, j, *, factor=1):
        return s + factor * bias[h, i - j + N]

    def with_default(s, b, h, i, j, *, bias=table):
        return s + bias[h, i - j + N]
    pair = Pair(table, 1)
    want = plain.attention(Q, K, V, score_mod=relative)[0]
    for function in (functools.partial(with_bias, table), with_default, lambda s, b, h, i, j: s + pair.factor * pair.bias[h, i - j + N],
                     lambda s, b, h, i, j: functools.partial(with_bias, table)(s, b, h, i, j)):
        agree(attile.attention(Q, K, V, score_mod=function), want)


def test_traces_that_nobody_holds_are_forgotten(monkeypatch):
    monkeypatch.setattr(attile.tracing, "_MOST_HANDLES", 8)
    kept = attile.trace(alibi)
    same = {attile.trace(alibi).handle for _ in range(3)}
    assert same == {kept.handle}
    for factor in range(30):
        attile.trace(lambda s, b, h, i, j: s * factor)
    known = attile.tracing.Traced._known
    assert kept.handle in known and len(known) <= 9 + len(attile.tracing.Traced._alive)
    with pytest.raises(attile.ArgumentError, match="forgotten"):
        attile.tracing.Traced.again(max(known) - 20, [])


def test_traces_that_are_made_again_are_not_forgotten(monkeypatch):
    monkeypatch.setattr(attile.tracing, "_MOST_HANDLES", 8)
    monkeypatch.setattr(attile.tracing, "_traces", {})
    handle = attile.trace(alibi).handle
    for factor in range(30):
        attile.trace(lambda s, b, h, i, j: s * factor)
        assert attile.trace(alibi).handle == handle
