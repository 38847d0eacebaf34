"""FlexAttention's published examples, as its documentation, its blog post and attention-gym write them, and attile beside it."""
import math

import torch
from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention, or_masks

B, H, N, D = 2, 4, 192, 64


def examples(device):
    """name -> (score_mod, mask_mod)."""
    torch.manual_seed(2)

    def noop(score, b, h, q_idx, kv_idx):
        return score

    def relative_positional(score, b, h, q_idx, kv_idx):
        return score + (q_idx - kv_idx)

    bias_table = torch.randn(2 * N - 1, device=device)

    def relative_bias(score, b, h, q_idx, kv_idx):
        return score + bias_table[q_idx - kv_idx + N - 1]

    head_bias = torch.randn(H, N, N, device=device)

    def head_bias_mod(score, b, h, q_idx, kv_idx):
        return score + head_bias[h, q_idx, kv_idx]

    alibi_bias = torch.exp2(-torch.arange(1, H + 1, device=device) * 8.0 / H)

    def alibi(score, b, h, q_idx, kv_idx):
        bias = alibi_bias[h] * (kv_idx - q_idx)
        return score + bias

    def generate_alibi_bias(H):
        def alibi_mod(score, b, h, q_idx, kv_idx):
            scale = torch.exp2(-((h + 1) * 8.0 / H))
            bias = (q_idx - kv_idx) * scale
            return score - bias
        return alibi_mod

    softcap = 20

    def soft_cap(score, b, h, q_idx, kv_idx):
        score = score / softcap
        score = torch.tanh(score)
        score = score * softcap
        return score

    def causal_by_score(score, b, h, q_idx, kv_idx):
        return torch.where(q_idx >= kv_idx, score, -float("inf"))

    def checkerboard(score, batch, head, token_q, token_kv):
        score = torch.where(torch.abs(token_kv - token_q) % 2 == 1, score * 0.5, score)
        score = torch.where(torch.abs(token_kv - token_q) % 2 == 0, score * 2.0, score)
        return score

    def causal_mask(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    SLIDING_WINDOW = 40

    def sliding_window(b, h, q_idx, kv_idx):
        return q_idx - kv_idx <= SLIDING_WINDOW

    def sliding_window_causal(b, h, q_idx, kv_idx):
        causal = q_idx >= kv_idx
        window = q_idx - kv_idx <= SLIDING_WINDOW
        return causal & window

    prefix_length = torch.tensor([17, 90], dtype=torch.int32, device=device)

    def prefix_mask(b, h, q_idx, kv_idx):
        return kv_idx <= prefix_length[b]

    document_id = torch.repeat_interleave(torch.arange(5, device=device), torch.tensor([10, 50, 2, 70, 60], device=device))

    def document_masking(b, h, q_idx, kv_idx):
        return document_id[q_idx] == document_id[kv_idx]

    def generate_doc_mask_mod(mask_mod, offsets):
        counts = offsets[1:] - offsets[:-1]
        ids = torch.repeat_interleave(torch.arange(len(counts), device=device, dtype=torch.int32), counts)

        def doc_mask_mod(b, h, q_idx, kv_idx):
            same_doc = ids[q_idx] == ids[kv_idx]
            q_logical = q_idx - offsets[ids[q_idx]]
            kv_logical = kv_idx - offsets[ids[kv_idx]]
            inner_mask = mask_mod(b, h, q_logical, kv_logical)
            return same_doc & inner_mask
        return doc_mask_mod

    offsets = torch.tensor([0, 10, 60, 62, 132, 192], dtype=torch.int32, device=device)
    W = 16

    def get_x_y(idx):
        return idx // W, idx % W

    def natten_mask(b, h, q_idx, kv_idx):
        q_x, q_y = get_x_y(q_idx)
        kv_x, kv_y = get_x_y(kv_idx)
        horizontal_mask = (q_x - kv_x).abs() <= 3
        vertical_mask = (q_y - kv_y).abs() <= 3
        return horizontal_mask & vertical_mask

    def dilated(b, h, q_idx, kv_idx):
        diff = torch.abs(q_idx - kv_idx)
        in_window = diff <= SLIDING_WINDOW
        is_dilated = (diff % 3) == 0
        return in_window & is_dilated

    return {
        "noop": (noop, None),
        "relative positional": (relative_positional, None),
        "relative bias": (relative_bias, None),
        "a bias for each head": (head_bias_mod, None),
        "ALiBi": (alibi, None),
        "ALiBi of attention-gym": (generate_alibi_bias(H), None),
        "soft cap": (soft_cap, None),
        "causal by score": (causal_by_score, None),
        "checkerboard": (checkerboard, None),
        "causal": (None, causal_mask),
        "sliding window": (None, sliding_window_causal),
        "sliding window by and_masks": (None, and_masks(causal_mask, sliding_window)),
        "prefix-LM": (None, or_masks(prefix_mask, causal_mask)),
        "documents": (None, document_masking),
        "causal documents": (None, and_masks(document_masking, causal_mask)),
        "documents by offsets": (None, generate_doc_mask_mod(causal_mask, offsets)),
        "neighbourhood": (None, natten_mask),
        "dilated": (None, dilated),
        "ALiBi and causal documents": (alibi, and_masks(document_masking, causal_mask)),
    }


NAMES = ["noop", "relative positional", "relative bias", "a bias for each head", "ALiBi", "ALiBi of attention-gym", "soft cap", "causal by score",
         "checkerboard", "causal", "sliding window", "sliding window by and_masks", "prefix-LM", "documents", "causal documents", "documents by offsets",
         "neighbourhood", "dilated", "ALiBi and causal documents"]


def tensors(device, dtype=torch.float32, heads_k=H):
    torch.manual_seed(3)
    return [torch.randn(B, h, N, D, device=device).to(dtype) for h in (H, heads_k, heads_k)]


def by_flex(q, k, v, score_mod, mask_mod, flex=flex_attention):
    block = None if mask_mod is None else create_block_mask(mask_mod, B, H, N, N, device=q.device.type)
    return flex(q, k, v, score_mod=score_mod, block_mask=block, enable_gqa=q.shape[1] != k.shape[1])


def by_sdpa(q, k, v, score_mod, mask_mod):
    """Scores and masks built as whole tensors; float64 where PyTorch has it."""
    index = [torch.arange(n, device=q.device).view([-1 if i == at else 1 for i in range(4)]) for at, n in enumerate((B, H, N, N))]
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = q @ k.transpose(-1, -2) / math.sqrt(D)
    if score_mod is not None:
        s = score_mod(s, *index)
    if mask_mod is not None:
        s = s.masked_fill(~mask_mod(*index), -math.inf)
    return torch.softmax(s, -1).nan_to_num(0) @ v
