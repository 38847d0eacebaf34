"""FlexAttention's examples run unchanged on the CPU and agree with flex_attention and with plain tensors."""
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the Python package with PyTorch")

import attile  # noqa: E402
import flex_cases  # noqa: E402

EXAMPLES = flex_cases.examples("cpu")


def test_names_are_complete():
    assert list(EXAMPLES) == flex_cases.NAMES


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", flex_cases.NAMES)
def test_example(name):
    mods = EXAMPLES[name]
    for heads_k in (flex_cases.H, 2):
        q, k, v = flex_cases.tensors("cpu", heads_k=heads_k)
        got = attile.attention(q, k, v, score_mod=mods[0], mask_mod=mods[1])
        assert (got - flex_cases.by_sdpa(q, k, v, *mods)).abs().max() < 2e-5
        assert (got - flex_cases.by_flex(q, k, v, *mods)).abs().max() < 2e-5


@pytest.mark.filterwarnings("ignore")
def test_examples_are_traced_once(monkeypatch):
    q, k, v = flex_cases.tensors("cpu")
    for mods in EXAMPLES.values():
        attile.attention(q, k, v, score_mod=mods[0], mask_mod=mods[1])
    monkeypatch.setattr(attile.tracing, "_call", None)
    for mods in EXAMPLES.values():
        attile.attention(q, k, v, score_mod=mods[0], mask_mod=mods[1])
