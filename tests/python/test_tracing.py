"""score_mod and mask_mod as ordinary functions over NumPy: what is traced, what is refused and where."""
import functools
import inspect

import attile
import numpy as np
import plain
import pytest
from attile import captures, dsl, tracing
from attile.dsl import infinity, tanh, where

RANDOM = np.random.default_rng(7)
B, H, N, D = 2, 4, 19, 8
Q, K, V = (RANDOM.standard_normal((B, H, N, D)).astype("f4") for _ in range(3))

slopes = 2.0 ** -np.arange(1, H + 1, dtype="f4")
table = RANDOM.standard_normal((H, 2 * N)).astype("f4")
documents = np.repeat(np.array([[0, 1, 2], [4, 5, 5]], "i8"), (6, 6, 7), axis=1)
prefix = np.array([3, 8], "i4")
allowed = RANDOM.random((B, H, N, N)) > 0.4


def alibi(score, b, h, i, j):
    return score - slopes[h] * (i - j)


def soft_cap(score, b, h, i, j):
    return 3.0 * np.tanh(score / 3.0)


def relative(score, b, h, i, j):
    return score + table[h, i - j + N]


def helper(score, h):
    return score * slopes[h]


def through_a_helper(score, b, h, i, j):
    return helper(score, h) + 1


def many_functions(score, b, h, i, j):
    far = np.minimum(np.abs(i - j), 5) + np.maximum(i, j) % 3 + (i + 2 * j) // 4
    return np.where((i >= j) & (j != 2) | (b != h), score ** 2 - np.exp(-far / 7), -score) + np.exp2(score / 8) + np.sqrt(far + 1.0)


def bool_table(b, h, i, j):
    return allowed[b, h, i, j]


def document(b, h, i, j):
    return documents[b, i] == documents[b, j]


def prefix_lm(b, h, i, j):
    return (j < prefix[b]) | (i >= j)


def step_by_step(b, h, i, j):
    of_sequence = documents[b]
    return of_sequence[i] == of_sequence[j]


SCORES = [alibi, soft_cap, relative, through_a_helper, many_functions, functools.partial(lambda c, s, b, h, i, j: s + c * i, 0.125)]
def numpy_numbers(score, b, h, i, j):
    return np.float32(0.5) * score + np.int64(3) - score / np.float64(4) + (np.bool_(True) & (i > j)).astype("f4")


