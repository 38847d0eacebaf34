"""Algorithms of one's own, with the objects of the C++ library: dims, tensors, expressions, states and the rescale rule.

    from attile.dsl import *
    q = input("q", [batch, head, query, head_dim])
    k, v = input("k", [batch, kv_head, key, head_dim]), input("v", [batch, kv_head, key, value_dim])

    def body(t):
        s = dot(q, k) * scalar("scale")
        t.visible(key <= query_position())
        m = t.running_max("m", s)
        p = exp(s - m)
        l, o = t.sum("l", p), t.sum("o", dot(p, v))
        t.rescale([l, o], lambda a, b: exp(a - b))
        t.finish(lambda f: f.output("o", normalise(o, l)))

    attend = for_tiles("attention", query).stream(key, body)
    o = attend(q=Q, k=K, v=V, scale=0.125)

A dim used as a value is its index. Operators make expressions; ==, & and | too, so that neither has a truth value.
A rule that breaks its law is refused with a counter-example when the algorithm is built. An algorithm is called with
the arrays and numbers that it reads by name, and gives its outputs in order; algorithm.run(arguments, out={...},
schedule=...) is the same with arrays for the outputs.
"""
from ._attile import (Algorithm, Dim, Expr, Finish, State, Stream, Tensor, TileLoop, abs, batch, dot, exp, floor, for_tiles,
                      head, head_dim, index, infinity, input, key, kv_head, length, log, maximum, minimum, normalise, query,
                      query_position, random_word, reduce_sum, scalar, sigmoid, slot, tanh, to_real, value_dim, where)

__all__ = ["Algorithm", "Dim", "Expr", "Finish", "State", "Stream", "Tensor", "TileLoop", "abs", "batch", "dot", "exp",
           "floor", "for_tiles", "head", "head_dim", "index", "infinity", "input", "key", "kv_head", "length", "log",
           "maximum", "minimum", "normalise", "query", "query_position", "random_word", "reduce_sum", "scalar", "sigmoid",
           "slot", "tanh", "to_real", "value_dim", "where"]
