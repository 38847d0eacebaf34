from typing import Any, List, Optional, Tuple, Union

import torch

from ._attile import Building, Tuning
from .tracing import MaskMod, ScoreMod, Traced

__all__: List[str]

def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = ..., window: Optional[Tuple[Optional[int], Optional[int]]] = ..., scale: Optional[float] = ...,
              softcap: float = ..., alibi_slopes: Optional[torch.Tensor] = ..., bias: Optional[torch.Tensor] = ..., mask: Optional[torch.Tensor] = ...,
              sink: Optional[torch.Tensor] = ..., rule: str = ..., dropout: float = ..., seed: int = ..., offset: int = ...,
              cu_seqlens_q: Optional[torch.Tensor] = ..., cu_seqlens_k: Optional[torch.Tensor] = ..., kv_lens: Optional[torch.Tensor] = ...,
              prefix_len: Optional[torch.Tensor] = ..., doc_ids: Optional[torch.Tensor] = ..., top_k: int = ..., top_k_renormalise: bool = ...,
              return_lse: bool = ..., layout: str = ..., schedule: Optional[str] = ..., tf32: bool = ...,
              tuning: Optional[Tuning] = ..., building: Optional[Building] = ...,
              score_mod: Union[ScoreMod, Traced, None] = ..., mask_mod: Optional[MaskMod] = ...) -> Any: ...
def sdpa(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Optional[torch.Tensor] = ..., dropout_p: float = ...,
         is_causal: bool = ..., scale: Optional[float] = ..., enable_gqa: bool = ...) -> torch.Tensor: ...
def register_with_transformers(name: str = ...) -> str: ...
