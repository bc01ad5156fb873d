"""Fair, plain ways to do the same work: what the speed of rollout and update is compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from agentrl_lab.config import PPOConfig
from agentrl_lab.learner import losses, ppo
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.trajectories import Batch
from agentrl_lab.world.env import TicketEnv


@torch.inference_mode()
def generate_rollout(
    policy: Policy, envs: list[TicketEnv], tasks: range, *, temperature: float, max_new: int,
    numbers: bool = False,
) -> int:  # fmt: skip
    """Whole conversations, left-padded, through transformers' generate each turn; policy tokens.

    Args:
        policy: its model generates.
        envs: one for each task.
        tasks: numbers of the tasks.
        temperature: of the sampling.
        max_new: tokens of an action.
        numbers: also log-probability, entropy and value of each new token, which PPO needs and
            `generate` does not give: one forward pass over the whole conversations each turn.
    """
    tokenizer, pad = policy.tokenizer, policy.tokenizer.tokenizer.pad_token_id
    for env, task in zip(envs, tasks, strict=True):
        env.reset(options={"index": task})
    ids = [tokenizer.opening(env.messages, env.tools) for env in envs]
    running, written = list(range(len(envs))), 0
    while running:
        longest = max(len(ids[n]) for n in running)
        rows = [[pad] * (longest - len(ids[n])) + ids[n] for n in running]
        mask = [[0] * (longest - len(ids[n])) + [1] * len(ids[n]) for n in running]
        whole = policy.model.generate(
            torch.tensor(rows), attention_mask=torch.tensor(mask), do_sample=True, top_k=0,
            temperature=temperature, max_new_tokens=max_new, pad_token_id=pad,
            eos_token_id=tokenizer.end_id,
        )  # fmt: skip
        if numbers:
            scores_of(policy, whole, torch.tensor(mask), temperature)
        out = whole[:, longest:].tolist()
        for n, new in zip(list(running), out, strict=True):
            ended = tokenizer.end_id in new
            action = new[: new.index(tokenizer.end_id) + 1] if ended else new
            written += len(action)
            _, _, stopped, _, _ = envs[n].play(tokenizer.action_text(action), finished=ended)
            ids[n] += action + tokenizer.after_action(envs[n].messages[-1], ended=ended)
            if stopped:
                running.remove(n)
    return written


def scores_of(
    policy: Policy, whole_BT: Tensor, mask_BT: Tensor, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probability, entropy and value of the tokens that were generated after the prompts."""
    new = whole_BT.shape[1] - mask_BT.shape[1]
    seen_BT = torch.nn.functional.pad(mask_BT, (0, new), value=1)
    position_BT = (seen_BT.cumsum(dim=1) - 1).clamp(min=0)
    hidden_BTH = policy.hidden(whole_BT, position_BT=position_BT, mask=seen_BT, cache=None)
    before_BTH = hidden_BTH[:, -new - 1 : -1]
    logits_BTV = policy.logits(before_BTH) / temperature
    logprob_BTV = logits_BTV.log_softmax(dim=-1)
    logprob_BT = logprob_BTV.gather(-1, whole_BT[:, -new:, None]).squeeze(-1)
    return logprob_BT, losses.token_entropy(logits_BTV), policy.value(before_BTH)


def plain_minibatch_gradient(
    policy: Policy, batch: Batch, targets: ppo.Targets, rows_B: Tensor, config: PPOConfig,
    *, temperature: float,
) -> Tensor:  # fmt: skip
    """Gradient of the PPO loss of a minibatch, on padded whole rows with all logits."""
    policy.zero_grad(set_to_none=True)
    part = batch.rows(rows_B)
    length = part.token_BT.shape[1]
    mask_BT = part.action_mask_BT
    hidden_BTH = policy.hidden(
        part.token_BT, position_BT=torch.arange(length)[None], cache=None
    )
    logits_BTV = policy.logits(hidden_BTH)[:, :-1] / temperature
    token_BT = part.token_BT[:, 1:]
    logprob_BT = torch.nn.functional.pad(
        logits_BTV.log_softmax(-1).gather(-1, token_BT[..., None]).squeeze(-1), (1, 0)
    )
    entropy_BT = torch.nn.functional.pad(losses.token_entropy(logits_BTV), (1, 0))
    value_BT = torch.nn.functional.pad(policy.value(hidden_BTH)[:, :-1], (1, 0))
    advantage_BT = targets.advantage_BT[rows_B, :length]
    loss = (
        losses.policy_loss(logprob_BT, part.logprob_old_BT, advantage_BT, mask_BT,
                           clip_ratio=config.clip_ratio)
        + config.value_coefficient * losses.value_loss(
            value_BT, part.value_old_BT, targets.return_BT[rows_B, :length], mask_BT)
        - config.entropy_coefficient * losses.masked_mean(entropy_BT, mask_BT)
    )  # fmt: skip
    loss.backward()
    return loss.detach()
