"""Attile in PyTorch: custom operators for torch.compile, export and autocast, scaled_dot_product_attention, transformers.

attention() takes what attile.attention takes; under torch.compile a score_mod is traced before, by attile.trace(). sdpa() is a
drop-in for torch.nn.functional.scaled_dot_product_attention; register_with_transformers() makes "attile" an attn_implementation.
Where nothing is compiled or recorded the operators are passed by, so that a call costs what attile.attention's costs.
"""
import math

import torch

from . import _attile
from . import attention as _plain
from .errors import ArgumentError, ArgumentTypeError, UnsupportedError
from .tracing import Traced, need_no_mask_mod

__all__ = ["attention", "sdpa", "register_with_transformers"]

# Tensors first, in the order of the operator's schema; a tensor that is not given is None.
_TENSORS = ("alibi_slopes", "bias", "mask", "sink", "cu_seqlens_q", "cu_seqlens_k", "kv_lens", "prefix_len", "doc_ids", "drawn_seed")
_NUMBERS = ("causal", "window", "scale", "softcap", "rule", "dropout", "seed", "offset", "top_k", "top_k_renormalise", "layout",
            "schedule", "tf32", "tuning", "building")
_SCHEMA = ("attention(Tensor q, Tensor k, Tensor v, " + ", ".join(f"Tensor? {name}" for name in _TENSORS) + ", Tensor[] captured, int mods, bool causal, int[]? window, "
           "float? scale, float softcap, str rule, float dropout, int seed, int offset, int top_k, bool top_k_renormalise, str layout, "
           "str? schedule, bool tf32, str? tuning=None, str? building=None) -> (Tensor, Tensor)")

_library = torch.library.Library("attile", "DEF")
# The result is laid out as q is, so a compiler has to keep q's strides.
_library.define(_SCHEMA, tags=(getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order),))
_WITHOUT_LSE = ("sigmoid", "linear")


def _options(rest):
    return dict(zip((*_TENSORS, "captured", "mods", *_NUMBERS), rest))


def _run(q, k, v, *rest):
    """The operator on the CPU and on CUDA: o and lse (empty for a rule that has none)."""
    options = _options(rest)
    options["score_mod"] = Traced.again(options.pop("mods"), options.pop("captured"))
    drawn = options.pop("drawn_seed")
    if drawn is not None:
        options["seed"] = int(drawn)
    if options["window"] is not None:
        options["window"] = tuple(options["window"])
    if options["rule"] in _WITHOUT_LSE:
        return _plain(q, k, v, **options), q.new_empty(0, dtype=torch.float32)
    return _plain(q, k, v, return_lse=True, **options)


def _output_shapes(q, v, layout):
    heads_last = layout == "bnhd"
    rows = q.shape[:-1]
    lse = (*rows[:-2], rows[-1], rows[-2]) if heads_last else tuple(rows)
    return (*rows, v.shape[-1]), lse


def _fake(q, k, v, *rest):
    options = _options(rest)
    shape, lse = _output_shapes(q, v, options["layout"])
    o = torch.empty_like(q) if q.shape[-1] == v.shape[-1] else q.new_empty(shape)
    return o, q.new_empty((0,) if options["rule"] in _WITHOUT_LSE else lse, dtype=torch.float32)


def _no_backward(context, *gradients):
    raise UnsupportedError("attile::attention: there is no backward pass yet (call it under torch.no_grad() or torch.inference_mode())")


_library.impl("attention", _run, "CPU")
_library.impl("attention", _run, "CUDA")
torch.library.register_fake("attile::attention", _fake, lib=_library)
# What the backward pass will keep, q, k, v, o and lse, is an input or an output already.
torch.library.register_autograd("attile::attention", _no_backward, setup_context=lambda ctx, inputs, output: None, lib=_library)


def _cast(*tensors):
    dtype = torch.get_autocast_dtype(tensors[0].device.type)
    return [x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x for x in tensors]


def _autocast(q, k, v, *rest):
    """Under autocast q, k and v take its type, as for PyTorch's own attention."""
    cast = _cast(q, k, v)
    with torch.autocast(device_type=q.device.type, enabled=False):
        return torch.ops.attile.attention(*cast, *rest)


for _key in ("AutocastCPU", "AutocastCUDA"):
    _library.impl("attention", _autocast, _key)


