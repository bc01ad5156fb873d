"""A PPO update as it is often printed. IT IS WRONG ON PURPOSE, in six places: an exercise.

The faults are those of a published listing (H8), in our own words and on the toy desk's model.
Nothing else in the package uses this module; the right update is `agentrl_lab.learner.ppo`.
"""

from __future__ import annotations

import torch

from agentrl_lab.learner.trajectories import Batch
from agentrl_lab.workbook.lessons.toy_desk import CLIP, ENTROPY, GAMMA, TEMPERATURE, Bigram


def printed_update(
    model: Bigram, optimizer: torch.optim.Optimizer, batch: Batch, epochs: int = 2
) -> dict[str, float]:
    """WRONG. Two epochs of PPO over a batch; KL and entropy of the last one."""
    token_BT = batch.token_BT
    # What each token's episode still earns.
    return_BT, running_B = torch.zeros_like(batch.reward_BT), torch.zeros(len(token_BT))
    for t in reversed(range(token_BT.shape[1])):
        running_B = batch.reward_BT[:, t] + GAMMA * running_B
        return_BT[:, t] = running_B
    advantage_BT = (return_BT - return_BT.mean()) / (return_BT.std() + 1e-8)
    # Where the policy stands before the update.
    _, logprob_old_BT, _ = model.score(token_BT, TEMPERATURE)
    for _ in range(epochs):
        logits_BTV, logprob_BT, _ = model.score(token_BT, TEMPERATURE)
        with torch.no_grad():
            _, _, value_BT = model.score(token_BT, TEMPERATURE)
        ratio_BT = (logprob_BT - logprob_old_BT).exp()
        clipped_BT = ratio_BT.clamp(1 - CLIP, 1 + CLIP)
        policy_loss = -torch.min(ratio_BT * advantage_BT, clipped_BT * advantage_BT).mean()
        value_loss = (value_BT - return_BT).square().mean()
        entropy = torch.distributions.Categorical(logits=logits_BTV).entropy().mean()
        kl = (logprob_old_BT - logprob_BT).mean()
        loss = policy_loss + 0.5 * value_loss - ENTROPY * entropy
        loss.backward()
        optimizer.step()
    return {"kl": float(kl.detach()), "entropy": float(entropy.detach())}
