"""The checks of notebook 04: right answers in different words pass, usual mistakes are named.

Axes: B episode, T token position, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from agentrl_lab.learner.advantages import gae, whiten
from agentrl_lab.learner.losses import masked_mean, policy_loss, token_entropy, value_loss
from agentrl_lab.workbook.lessons import checks_ppo, printed_update, toy_desk
from agentrl_lab.workbook.lessons.toy_desk import CLIP, ENTROPY, GAE_LAMBDA, GAMMA, TEMPERATURE

# 4.1


def right_gae(rewards, values, is_action, bootstrap, *, gamma, gae_lambda):
    """By recursion from the back over the kept places."""
    found, after, later = [0.0] * len(rewards), bootstrap, 0.0
    for t in [t for t in range(len(rewards)) if is_action[t]][::-1]:
        later = rewards[t] + gamma * after - values[t] + gamma * gae_lambda * later
        found[t], after = later, values[t]
    return found


def another_right_gae(rewards, values, is_action, bootstrap, *, gamma, gae_lambda):
    """As a sum of discounted errors, on tensors, for each place anew."""
    keep = torch.tensor(is_action).bool()
    r, v = torch.tensor(rewards)[keep], torch.tensor(values)[keep]
    delta = r + gamma * torch.cat([v[1:], torch.tensor([float(bootstrap)])]) - v
    weight = (gamma * gae_lambda) ** torch.arange(len(delta))
    found = torch.zeros(len(rewards))
    found[keep] = torch.stack([(delta[t:] * weight[: len(delta) - t]).sum() for t in range(len(v))])
    return found


def broken_gae(**fault):
    def answer(rewards, values, is_action, bootstrap, *, gamma, gae_lambda):
        how = {"gamma": gamma, "gae_lambda": gae_lambda} | fault
        end = how.pop("end", bootstrap)
        values = [0.0] * len(values) if how.pop("no_value", False) else values
        return checks_ppo.slow_gae(rewards, values, is_action, end, **how)

    return answer


def starts_at_the_last_token(rewards, values, is_action, bootstrap, *, gamma, gae_lambda):
    """Right where the row ends with an action."""
    end = bootstrap if is_action[-1] else 0.0
    return right_gae(rewards, values, is_action, end, gamma=gamma, gae_lambda=gae_lambda)


def fills_tools(rewards, values, is_action, bootstrap, **how):
    found = right_gae(rewards, values, is_action, bootstrap, **how)
    return [x if m else 0.3 for x, m in zip(found, is_action, strict=True)]


def decays_by_lambda(rewards, values, is_action, bootstrap, *, gamma, gae_lambda):
    found, after, later = [0.0] * len(rewards), bootstrap, 0.0
    for t in [t for t in range(len(rewards)) if is_action[t]][::-1]:
        later = rewards[t] + gamma * after - values[t] + gae_lambda * later
        found[t], after = later, values[t]
    return found


# 4.2


def another_right_loss(logprob, logprob_old, advantage, mask, clip_ratio):
    """By cases, without a minimum."""
    ratio = (logprob - logprob_old).exp()
    high, low = ratio.clamp(max=1 + clip_ratio), ratio.clamp(min=1 - clip_ratio)
    gain = torch.where(advantage > 0, high, low) * advantage
    return -(gain * mask).sum() / mask.sum()


def right_loss(logprob, logprob_old, advantage, mask, clip_ratio):
    return policy_loss(logprob, logprob_old, advantage, mask, clip_ratio=clip_ratio)


def loss(pick=torch.min, mean=lambda gain, mask: gain[mask].mean(), sign=-1.0, back=False):
    def answer(logprob, logprob_old, advantage, mask, clip_ratio):
        ratio = ((logprob_old - logprob) if back else (logprob - logprob_old)).exp()
        clipped = ratio.clamp(1 - clip_ratio, 1 + clip_ratio)
        return sign * mean(pick(ratio * advantage, clipped * advantage), mask)

    return answer


def half_detached(logprob, logprob_old, advantage, mask, clip_ratio):
    ratio = (logprob - logprob_old).exp()
    clipped = ratio.clamp(1 - clip_ratio, 1 + clip_ratio)
    return -torch.min(ratio.detach() * advantage, clipped * advantage)[mask].mean()


# 4.3


def right_update(model, optimizer, batch, epochs=2):
    """With the package's functions."""
    mask, old = batch.action_mask_BT, batch.value_old_BT
    raw = gae(batch.reward_BT, old, mask, batch.bootstrap_B, gamma=GAMMA, gae_lambda=GAE_LAMBDA,
              turn_BT=batch.turn_BT)  # fmt: skip
    for _ in range(epochs):
        logits, logprob, value = model.score(batch.token_BT, TEMPERATURE)
        policy = policy_loss(logprob, batch.logprob_old_BT, whiten(raw, mask), mask,
                             clip_ratio=CLIP)  # fmt: skip
        entropy = masked_mean(token_entropy(logits), mask)
        kl = masked_mean(batch.logprob_old_BT - logprob, mask)
        total = policy + 0.5 * value_loss(value, old, raw + old, mask) - ENTROPY * entropy
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    return {"kl": float(kl.detach()), "entropy": float(entropy.detach())}


