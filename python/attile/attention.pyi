import os
from typing import Any, Iterable, Literal, Mapping, Optional, Protocol, Tuple, TypeVar, Union, overload

from ._attile import Building, Tuning
from .tracing import MaskMod, ScoreMod, Traced

class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

_Q = TypeVar("_Q", bound=_DLPack)
_Array = Any

@overload
def attention(q: _Q, k: _Array, v: _Array, *, causal: bool = ..., window: Optional[Tuple[Optional[int], Optional[int]]] = ..., scale: Optional[float] = ...,
              softcap: float = ..., alibi_slopes: Optional[_Array] = ..., bias: Optional[_Array] = ..., mask: Optional[_Array] = ...,
              sink: Optional[_Array] = ..., rule: str = ..., dropout: float = ..., seed: int = ..., offset: int = ...,
              cu_seqlens_q: Optional[_Array] = ..., cu_seqlens_k: Optional[_Array] = ..., kv_lens: Optional[_Array] = ...,
              prefix_len: Optional[_Array] = ..., doc_ids: Optional[_Array] = ..., top_k: int = ..., top_k_renormalise: bool = ...,
              top_k_outputs: Literal[False] = ..., return_lse: Literal[False] = ..., layout: Literal["bhnd", "bnhd"] = ...,
              out: Optional[_Q] = ..., schedule: Union[str, "os.PathLike[str]", None] = ..., tf32: bool = ...,
              tuning: Optional[Tuning] = ..., building: Optional[Building] = ...,
              score_mod: Union[ScoreMod, Traced, None] = ..., mask_mod: Optional[MaskMod] = ...) -> _Q: ...
@overload
def attention(q: _Q, k: _Array, v: _Array, *, causal: bool = ..., window: Optional[Tuple[Optional[int], Optional[int]]] = ..., scale: Optional[float] = ...,
              softcap: float = ..., alibi_slopes: Optional[_Array] = ..., bias: Optional[_Array] = ..., mask: Optional[_Array] = ...,
              sink: Optional[_Array] = ..., rule: str = ..., dropout: float = ..., seed: int = ..., offset: int = ...,
              cu_seqlens_q: Optional[_Array] = ..., cu_seqlens_k: Optional[_Array] = ..., kv_lens: Optional[_Array] = ...,
              prefix_len: Optional[_Array] = ..., doc_ids: Optional[_Array] = ..., top_k: int = ..., top_k_renormalise: bool = ...,
              top_k_outputs: bool = ..., return_lse: bool = ..., layout: Literal["bhnd", "bnhd"] = ...,
              out: Optional[_Q] = ..., schedule: Union[str, "os.PathLike[str]", None] = ..., tf32: bool = ...,
              tuning: Optional[Tuning] = ..., building: Optional[Building] = ...,
              score_mod: Union[ScoreMod, Traced, None] = ..., mask_mod: Optional[MaskMod] = ...) -> Union[_Q, Tuple[_Q, ...]]: ...
def warm_up(calls: Iterable[Mapping[str, Any]], tuning: Tuning = ...) -> None: ...
