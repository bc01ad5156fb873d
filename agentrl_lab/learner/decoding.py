"""A Llama's forward pass for the rollout: same numbers, none of the cost of a module call.

With a model this small and one token a row, calling modules takes longer than the arithmetic.
Any other architecture goes through its own forward pass.

Axes: R row, Q new token, K key, H hidden, N head, D head dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaModel, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.row_cache import RowCache, RowLayer


@dataclass(frozen=True, slots=True)
class _Block:
    """Weights of one layer; those that read the same input are stacked into one matrix."""

    norm_H: Tensor
    query_key_value: Tensor
    out: Tensor
    inner_norm_H: Tensor
    gate_up: Tensor
    down: Tensor

    @classmethod
    def of(cls, layer: LlamaDecoderLayer) -> _Block:
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        return cls(
            layer.input_layernorm.weight,
            torch.cat([projection.weight for projection in projections]),
            attention.o_proj.weight,
            layer.post_attention_layernorm.weight,
            torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
            mlp.down_proj.weight,
        )


class LlamaDecoder:
    """The hidden states of a Llama without gradients; `fits` says whether a model is one.

    Args:
        model: its weights as they are now; build a new decoder after an update.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, self.config = model.base_model, model.config
        self.blocks = [_Block.of(layer) for layer in self.model.layers]

    @staticmethod
    def fits(policy: Policy) -> bool:
        """Whether it is a plain Llama: no biases, the usual activation, its own forward pass."""
        if type(policy).hidden is not Policy.hidden:
            return False
        config, plain = policy.model.config, type(policy.model.base_model) is LlamaModel
        return plain and config.hidden_act == "silu" and not (
            config.attention_bias or config.mlp_bias
        )

    def hidden(
        self,
        token_RQ: Tensor,
        *,
        position_RQ: Tensor,
        asked_RG: Tensor,
        mask: Tensor,
        cache: RowCache,
    ) -> Tensor:
        """Hidden states [R, G, H] of some tokens of each row; the others only fill the cache.

        Args:
            token_RQ: token ids.
            position_RQ: position of each in its row.
            asked_RG: which tokens of a row are asked for.
            mask: [R, 1, Q, K], true where a query may look.
            cache: takes the new keys and values, gives all that are visible.
        """
        x_RQH = F.embedding(token_RQ, self.model.embed_tokens.weight)
        cos, sin = (t[:, :, None] for t in self.model.rotary_emb(x_RQH, position_RQ))
        half = sin.shape[-1] // 2  # the sine takes the sign that the rotated half would have
        turn = cos, torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)
        mask = mask[..., cache.shared :]  # all may look at what all share
        bias = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
        asked = torch.arange(len(token_RQ))[:, None], asked_RG
        for block, layer in zip(self.blocks, cache.layers, strict=True):
            query, keys, values = self._project(block, x_RQH, turn, layer)
            if block is self.blocks[-1] and token_RQ.shape[1] > 1:
                query, x_RQH = query[asked], x_RQH[asked]
                bias = bias[:, 0][asked][:, None]
            seen = _attend(query, keys, values, bias, layer)
            x_RQH = x_RQH + F.linear(seen, block.out)
            x_RQH = x_RQH + self._feed_forward(block, x_RQH)
        return self._norm(x_RQH, self.model.norm.weight)

    def _norm(self, x: Tensor, weight_H: Tensor) -> Tensor:
        return F.rms_norm(x, weight_H.shape, weight_H, self.config.rms_norm_eps)

    def _project(
        self, block: _Block, x_RQH: Tensor, turn: tuple[Tensor, Tensor], layer: RowLayer
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [R, Q, N, D] and all visible keys and values, the new ones among them."""
        heads, shared = self.config.num_attention_heads, self.config.num_key_value_heads
        mixed = F.linear(self._norm(x_RQH, block.norm_H), block.query_key_value)
        mixed = mixed.unflatten(-1, (heads + 2 * shared, -1))
        turned, value = mixed[:, :, : heads + shared], mixed[:, :, heads + shared :]
        cos, sin = turn
        turned = turned * cos + turned.roll(turned.shape[-1] // 2, -1) * sin
        return turned[:, :, :heads], *layer.write(turned[:, :, heads:], value)

    def _feed_forward(self, block: _Block, x_RQH: Tensor) -> Tensor:
        inner = F.linear(self._norm(x_RQH, block.inner_norm_H), block.gate_up)
        gate, up = inner.chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, block.down)


def _attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, layer: RowLayer) -> Tensor:
    """Attention [R, Q, N * D] of queries [R, Q, N, D] over what all rows share and their own."""
    rows, count, heads, width = query.shape
    repeats = heads // keys.shape[1]
    query = (query * width**-0.5).transpose(1, 2)
    shared_keys, shared_values = layer.shared_keys, layer.shared_values
    if repeats > 1:  # several query heads share one key head
        keys, values = (x.repeat_interleave(repeats, dim=1) for x in (keys, values))
        shared_keys, shared_values = (
            x.repeat_interleave(repeats, dim=0) for x in (shared_keys, shared_values)
        )
    own = (query @ keys).add_(bias)
    flat = query.transpose(0, 1).reshape(heads, rows * count, width)
    shared = (flat @ shared_keys).view(heads, rows, count, -1).transpose(0, 1)
    weight = torch.cat([shared, own], dim=-1).softmax(dim=-1)
    shared, own = weight.split([shared.shape[-1], own.shape[-1]], dim=-1)
    flat = shared.transpose(0, 1).reshape(heads, rows * count, -1)
    seen = own @ values + (flat @ shared_values).view(heads, rows, count, width).transpose(0, 1)
    return seen.transpose(1, 2).flatten(2)