def another_right_update(model, optimizer, batch, epochs=2):
    """Action tokens in one row, everything written out, old numbers made anew."""
    mask = batch.action_mask_BT
    with torch.no_grad():
        _, old, first = model.score(batch.token_BT, TEMPERATURE)
    advantage = torch.zeros_like(first)
    for b in range(len(first)):
        after, later, turn = 0.0, 0.0, None
        for t in mask[b].nonzero().flatten().tolist()[::-1]:
            inside = turn == int(batch.turn_BT[b, t])
            g, d = (1.0, 1.0) if inside else (GAMMA, GAMMA * GAE_LAMBDA)
            later = float(batch.reward_BT[b, t]) + g * after - float(first[b, t]) + d * later
            advantage[b, t], after, turn = later, float(first[b, t]), int(batch.turn_BT[b, t])
    raw = advantage[mask]
    goal, white = raw + first[mask], (raw - raw.mean()) / (raw.std() + 1e-6)
    for _ in range(epochs):
        optimizer.zero_grad(set_to_none=True)
        logits, logprob, value = model.score(batch.token_BT, TEMPERATURE)
        d = logprob[mask] - old[mask]
        gain = torch.min(d.exp() * white, d.exp().clip(1 - CLIP, 1 + CLIP) * white)
        entropy = torch.distributions.Categorical(logits=logits[mask]).entropy().mean()
        error = (value[mask] - goal).pow(2).mean()
        (-gain.mean() + error / 2 - ENTROPY * entropy).backward()
        optimizer.step()
    return {"kl": -d.mean().item(), "entropy": entropy.item()}


def changed(*pairs: tuple[str, str]) -> Callable:
    """right_update with some of its text replaced: a mend that is not complete."""
    text = inspect.getsource(right_update)
    for before, after in pairs:
        assert before in text, before
        text = text.replace(before, after)
    names = dict(globals())
    exec(text, names)
    return names["right_update"]


OLD = (
    "    for _ in range(epochs):\n",
    "    _, kept, _ = model.score(batch.token_BT, TEMPERATURE)\n    for _ in range(epochs):\n",
)
GRAPH = (OLD, ("policy_loss(logprob, batch.logprob_old_BT", "policy_loss(logprob, kept"))
AGAIN = (("policy_loss(logprob, batch.logprob_old_BT", "policy_loss(logprob, logprob"),)
NO_CRITIC = (("value_loss(value, old", "value_loss(value.detach(), old"),)
NO_BASELINE = (("raw = gae(batch.reward_BT, old", "raw = gae(batch.reward_BT, 0 * old"),
               ("raw + old", "raw"))  # fmt: skip
NEVER_ZEROED = (("        optimizer.zero_grad()\n", ""),)
STEP = "        optimizer.step()\n"
ZEROED_AFTER = (*NEVER_ZEROED, (STEP, STEP + "        optimizer.zero_grad()\n"))
OVER_PADDING = (("clip_ratio=CLIP)", "clip_ratio=CLIP, count=mask.numel())"),)
OPEN_ENTROPY = (("masked_mean(token_entropy(logits), mask)", "token_entropy(logits).mean()"),)
OPEN_KL = (("kl = masked_mean(batch.logprob_old_BT - logprob, mask)",
            "kl = (batch.logprob_old_BT - logprob).mean()"),)  # fmt: skip
ROWS = (("whiten(raw, mask)", "torch.cat([whiten(r[None], m[None]) for r, m in zip(raw, mask)])"),)
NOT_PER_TURN = (("\n              turn_BT=batch.turn_BT)", ")"),)
NO_RETURN = (("    return {", "    said = {"),)


