"""Keys and values of the episodes of a rollout. Knows no policy and no sampling.

Axes: B row of the cache, R row at work, Q new token, K key, N head, D head dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class RowCache(Cache):
    """Keys and values of a batch. The beginning that all rows share is held once; what is a row's
    own lies compact after it, whatever the row's length.

    `fit` makes room for one turn, `place` says which rows and positions the next forward pass
    writes; padding goes to a spare place at the end that no query may see.
    """

    def __init__(self, num_layers: int) -> None:
        super().__init__(layers=[RowLayer(self) for _ in range(num_layers)])
        self.shared = self.rows = self.length = 0

    @property
    def spare(self) -> int:
        return self.length

    def fit(self, kept_B: Tensor, filled: int, length: int) -> None:
        """Makes room for the next turn.

        Args:
            kept_B: which rows go on, from now on as rows 0, 1, ...
            filled: positions of a row that hold something.
            length: positions a row may need.
        """
        self.rows, self.length = len(kept_B), length
        for layer in self.layers:
            layer.fit(kept_B, filled - self.shared)

    def share(self, rows: int) -> None:
        """Makes the only row's positions so far the beginning of this many new rows."""
        self.shared, self.rows = self.visible, rows
        for layer in self.layers:
            layer.share()

    def place(self, row_R: Tensor, position_RQ: Tensor, visible: int) -> None:
        """Rows to write, where (padding: `spare`), and how many positions queries may see."""
        everyone = torch.equal(row_R, torch.arange(self.rows))  # then a view will do
        self.row_R = slice(None) if everyone else row_R
        self.where = row_R[:, None], position_RQ - self.shared
        self.visible = visible


class RowLayer(CacheLayerMixin):
    """One layer of a RowCache: values [B, N, length, D], and keys [B, N, D, length] as scores need.

    What no query may see is multiplied by 0 all the same, so that it must be a number.
    """

    def __init__(self, owner: RowCache) -> None:
        super().__init__()
        self._owner = owner

    def write(self, key_RQND: Tensor, value_RQND: Tensor) -> tuple[Tensor, Tensor]:
        """Takes new keys and values; the rows' own, [R, N, D, K] and [R, N, K, D]."""
        if not self.is_initialized:
            self.lazy_initialization(key_RQND.transpose(1, 2), value_RQND.transpose(1, 2))
        owner, (row, position) = self._owner, self._owner.where
        self.keys[row, :, :, position] = key_RQND
        self.values[row, :, position] = value_RQND
        own = owner.visible - owner.shared
        return self.keys[owner.row_R, :, :, :own], self.values[owner.row_R, :, :own]

    def share(self) -> None:
        count = self._owner.shared
        self.shared_keys = self.keys[0, :, :, :count].contiguous()
        self.shared_values = self.values[0, :, :count].contiguous()
        self._allocate(*self.shared_keys.shape[:2], self.keys.dtype)

    def fit(self, kept_B: Tensor, filled: int) -> None:
        if not self.is_initialized:
            return
        keys, values = self.keys, self.values
        self._allocate(keys.shape[1], keys.shape[2], keys.dtype)
        self.keys[..., :filled] = keys[kept_B, :, :, :filled]
        self.values[:, :, :filled] = values[kept_B, :, :filled]
        self.keys[..., filled:] = 0
        self.values[:, :, filled:] = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        heads, width, dtype = key_states.shape[1], key_states.shape[3], key_states.dtype
        self._allocate(heads, width, dtype)
        self.keys.zero_()
        self.values.zero_()
        self.shared_keys = key_states.new_empty(heads, width, 0)
        self.shared_values = value_states.new_empty(heads, 0, width)
        self.is_initialized = True

    def _allocate(self, heads: int, width: int, dtype: torch.dtype) -> None:
        rows, length = self._owner.rows, self._owner.length + 1 - self._owner.shared
        self.keys = torch.empty(rows, heads, width, length, dtype=dtype)
        self.values = torch.empty(rows, heads, length, width, dtype=dtype)

    # What transformers asks of a layer of its caches

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object):
        keys, values = self.write(key_states.transpose(1, 2), value_states.transpose(1, 2))
        shared_keys = self.shared_keys.expand(len(keys), -1, -1, -1)
        shared_values = self.shared_values.expand(len(keys), -1, -1, -1)
        keys, values = torch.cat([shared_keys, keys], 3), torch.cat([shared_values, values], 2)
        return keys.transpose(2, 3), values

    def get_seq_length(self) -> int:
        return self._owner.length

    def get_max_length(self) -> int:
        return self._owner.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._owner.visible, 0
