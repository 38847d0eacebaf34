"""attention(): ready attention, with a score and a mask of one's own where given; warm_up(): its kernels, ahead."""
from . import _attile
from .errors import ArgumentTypeError, Error
from .tracing import Traced, need_no_mask_mod, traced


def attention(q, k, v, *, causal=False, window=None, scale=None, softcap=0.0, alibi_slopes=None, bias=None, mask=None,
              sink=None, rule="softmax", dropout=0.0, seed=0, offset=0, cu_seqlens_q=None, cu_seqlens_k=None, kv_lens=None,
              prefix_len=None, doc_ids=None, top_k=0, top_k_renormalise=True, top_k_outputs=False, return_lse=False,
              layout="bhnd", out=None, schedule=None, tf32=False, tuning=None, building=None, score_mod=None,
              mask_mod=None):
    """Scaled dot product attention with every variant that Attile has, in one generated kernel.

    B sequences, H query heads, H_k kv heads (H a multiple of it), N_q queries, N_k keys, D and D_v numbers of a row. All
    arrays are of one library (NumPy, PyTorch, JAX, CuPy, anything with __dlpack__) and lie on one device; nothing is
    copied. On a GPU the work goes to the library's current stream and is not waited for (JAX: it is).

    q             [B][H][N_q][D] float32, bfloat16 or float16; any strides, unit stride last
    k, v          [B][H_k][N_k][D] and [B][H_k][N_k][D_v]
    layout        "bhnd" as above; "bnhd": q, k, v and the result are [B][N][H][D]. Other arrays keep their shapes
    causal        a query sees the keys up to its own position, aligned at the last query and the last key
    window        (left, right): keys seen left and right of that position; -1 or None is no limit
    scale         factor of the scores, default 1/sqrt(D)
    softcap       c > 0: scores become c*tanh(score/c)
    alibi_slopes  float32 [H] or [B][H]: slope*|distance in keys| is subtracted
    bias          float [B or 1][H or 1][N_q or 1][N_k], added to the scores in natural units
    mask          bool of the same shapes, True keeps the key
    sink          float32 [H]: a logit that joins the sum of a row and has no value
    rule          "softmax", "softmax_plus_one", "sigmoid" or "linear"
    dropout       probability of dropping a weight, in [0, 1); the pattern follows from seed and offset alone
    cu_seqlens_q, cu_seqlens_k   int32 [sequences + 1]: packed sequences, B = 1 (the batch dim may be left out)
    kv_lens       int32 [B]: keys in use of each sequence
    prefix_len    int32 [B]: keys that every query sees beside causal ones
    doc_ids       int32 [B][N_k]: a query sees the keys of its own document
    top_k         only the k largest scores of a query, 1 to 128; top_k_renormalise: softmax over these alone
    out           where the result is written; also of another float type than q
    schedule      a file, the name of a shipped schedule, or YAML text; default: the best known
    tf32          on a GPU, products of float32 arrays may round to TF32
    tuning        "never": the shipped schedules; "cached": what tuning found; "now": an unknown problem is tuned at its
                  first call, which takes many seconds. None: of the process, set_tuning(). Without effect beside a
                  schedule, a score_mod or a mask_mod
    building      "on_demand": a kernel that is not there is built, and the call waits; "never": an EnvironmentError at
                  once; "background": another kernel of the problem serves while it is built, an EnvironmentError where
                  there is none. None: of the process, set_building()
    score_mod     f(score, b, h, q_idx, kv_idx) -> score and mask_mod f(b, h, q_idx, kv_idx) -> condition, as in
                  FlexAttention; traced once, after the ready modifiers. See attile.tracing. Or score_mod=trace(...)

    Returns o, of q's type with v's last extent; with return_lse (o, lse), lse float32 [B][H][N_q], natural logarithm, -inf
    for a row without keys; with top_k_outputs also values float32 and indices int32 [B][H][N_q][top_k].

    Raises attile.ArgumentError (a ValueError) and its siblings in attile.errors; then nothing has been written.
    """
    mods = captured = None
    if score_mod is not None or mask_mod is not None:
        mods, captured = _mods(score_mod, mask_mod)
    return _attile.attention(
        q, k, v, causal, window, scale, softcap, alibi_slopes, bias, mask, sink, rule, dropout, seed, offset, cu_seqlens_q,
        cu_seqlens_k, kv_lens, prefix_len, doc_ids, top_k, top_k_renormalise, top_k_outputs, return_lse, layout, out,
        schedule, tf32, tuning, building, mods, captured)


def _mods(score_mod, mask_mod):
    if isinstance(score_mod, Traced):
        need_no_mask_mod(mask_mod)
        return score_mod.parts()
    return traced(score_mod, mask_mod)


def warm_up(calls, tuning="cached"):
    """Builds the kernels of these calls of attention(), whatever `building` says; later calls like them build nothing.

    calls         a list of dicts, each the arguments of a call by name: [dict(q=q, k=k, v=v, causal=True), ...]. Arrays
                  are only looked at (where something is tuned, read); lengths count by powers of two
    tuning        as of attention(), for all of them; "now" tunes what is not known

    Raises the first error, after all other calls were tried.
    """
    import inspect
    signature, fault = inspect.signature(attention), None
    for call in calls:
        try:
            try:
                given = signature.bind(**{**call, "tuning": tuning})
            except TypeError as error:
                raise ArgumentTypeError(f"warm_up: {error}") from None
            given.apply_defaults()
            *arguments, score_mod, mask_mod = given.arguments.values()
            has_mods = score_mod is not None or mask_mod is not None
            _attile.warm_up(*arguments, *(_mods(score_mod, mask_mod) if has_mods else (None, None)))
        except Error as error:
            fault = fault or error
    if fault:
        raise fault