RIGHT = {
    checks_ppo.check_gae: (right_gae, another_right_gae),
    checks_ppo.check_clipped_loss: (right_loss, another_right_loss),
    checks_ppo.check_update: (right_update, another_right_update, changed(*ZEROED_AFTER)),
}
WRONG = [
    (checks_ppo.check_gae, broken_gae(end=0.0), "is `bootstrap`, not 0"),
    (checks_ppo.check_gae, broken_gae(skip=False), "tool tokens take part"),
    (checks_ppo.check_gae, broken_gae(decays=True), "decays on tool tokens"),
    (checks_ppo.check_gae, broken_gae(gae_lambda=1.0), "lambda is missing"),
    (checks_ppo.check_gae, broken_gae(gae_lambda=0.0), "delta alone"),
    (checks_ppo.check_gae, broken_gae(gae_lambda=1.0, no_value=True), "never subtracted"),
    (checks_ppo.check_gae, starts_at_the_last_token, "is `bootstrap`, not 0"),
    (checks_ppo.check_gae, decays_by_lambda, "gamma is missing in the decay"),
    (checks_ppo.check_gae, fills_tools, "on tool tokens the advantage must be 0"),
    (checks_ppo.check_gae, lambda *a, **k: None, "one number per token"),
    (checks_ppo.check_gae, lambda *a, **k: 0.5, "one number per token"),
    (checks_ppo.check_gae, lambda *a, **k: ["x"] * len(a[0]), "finite number, got 'x'"),
    (checks_ppo.check_gae, lambda *a, **k: right_gae(*a, gamma=0.9, gae_lambda=k["gae_lambda"]),
     "use the arguments"),
    (checks_ppo.check_gae, lambda *a, **k: right_gae(*a, gamma=k["gamma"], gae_lambda=0.5),
     "use the arguments"),
    (checks_ppo.check_gae, lambda *a, **k: [1.0] * len(a[0]), "expected"),
    (checks_ppo.check_clipped_loss, loss(sign=1.0), "wrong sign"),
    (checks_ppo.check_clipped_loss, loss(pick=lambda a, b: a), "the clip is missing"),
    (checks_ppo.check_clipped_loss, loss(pick=lambda a, b: b), "only the clipped term"),
    (checks_ppo.check_clipped_loss, loss(pick=torch.max), "that is the larger"),
    (checks_ppo.check_clipped_loss, loss(back=True), "old over new"),
    (checks_ppo.check_clipped_loss, loss(mean=lambda g, m: g.mean()), "the mask is not used"),
    (checks_ppo.check_clipped_loss, loss(mean=lambda g, m: (g * m).mean()), "by all tokens"),
    (checks_ppo.check_clipped_loss, loss(mean=lambda g, m: g[m].sum()), "a sum"),
    (checks_ppo.check_clipped_loss, lambda *a: right_loss(*a).detach(), "no gradient flows"),
    (checks_ppo.check_clipped_loss, lambda *a: right_loss(*a[:4], 0.2), "use the argument"),
    (checks_ppo.check_clipped_loss, half_detached, "some part of the ratio is detached"),
    (checks_ppo.check_clipped_loss, lambda *a: -1.0, "one number as a tensor"),
    (checks_ppo.check_clipped_loss, lambda *a: right_loss(*a) + 9, "expected"),
    (checks_ppo.check_update, printed_update.printed_update, "policy gradient of the first epoch"),
    (checks_ppo.check_update, changed(*GRAPH), "logprob_old keeps its graph"),
    (checks_ppo.check_update, changed(*AGAIN), "logprob_old keeps its graph"),
    (checks_ppo.check_update, changed(*NO_CRITIC), "value head does not move"),
    (checks_ppo.check_update, changed(*NO_BASELINE), "never uses the value"),
    (checks_ppo.check_update, changed(*NEVER_ZEROED), "never zeroed"),
    (checks_ppo.check_update, changed(*OVER_PADDING), "padding"),
    (checks_ppo.check_update, changed(*OPEN_ENTROPY), "padding"),
    (checks_ppo.check_update, changed(*OPEN_KL), "kl is"),
    (checks_ppo.check_update, changed(*ROWS), "whitening per row"),
    (checks_ppo.check_update, changed(*NOT_PER_TURN), "discount per token"),
    (checks_ppo.check_update, changed(*NO_RETURN), "return {"),
    (checks_ppo.check_update, lambda *a, **k: {"kl": 0.0, "loss": 0.0}, "return {"),
]  # fmt: skip


def test_the_slow_gae_is_that_of_the_package():
    row: list[list[Tensor]] = [[0.0, 1.0, 9.0, 0.5], [0.2, 0.4, 7.0, 0.1], [1, 1, 0, 1]]
    slow = checks_ppo.slow_gae(*row, 0.3, gamma=0.9, gae_lambda=0.5)
    fast = gae(*(torch.tensor([x]) for x in row), torch.tensor([0.3]), gamma=0.9, gae_lambda=0.5)
    assert slow == pytest.approx(fast[0].tolist())


def test_the_printed_update_has_its_faults_and_the_package_not():
    """H8: exactly no policy gradient, a second backward that fails, a critic that stays."""
    model, batch = checks_ppo.fixed()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        printed_update.printed_update(model, optimizer, batch)
    assert torch.equal(model.value_head, before["value_head"])
    seen = toy_desk.parts(model, batch, toy_desk.Recipe())
    (found,) = torch.autograd.grad(seen.policy_loss, model.output)
    assert found.abs().max() > 0.01


def test_the_policy_gradient_of_the_printed_update_is_exactly_zero(monkeypatch):
    monkeypatch.setattr(printed_update, "ENTROPY", 0.0)
    model, batch = checks_ppo.fixed()
    printed_update.printed_update(model, torch.optim.SGD(model.parameters(), lr=1.0), batch, 1)
    assert not model.output.grad.any() and not model.embedding.grad.any()
