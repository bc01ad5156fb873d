"""The policy: a causal language model with a value head. Knows no tickets and no rewards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from agentrl_lab.config import data_dir, nearest
from agentrl_lab.learner.tokenization import ChatTokenizer
from agentrl_lab.records import Message

VALUE_HEAD_FILE = "value_head.safetensors"
# Bars and tables of every loaded policy would drown our own lines.
disable_progress_bar()
set_verbosity_error()


class PolicyError(ValueError):
    """A policy folder cannot be used; the message says why and what to do."""


class Policy(nn.Module):
    """A causal LM and a linear value head on its last hidden state.

    Args:
        model: any Hugging Face causal LM with sdpa attention.
        tokenizer: its tokenizer, with a chat template.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: ChatTokenizer) -> None:
        super().__init__()
        if model.config._attn_implementation != "sdpa":  # eager would *add* our true/false masks
            raise ValueError(
                f"the model has attention {model.config._attn_implementation!r}, not 'sdpa': "
                "load it with attn_implementation='sdpa'"
            )
        self.model, self.tokenizer = model, tokenizer
        self.value_head = nn.Linear(model.config.hidden_size, 1, dtype=model.dtype)
        nn.init.zeros_(self.value_head.weight)  # law 25: the first updates see 0, not noise
        nn.init.zeros_(self.value_head.bias)
        self.eval()

    def hidden(
        self,
        token_BT: Tensor,
        *,
        position_BT: Tensor,
        mask: Tensor | None = None,
        cache: Cache | None,
    ) -> Tensor:
        """Last hidden states [B, T, H]: state t predicts token t + 1 and carries its value."""
        return self.model.base_model(
            input_ids=token_BT, position_ids=position_BT, attention_mask=mask, cache=cache,
            use_cache=cache is not None,
        ).last_hidden_state  # fmt: skip

    def logits(self, hidden: Tensor) -> Tensor:
        return self.model.get_output_embeddings()(hidden)

    def value(self, hidden: Tensor) -> Tensor:
        return self.value_head(hidden).squeeze(-1)

    @contextmanager
    def without_dropout(self) -> Iterator[None]:
        """Eval mode for rollout and update alike (laws 19, PPO-15); the mode is left as found."""
        was_training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(was_training)

    def save(self, folder: Path, *, value_head: bool = True) -> None:
        """Writes model, tokenizer and value head in Hugging Face format (safetensors only).

        Raises:
            OSError: it cannot be written.
        """
        try:
            self.model.save_pretrained(folder)
            self.tokenizer.tokenizer.save_pretrained(folder)
            if value_head:
                weights = {k: v.contiguous() for k, v in self.value_head.state_dict().items()}
                save_file(weights, folder / VALUE_HEAD_FILE)
        except SafetensorError as error:
            raise OSError(f"policy folder {folder} cannot be written: {error}") from error


def find_policy(name: str) -> Path:
    """The folder of a policy: a folder, or a name under data/policies.

    Raises:
        PolicyError: there is none; the nearest name is offered.
    """
    shipped = data_dir() / "policies"
    if not name:
        raise PolicyError("policy must be a folder or a name under data/policies, got an empty one")
    for path in (Path(name), shipped / name):
        if path.is_dir():
            return path
    known = [path.name for path in shipped.iterdir() if path.is_dir()]
    raise PolicyError(f"no policy at {name!r}: {nearest(name, known)}")


def load_policy(name: str | Path) -> Policy:
    """The policy in a folder or under data/policies. Nothing is downloaded, nothing unpickled.

    Raises:
        PolicyError: the folder is missing, empty, cut or not a causal LM.
    """
    folder = find_policy(str(name))
    for needed in ("config.json", "model.safetensors", "tokenizer.json"):
        if not (folder / needed).is_file():
            inner = folder / "policy"
            remedy = f"did you mean {inner}?" if inner.is_dir() else _REMEDY
            raise PolicyError(f"policy folder {folder} has no {needed}: {remedy}")
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, dtype=torch.float32,
            output_loading_info=True,
        )  # fmt: skip
        # Weights that lack would be filled with random numbers, those too many be left out.
        if odd := {*report["missing_keys"], *report["unexpected_keys"]}:
            raise ValueError(f"model.safetensors and config.json differ in {min(odd)}")
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        policy = Policy(model, ChatTokenizer(tokenizer))
        head = folder / VALUE_HEAD_FILE
        if head.is_file():
            policy.value_head.load_state_dict(load_file(head))
        _try_out(policy)
    except Exception as error:  # four libraries, a dozen exception types: one clear line for all
        reason = str(error).strip().split("\n")[0][:200]
        raise PolicyError(f"policy folder {folder} cannot be read ({reason}): {_REMEDY}") from error
    return policy


@torch.inference_mode()
def _try_out(policy: Policy) -> None:
    """A short conversation through template, tokenizer and model: what does not fit fails here."""
    asked = (Message("system", "s"), Message("user", "u"))
    ids = policy.tokenizer.opening(asked, [])
    ids += policy.tokenizer.after_action(Message("tool", "t"), ended=False)
    size = policy.model.get_input_embeddings().num_embeddings
    if max(ids) >= size or policy.tokenizer.end_id >= size:
        raise ValueError(f"the tokenizer has ids beyond the model's vocabulary of {size}")
    policy.hidden(torch.tensor([ids]), position_BT=torch.arange(len(ids))[None], cache=None)


_REMEDY = "restore it from git, or rebuild it with `agentrl-lab warmstart`"


def num_parameters(policy: Policy) -> int:
    """Parameters, tied ones counted once."""
    return sum(parameter.numel() for parameter in policy.parameters())
