"""One root seed, a named stream for each purpose: evaluation never shifts training, and a resumed
run needs no generator state, since every stream starts from (root, name, number)."""

from __future__ import annotations

import zlib

import numpy as np
import torch


def stream(root: int, name: str, number: int = 0) -> list[int]:
    """Entropy for numpy's SeedSequence: the same for the same three arguments.

    >>> stream(0, "sampling", 3) == stream(0, "sampling", 3) != stream(0, "shuffling", 3)
    True
    """
    return [root, zlib.crc32(name.encode()), number]


def torch_generator(entropy: list[int]) -> torch.Generator:
    """A torch generator of its own for a stream; the global generator is never touched."""
    state = np.random.SeedSequence(entropy).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> 1))