SCORES.append(numpy_numbers)
MASKS = [bool_table, document, prefix_lm, step_by_step, lambda b, h, i, j: i - j <= 4, lambda b, h, i, j: True,
         lambda b, h, i, j: (i // 4) == (j // 4), lambda b, h, i, j: (i - j) % 3 == 0, lambda b, h, i, j: (i >= j) ^ (j == 3)]


def agree(got, want):
    assert np.abs(got - want).max() < 3e-5


def named(function):
    return getattr(function, "__name__", "partial") + f"_{inspect.getsourcelines(getattr(function, 'func', function))[1]}"


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


def test_a_function_is_traced_once(monkeypatch):
    calls = []

    def counted(function, *arguments):
        calls.append(factor_of(function))
        return call(function, *arguments)

    def factor_of(function):
        return function.__closure__[0].cell_contents
    call = tracing._call
    monkeypatch.setattr(tracing, "_call", counted)

    def make(factor):
        def score(s, b, h, i, j):
            return s * factor - slopes[h]
        return score
    score = make(2)
    for _ in range(3):
        attile.attention(Q, K, V, score_mod=score)
        attile.attention(Q, K, V, score_mod=make(2))  # the same code and the same variables
    assert calls == [2]
    attile.attention(Q, K, V, score_mod=make(3))
    assert calls == [2, 3]
    attile.attention(Q, K, V, score_mod=score)
    assert calls == [2, 3]


def from_dsl(score, b, h, i, j):
    return where(i >= j, tanh(score), -infinity()) + attile.captured(slopes)[h]


@pytest.mark.parametrize("function", [*SCORES, from_dsl], ids=named)
def test_every_plain_function_is_traced_once(function, monkeypatch):
    first = attile.attention(Q, K, V, score_mod=function)
    monkeypatch.setattr(tracing, "_call", None)
    assert np.array_equal(first, attile.attention(Q, K, V, score_mod=function))


def test_another_array_of_the_same_kind_is_read_without_a_trace(monkeypatch):
    def make(bias):
        return lambda s, b, h, i, j: s + bias[h, i - j + N]
    agree(attile.attention(Q, K, V, score_mod=make(table)), plain.attention(Q, K, V, score_mod=make(table))[0])
    monkeypatch.setattr(tracing, "_call", None)
    for bias in (table * 2, table[::-1], np.asfortranarray(table)):
        agree(attile.attention(Q, K, V, score_mod=make(bias)), plain.attention(Q, K, V, score_mod=make(bias))[0])
    monkeypatch.undo()
    longer = np.concatenate([table, table], 1)
    agree(attile.attention(Q, K, V, score_mod=make(longer)), plain.attention(Q, K, V, score_mod=make(longer))[0])


def test_what_depends_on_the_values_of_an_array_is_traced_again():
    sizes = np.array([1.0, 2.0], "f4")

    def score(s, b, h, i, j):
        return s * float(sizes[1]) * sizes.max()
    for scale in (2.0, 3.0):
        sizes[1] = scale
        agree(attile.attention(Q, K, V, score_mod=score), plain.attention(Q, K, V, score_mod=lambda s, *_: s * scale ** 2)[0])


factor, zero, abs_of_score = 2.0, 0.0, -1.0


class Settings:
    factor = 2.0


def scaled(score):
    return score * factor


def with_default(score, b, h, i, j, by=2.0, *, more=1.0):
    return score * by * more


@functools.lru_cache(maxsize=None)
def remembered():
    return factor


def changes():
    """Functions, each with what changes something that it reaches. A trace of before is wrong after it."""
    cell, held, table_of, one_more = 2.0, [2.0, (1.0,)], {"factor": 2.0}, np.float32(3)
    get = table_of.get

    def closure(s, b, h, i, j):
        return s * cell

    def change_closure():
        nonlocal cell
        cell = 3.0

    def change_global(name, value):
        return lambda: globals().update({name: value})

    def other(s, b, h, i, j):
        return s * 5.0

    def numpy_number(s, b, h, i, j):
        return s + (i * 2) // one_more

    def change_numpy_number():
        nonlocal one_more
        one_more = np.float32(2.5)

    def recoded(s, b, h, i, j):
        return s * 2.0
    named = functools.partial(lambda s, b, h, i, j, x, y: s * x - y, x=2.0, y=1.0)
    array = table[:, :N].copy()

    def reads(s, b, h, i, j):
        return s + array[h, i]

    def change_array():
        nonlocal array
        array = np.ones((H, N), "i4")
    shared = np.ones(6, "f4")

    def counts(s, b, h, i, j):
        return s * shared.shape[0]

    def reshape():
        nonlocal shared
        shared = shared.reshape(2, 3)
    return {
        "a variable of the closure": (closure, change_closure),
        "a global": (lambda s, b, h, i, j: s * factor, change_global("factor", 3.0)),
        "a global of a helper": (lambda s, b, h, i, j: scaled(s), change_global("factor", 3.0)),
        "a helper": (lambda s, b, h, i, j: scaled(s), change_global("scaled", lambda s: s * 7.0)),
        "a default": (with_default, lambda: setattr(with_default, "__defaults__", (3.0,))),
        "a default by name": (with_default, lambda: with_default.__kwdefaults__.update(more=3.0)),
        "the code": (recoded, lambda: setattr(recoded, "__code__", other.__code__)),
        "an attribute of a class": (lambda s, b, h, i, j: s * Settings.factor, lambda: setattr(Settings, "factor", 3.0)),
        "an item of a list": (lambda s, b, h, i, j: s * held[0] + held[1][0], lambda: held.__setitem__(1, (2.0,))),
        "an item of a dict": (lambda s, b, h, i, j: s * table_of["factor"], lambda: table_of.update(factor=3.0)),
        "behind a bound method": (lambda s, b, h, i, j: s * get("factor"), lambda: table_of.update(factor=3.0)),
        "behind a cache": (lambda s, b, h, i, j: s * remembered(), lambda: (change_global("factor", 3.0)(), remembered.cache_clear())),
        "names of a partial": (named, lambda: (named.keywords.clear(), named.keywords.update(y=2.0, x=1.0))),
        "the sign of zero": (lambda s, b, h, i, j: where(s * 0.0 + 1 / (zero + 0 * s) > 0, s, -s), change_global("zero", -0.0)),
        "a number of NumPy's": (numpy_number, change_numpy_number),
        "a builtin, shadowed": (lambda s, b, h, i, j: abs(s), change_global("abs", lambda s: s * 2.0)),
        "another type of array": (reads, change_array),
        "another shape of array": (counts, reshape),
    }


@pytest.mark.parametrize("name", changes())
def test_no_trace_outlives_what_it_rests_on(name):
    before, kept = dict(globals()), (Settings.factor, with_default.__defaults__, dict(with_default.__kwdefaults__))
    function, change = changes()[name]

    def fresh():
        tracing._traces.clear()
        return attile.attention(Q, K, V, score_mod=function)
    try:
        remembered.cache_clear()
        first = fresh()
        assert np.array_equal(attile.attention(Q, K, V, score_mod=function), first)
        change()
        got = attile.attention(Q, K, V, score_mod=function)
        want = fresh()
        assert np.array_equal(got, want, equal_nan=True) and not np.array_equal(got, first)
    finally:
        for key in set(globals()) - set(before):
            del globals()[key]
        globals().update(before)
        Settings.factor, with_default.__defaults__, with_default.__kwdefaults__ = kept


def test_a_trace_is_not_taken_for_another_function_at_its_address():
    def make(k):
        scope = {}
        exec(f"def score(s, b, h, i, j):\n    return s * {k}.0", scope)
        return scope["score"]
    for k in range(2, 40):
        agree(attile.attention(Q, K, V, score_mod=make(k)), plain.attention(Q, K, V, scale=k * D ** -0.5)[0])


def test_functions_that_reach_themselves_and_deep_lists():
    def score(s, b, h, i, j, again=True):
        return score(s * 2, b, h, i, j, False) if again else s
    agree(attile.attention(Q, K, V, score_mod=score), plain.attention(Q, K, V, scale=2 * D ** -0.5)[0])
    around, deep = [2.0], 2.0
    around.append(around)
    for _ in range(5000):
        deep = (deep,)
    for endless in (around, deep):
        with pytest.raises(attile.TracingError, match="recursion"):
            attile.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s if endless else -s)


def test_traces_do_not_keep_arrays_alive():
    import gc
    import weakref
    bias = RANDOM.standard_normal(2 * N).astype("f4")
    alive = weakref.ref(bias)

    def score(s, b, h, i, j):
        return s + bias[i - j + N]
    attile.attention(Q, K, V, score_mod=score)
    del bias, score
    gc.collect()
    assert alive() is None


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