def attention(q, k, v, *, causal=False, window=None, scale=None, softcap=0.0, alibi_slopes=None, bias=None, mask=None, sink=None,
              rule="softmax", dropout=0.0, seed=0, offset=0, cu_seqlens_q=None, cu_seqlens_k=None, kv_lens=None, prefix_len=None,
              doc_ids=None, top_k=0, top_k_renormalise=True, return_lse=False, layout="bhnd", schedule=None, tf32=False, tuning=None,
              building=None, score_mod=None, mask_mod=None):
    """attile.attention on tensors, as an operator that torch.compile and autocast know: no graph break, no copy.

    Arguments, shapes and results as there; seed may be a tensor of one integer on the CPU, which is read when the operator runs. Tensors that require a gradient are refused while one is recorded: there is no
    backward pass yet.
    """
    if not torch.compiler.is_compiling():
        if _any_autocast() and torch.is_autocast_enabled(q.device.type):
            q, k, v = _cast(q, k, v)
        seed = int(seed)
        return _plain(q, k, v, causal=causal, window=window, scale=scale, softcap=softcap, alibi_slopes=alibi_slopes, bias=bias, mask=mask,
                      sink=sink, rule=rule, dropout=dropout, seed=seed, offset=offset, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                      kv_lens=kv_lens, prefix_len=prefix_len, doc_ids=doc_ids, top_k=top_k, top_k_renormalise=top_k_renormalise,
                      return_lse=return_lse, layout=layout, schedule=schedule, tf32=tf32, tuning=tuning, building=building, score_mod=score_mod,
                      mask_mod=mask_mod)
    if return_lse and rule in _WITHOUT_LSE:
        raise ArgumentError("attention: lse with rule sigmoid or linear is refused (these rules have no normaliser, so there is no log-sum-exp)")
    if not isinstance(causal, bool):
        raise ArgumentTypeError(f"attention: 'causal' is of type {type(causal).__name__}, but must be True or False")
    captured, handle = _mods_of(score_mod, mask_mod)
    if not isinstance(seed, torch.Tensor) and seed >= 2 ** 63:
        seed -= 2 ** 64  # the operator's integers have a sign
    seed, drawn = (0, seed) if isinstance(seed, torch.Tensor) else (seed, None)
    window = None if window is None else [-1 if side is None else side for side in window]
    o, lse = torch.ops.attile.attention(q, k, v, alibi_slopes, bias, mask, sink, cu_seqlens_q, cu_seqlens_k, kv_lens, prefix_len, doc_ids, drawn,
                                        captured, handle, causal, window, scale, softcap, rule, dropout, seed, offset, top_k, top_k_renormalise, layout,
                                        schedule, tf32, tuning, building)
    return (o, lse) if return_lse else o


def _mods_of(score_mod, mask_mod):
    if score_mod is None and mask_mod is None:
        return [], -1
    if not isinstance(score_mod, Traced):
        raise ArgumentError("attention: under torch.compile a score_mod or mask_mod is traced before: score_mod=attile.trace(score_mod, mask_mod)")
    need_no_mask_mod(mask_mod)
    return score_mod.arrays, score_mod.handle


def _four_dims(x):
    """[...][N][D] as [B][H][N][D]: views, no copy unless leading dims cannot be joined."""
    if x.dim() == 4:
        return x
    if x.dim() < 4:
        return x[(None,) * (4 - x.dim())]
    return x.reshape(math.prod(x.shape[:-3]), *x.shape[-3:])


def _unit_last(x):
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()


# Cheaper than to ask for one kind of device; where PyTorch has no such function, that is what is asked.
_any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


def _dropout_seed():
    """From PyTorch's default generator; a tensor, so that torch.compile need not know its value."""
    return torch.randint(0, 2 ** 62, (), dtype=torch.int64)


def sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """torch.nn.functional.scaled_dot_product_attention with the same arguments and meaning.

    query [..., H, L, E], key [..., H_k, S, E], value [..., H_k, S, E_v]; H_k may differ from H only with enable_gqa. is_causal is
    aligned at the top left, as PyTorch's: query i sees keys 0 to i. attn_mask broadcasts to [..., H, L, S]: boolean, True takes
    part, or a float added to the scores. A row without keys gives 0. dropout_p draws its seed from PyTorch's default
    generator, and the pattern is Attile's.
    """
    q_shape, k_shape = query.shape, key.shape
    dims = len(q_shape)
    if dims != 4 or len(k_shape) != 4 or value.dim() != 4:
        if dims < 2 or len(k_shape) != dims or value.dim() != dims:
            raise ArgumentError(f"sdpa: query, key and value have {dims}, {len(k_shape)} and {value.dim()} dims; they need the same number, 2 or more")
        if attn_mask is not None:
            _need_mask(attn_mask, query)
        o = sdpa(_four_dims(query), _four_dims(key), _four_dims(value), attn_mask if attn_mask is None else _joined_mask(attn_mask, query, key),
                 dropout_p, is_causal, scale, enable_gqa)
        return o.reshape(*q_shape[:-1], value.shape[-1])
    if attn_mask is not None:
        _need_mask(attn_mask, query)
    if is_causal and attn_mask is not None:
        raise ArgumentError("sdpa: attn_mask and is_causal are both given; build the causal part into the mask")
    if not enable_gqa and not q_shape[1] == k_shape[1] == value.shape[1]:
        raise ArgumentError(f"sdpa: query has {q_shape[1]} heads, key {k_shape[1]} and value {value.shape[1]}; grouped heads need enable_gqa=True")
    Nq, Nk, bias, mask = q_shape[2], k_shape[2], None, None
    if is_causal and Nk > Nq:  # bottom right and top left are one where the keys that nobody sees are left out
        key, value = key[:, :, :Nq], value[:, :, :Nq]
    elif is_causal and Nk < Nq:
        is_causal, attn_mask = False, torch.ones(Nq, Nk, dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None:
        bias, mask = _bias_and_mask(attn_mask, Nk)
    seed = _dropout_seed() if dropout_p else 0
    tensors = _unit_last(query), _unit_last(key), _unit_last(value)
    if torch.compiler.is_compiling():
        return attention(*tensors, scale=scale, causal=is_causal, bias=bias, mask=mask, dropout=dropout_p, seed=seed)
    if _any_autocast() and torch.is_autocast_enabled(query.device.type):
        tensors = _cast(*tensors)
    return _attile.attention(*tensors, is_causal, None, scale, 0.0, None, bias, mask, None, "softmax", dropout_p, int(seed), 0, None, None, None, None,
                             None, 0, True, False, False, "bhnd", None, None, False, None, None, None, None)


def _need_mask(mask, query):
    """Of a type that PyTorch takes beside such a query (autocast would make it the query's), and no more dims."""
    if mask.dim() > query.dim():
        raise ArgumentError(f"sdpa: attn_mask has {mask.dim()} dims, more than query, which has {query.dim()}")
    if mask.dtype in (torch.bool, torch.float32, query.dtype):
        return
    # What is compiled does not tell here whether it is under autocast.
    cast = torch.compiler.is_compiling() or (_any_autocast() and torch.is_autocast_enabled(query.device.type))
    if not cast or not mask.is_floating_point() or mask.dtype == torch.float64:
        raise ArgumentError(f"sdpa: attn_mask is {mask.dtype}, but must be torch.bool, torch.float32 or query's {query.dtype}")


def _joined_mask(mask, query, key):
    """For a query whose leading dims are joined or added: the same is done to the mask."""
    return _four_dims(mask if query.dim() < 4 else mask.expand(*query.shape[:-1], key.shape[-2]))


def _bias_and_mask(mask, Nk):
    mask = _four_dims(mask)
    if mask.shape[-1] == 1 and Nk != 1:
        mask = mask.expand(*mask.shape[:-1], Nk)
    if mask.dtype == torch.bool:
        return None, mask
    return mask, None


def _transformers_attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, sliding_window=None, softcap=None,
                            is_causal=None, s_aux=None, **_):
    """The function of transformers' attention interface: [B][H][N][D] in, [B][N][H][D] and no weights out."""
    options = {"scale": scaling, "softcap": softcap or 0.0, "sink": None if s_aux is None else s_aux.float()}
    if attention_mask is not None:
        mask = attention_mask[..., : key.shape[-2]]
        options.update({"mask": mask} if mask.dtype == torch.bool else {"bias": mask})
    elif (getattr(module, "is_causal", True) if is_causal is None else is_causal) and query.shape[-2] > 1:
        options["causal"] = True
    if attention_mask is None and sliding_window:
        options["window"] = (sliding_window - 1, None)
    if dropout and module.training:
        options.update(dropout=dropout, seed=_dropout_seed())
    o = attention(query, key, value, **options)
    return o.transpose(1, 2).contiguous(), None


def register_with_transformers(name="attile"):
    """Makes attn_implementation="attile" known to Hugging Face transformers (4.48 or newer); gives the name."""
    from transformers import AttentionInterface
    AttentionInterface.register(name, _transformers_attention)
    try:
        from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
        AttentionMaskInterface.register(name, sdpa_mask)
    except ImportError:
        pass  # before masks had an interface of their own, unknown implementations got SDPA's
    return name
