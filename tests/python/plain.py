"""Attention in float64 NumPy, straight from docs/conventions.md and written without a look at the library's code."""
import numpy as np


def philox(seed, offset, sequence_head, i, block):
    """Philox4x32-10: the four words of key = seed and counter = (offset, sequence·H + head, i, block)."""
    mask = 0xFFFFFFFF
    key = [seed & mask, (seed >> 32) & mask]
    c = [offset & mask, sequence_head & mask, i & mask, block & mask]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ key[0], b & mask, (a >> 32) ^ c[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return c


def one_head(q, k, v, scores, keep, rule, sink, top_k, renormalise, dropped, dropout):
    """q [N_q][D]; scores [N_q][N_k] after all modifiers. Gives o [N_q][D_v] and lse [N_q]."""
    o, lse = np.zeros((len(q), v.shape[1])), np.full(len(q), -np.inf)
    for i, row in enumerate(scores):
        keys = [j for j in range(len(row)) if keep[i][j]]
        if rule in ("sigmoid", "linear"):
            for j in keys:
                w = 1 / (1 + np.exp(-row[j])) if rule == "sigmoid" else row[j]
                o[i] += 0 if dropped[i][j] else w * v[j] / (1 - dropout)
            continue
        keys = [j for j in keys if row[j] != -np.inf]
        chosen = sorted(keys, key=lambda j: (-row[j], j))[:top_k] if top_k else keys
        summed = chosen if renormalise else keys
        extra = [sink] if sink is not None else []
        top = max([row[j] for j in summed] + extra, default=-np.inf)
        if top == -np.inf:
            continue
        total = sum(np.exp(row[j] - top) for j in summed) + sum(np.exp(x - top) for x in extra)
        lse[i] = top + np.log(total)
        for j in chosen:
            o[i] += 0 if dropped[i][j] else np.exp(row[j] - top) / total * v[j] / (1 - dropout)
    return o, lse


def attention(q, k, v, *, causal=False, window=None, scale=None, softcap=0, alibi_slopes=None, bias=None, mask=None, sink=None,
              rule="softmax", dropout=0, seed=0, offset=0, cu_seqlens_q=None, cu_seqlens_k=None, kv_lens=None, prefix_len=None,
              doc_ids=None, top_k=0, top_k_renormalise=True, score_mod=None, mask_mod=None):
    """o and lse in float64; score_mod and mask_mod take numbers."""
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    if cu_seqlens_q is not None:
        parts = [attention(q[:, :, a:b], k[:, :, c:d], v[:, :, c:d], causal=causal, window=window, scale=scale, softcap=softcap,
                           alibi_slopes=alibi_slopes, sink=sink, rule=rule)
                 for a, b, c, d in zip(cu_seqlens_q, cu_seqlens_q[1:], cu_seqlens_k, cu_seqlens_k[1:])]
        return np.concatenate([o for o, _ in parts], 2), np.concatenate([lse for _, lse in parts], 2)
    B, H, Nq, D = q.shape
    Hk, Nk = k.shape[1:3]
    o, lse = np.zeros((B, H, Nq, v.shape[3])), np.full((B, H, Nq), -np.inf)
    wide = [None if x is None else np.broadcast_to(np.asarray(x, dtype=np.float64), (B, H, Nq, Nk)) for x in (bias, mask)]
    left, right = [(-1 if x is None else x) for x in (window or (-1, -1))]
    for b in range(B):
        L = Nk if kv_lens is None else int(kv_lens[b])
        for h in range(H):
            s = q[b, h] @ k[b, h // (H // Hk)].T * (D ** -0.5 if scale is None else scale)
            if softcap:
                s = softcap * np.tanh(s / softcap)
            keep = np.ones((Nq, Nk), dtype=bool)
            dropped = np.zeros((Nq, Nk), dtype=bool)
            for i in range(Nq):
                p = i + L - Nq
                for j in range(Nk):
                    if alibi_slopes is not None:
                        s[i, j] -= np.broadcast_to(alibi_slopes, (B, H))[b, h] * abs(p - j)
                    if wide[0] is not None:
                        s[i, j] += wide[0][b, h, i, j]
                    if score_mod:
                        s[i, j] = score_mod(s[i, j], b, h, i, j)
                    prefix = prefix_len is not None and j < prefix_len[b]
                    document = True
                    if doc_ids is not None:
                        document = doc_ids[b][j] == (doc_ids[b][p] if 0 <= p < Nk else -1)
                    keep[i, j] = (j < L and (not causal or j <= p or prefix) and (left < 0 or j >= p - left)
                                  and (right < 0 or j <= p + right) and document and (wide[1] is None or wide[1][b, h, i, j])
                                  and (mask_mod is None or mask_mod(b, h, i, j)))
                    if dropout:
                        dropped[i, j] = philox(seed, offset, b * H + h, i, j // 4)[j % 4] < round(dropout * 2 ** 32)
            top = {"softmax_plus_one": 0.0}.get(rule, None if sink is None else float(sink[h]))
            o[b, h], lse[b, h] = one_head(q[b, h], k[b, 0], v[b, h // (H // Hk)], s, keep, rule, top, top_k, top_k_renormalise,
                                          dropped, dropout)
    return o, lse
