"""When a function is traced anew: never for the same, always where something that it reaches has changed."""
import functools

import attile
import numpy as np
import plain
import pytest
from attile import tracing
from attile.dsl import infinity, tanh, where
from score_cases import H, N, D, Q, K, V, RANDOM, slopes, table, SCORES, agree, named


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


def scales(function, change, first, second):
    """The call's result before and after the change of something that the function reads."""
    agree(attile.attention(Q, K, V, score_mod=function), plain.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s * first)[0])
    change()
    agree(attile.attention(Q, K, V, score_mod=function), plain.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s * second)[0])


def weighted(s, b, h, i, j):
    return s * weighted.weight


def test_attributes_of_functions_and_partials():
    weighted.weight = 2
    scales(weighted, lambda: setattr(weighted, "weight", 3), 2, 3)
    part = functools.partial(abs)
    part.weight = 2
    scales(lambda s, b, h, i, j: s * part.weight, lambda: setattr(part, "weight", 3), 2, 3)


def test_attributes_of_a_partial_with_an_array():
    def of_array(array, h):
        return array[h]
    part = functools.partial(of_array, np.ones(H, "f4"))
    part.weight = 2
    scales(lambda s, b, h, i, j: s * part(h) * part.weight, lambda: setattr(part, "weight", 3), 2, 3)


def test_builtins(monkeypatch):
    import builtins

    def score(s, b, h, i, j):
        return s * abs(-2)
    scales(score, lambda: monkeypatch.setattr(builtins, "abs", lambda x: 5, raising=True), 2, 5)
    monkeypatch.undo()

    def other(s, b, h, i, j):
        return s * weight_of_builtins  # noqa: F821
    monkeypatch.setattr(builtins, "weight_of_builtins", 2, raising=False)
    scales(other, lambda: monkeypatch.setattr(builtins, "weight_of_builtins", 3), 2, 3)
