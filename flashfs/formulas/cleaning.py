"""Write amplification of greedy cleaning under uniform random writes, in closed form (docs/model.md)."""

from __future__ import annotations


def greedy(pages_per_block: int, share: float) -> float:
    """WAF of greedy cleaning under uniform random writes; ``share`` is pages of flash / pages that are live in them.

    Mean field. A block is closed full and loses a page at a rate of (live pages) x mu; as many are closed as cleaned,
    f a second. So x_j = f / (j mu) blocks have j live pages, down to a level k at which greedy finds its victims: of
    those that come there it takes some at once, and a share t falls to k - 1 before, to be taken then. A victim has
    k - t pages, hence WAF = B / (B - k + t). All blocks together are f / mu (1/B + ... + 1/(k+1) + t/k), and f / mu is
    WAF x (live pages) / B: which gives the share for each k and t, rising as they fall.
    """
    sums = 0.0
    for k in range(pages_per_block, 0, -1):
        # at the top of this level t is 0, at its end 1
        def at(t: float, k: int = k, sums: float = sums) -> float:
            return pages_per_block / (pages_per_block - k + t) * (sums + t / k) if k < pages_per_block or t else 1.0

        if at(1.0) >= share and k < pages_per_block:
            low, high = 0.0, 1.0
            for _ in range(60):
                middle = (low + high) / 2
                low, high = (middle, high) if at(middle) < share else (low, middle)
            return pages_per_block / (pages_per_block - k + low)
        sums += 1 / k
    return 1.0
