from typing import Any, Callable, List, Optional, Tuple, TypeVar

from ._attile import Mods

_Array = TypeVar("_Array")
ScoreMod = Callable[[Any, Any, Any, Any, Any], Any]
MaskMod = Callable[[Any, Any, Any, Any], Any]

class Captured:
    def __getitem__(self, at: Any) -> Any: ...
    def __len__(self) -> int: ...

class Traced:
    mods: Mods
    handle: int
    names: Tuple[str, ...]
    arrays: List[Any]
    def parts(self) -> Tuple[Mods, List[Tuple[str, Any]]]: ...

def captured(array: Any) -> Captured: ...
def trace(score_mod: Optional[ScoreMod] = ..., mask_mod: Optional[MaskMod] = ...) -> Traced: ...
def traced(score_mod: Optional[ScoreMod], mask_mod: Optional[MaskMod]) -> Tuple[Mods, List[Tuple[str, Any]]]: ...
