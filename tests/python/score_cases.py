"""Scores and masks as ordinary functions over NumPy, and what they read."""
import functools
import inspect

import numpy as np

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


def numpy_numbers(score, b, h, i, j):
    return np.float32(0.5) * score + np.int64(3) - score / np.float64(4) + (np.bool_(True) & (i > j)).astype("f4")


SCORES = [alibi, soft_cap, relative, through_a_helper, many_functions,
          functools.partial(lambda c, s, b, h, i, j: s + c * i, 0.125), numpy_numbers]
MASKS = [bool_table, document, prefix_lm, step_by_step, lambda b, h, i, j: i - j <= 4, lambda b, h, i, j: True,
         lambda b, h, i, j: (i // 4) == (j // 4), lambda b, h, i, j: (i - j) % 3 == 0, lambda b, h, i, j: (i >= j) ^ (j == 3)]


def agree(got, want):
    assert np.abs(got - want).max() < 3e-5


def named(function):
    return getattr(function, "__name__", "partial") + f"_{inspect.getsourcelines(getattr(function, 'func', function))[1]}"
