"""One PPO update from end to end on toy episodes.

Which test holds which law of tokens, masks, advantages and updates (names are test files, or tests
of this file):

 1 ids as sampled          test_rollout (ids_are_kept_as_sampled), test_tokenization (seam)
 2 tool tokens, policy     test_losses (mask, gradient_lies_on), test_forward (reaches_the_states)
 3 ... and everything else test_losses (kl, value, entropy), here: tool_tokens_have_no_say
 4 mask not from ids       test_trajectories (mask_from_lengths)
 5 header and newline      test_tokenization (boundary), test_rollout (every_token), test_sft
 6 mask as long as ids     test_trajectories (covers_the_spans, another_count), test_advantages
 7 mask not all 0 or 1     test_trajectories (nothing_or_of_everything)
 8 prefix property         test_tokenization (prefix, strips_thoughts)
 9 limits count tokens     test_tokenization (count, budget), test_rollout (truncates)
10 GAE skips tool tokens   test_advantages (skips_tool_tokens and its wrong versions)
11 ... equals compacted    test_advantages (compacted, content_of_tool_tokens)
12 reward on policy token  test_trajectories (reward_in_place), test_rollout (own_last_token)
13 returns cross tools     test_advantages (returns_cross_tool_tokens)
14 not one token late      test_trajectories (reward_one_token_late)
15 turns not by reward     test_trajectories, test_advantages (reward_of_every_turn)
16 truncated, terminated   test_advantages (truncated), test_rollout (truncates, no_bootstrap)
17 gamma per what          test_advantages (turns), here: discount_per
18 lambda, bias, variance  test_advantages (lambda)
19 first ratio is 1        test_rollout (first_ratio), here: first_ratio
20 KL before the step      here: kl_stop
21 clip does not bound KL  here: clip_does_not_bound; test_trajectories (fifth_epoch)
22 padding dilutes nothing test_losses (padding), test_forward (padding_has_no_say)
23 which mean              test_losses (token_mean), here: written_out, micro_batch
24 whitening               test_advantages (whiten), here: targets_are_whitened
25 value head from zero    test_policy, here: untouched_value_head
26 masked log-prob         test_losses (extremes)
27 loss near zero          test_losses (ratio_one), here: loss_near_zero

All of 1 to 27 apply. In part they cannot be broken here: thoughts are never stripped, since history
is not rendered again (8); there is no KL term in the reward whose masking could fail (3); discounts
are per turn by default, so RAGEN's second gamma has no counterpart (17).

Axes: B episode, T token position, M action tokens, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from agentrl_lab.config import PPOConfig, SamplingConfig
from agentrl_lab.learner import losses, ppo
from agentrl_lab.learner.advantages import gae
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.ppo import NonFiniteUpdate, Targets, make_optimizer, make_targets, update
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.trajectories import (
    Batch,
    StaleTrajectories,
    Trajectory,
    TrajectoryBuffer,
    pack,
)
from tests import tiny
from tests.tiny import EndingPolicy, NumberTokenizer, ToyWorld, trajectory

VOCABULARY, TEMPERATURE, EPISODES = 24, 0.7, 8
CONFIG = PPOConfig(
    episodes_per_update=EPISODES, minibatch_episodes=4, microbatch_episodes=2, learning_rate=1e-3
)


def make_policy(dtype: torch.dtype = torch.float32) -> EndingPolicy:
    model = tiny.llama(VOCABULARY, hidden=16).to(dtype)
    return EndingPolicy(model, NumberTokenizer(), push=1.5)


def collect(policy: Policy, tasks: int = EPISODES, seed: int = 0) -> list[Trajectory]:
    """Two turns of up to five tokens; a turn earns the share of even ids in its action."""

    def pay(task: int, turn: int, text: str) -> float:
        ids = [int(word) for word in text.split()]
        return sum(token % 2 == 0 for token in ids) / 5

    def make() -> ToyWorld:
        return ToyWorld(
            request=lambda task: [3, *range(4, 4 + task % 4)],
            answer=lambda task, turn: [4] * (1 + task % 3),
            pay=pay,
            turns=2,
        )

    collector = Collector(policy, make, SamplingConfig(action_tokens=5, context_tokens=64))
    return collector.collect(range(tasks), temperature=TEMPERATURE, seed=[seed])


@pytest.fixture(scope="module")
def episodes() -> list[Trajectory]:
    found = collect(make_policy())
    assert len({len(t.ids) for t in found}) > 3
    return found


def run(policy: Policy, episodes: list[Trajectory], config: PPOConfig = CONFIG,
        optimizer: torch.optim.Optimizer | None = None, **named) -> dict[str, float]:  # fmt: skip
    named = {"temperature": TEMPERATURE, "generator": torch.Generator().manual_seed(0)} | named
    optimizer = optimizer or make_optimizer(policy, config)
    return update(policy, optimizer, TrajectoryBuffer(episodes), config, **named)


def weights(policy: Policy) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in policy.named_parameters()}


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def gradient(
    policy: Policy, batch: Batch, targets: Targets, config: PPOConfig, rows: Tensor | None = None
) -> tuple[dict[str, Tensor], dict[str, float]]:
    rows = torch.arange(len(batch.length_B)) if rows is None else rows
    optimizer = make_optimizer(policy, config)
    parts = ppo.minibatch_gradient(
        policy, optimizer, batch, targets, rows, config, temperature=TEMPERATURE
    )
    found = {n: p.grad.clone() for n, p in policy.named_parameters() if p.grad is not None}
    return found, parts


def distance(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    assert found.keys() == expected.keys()
    return max(float((found[n] - expected[n]).norm() / expected[n].norm()) for n in expected)


def moved_a_little(policy: EndingPolicy, scale: float = 0.05) -> EndingPolicy:
    """The policy after a step in a random direction: ratios are no longer 1."""
    torch.manual_seed(1)
    with torch.no_grad():
        for p in policy.parameters():
            p += scale * torch.randn_like(p) * p.abs().mean()
    return policy


# The first minibatch


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_update_first_ratio_is_one_at_the_temperature_of_the_rollout(temperature, episodes):
    """Law 19, PPO-16: and visibly not 1 at another."""
    error = run(make_policy(), episodes, temperature=temperature)["first_ratio_error"]
    assert error < 1e-4 if temperature == TEMPERATURE else error > 0.05


def test_update_loss_near_zero_at_step_one_is_no_fault(episodes):
    """Law 27: ratio 1 and advantages of mean 0 give loss 0, clip fraction 0, KL 0, a gradient."""
    batch = pack(episodes)
    found, parts = gradient(make_policy(), batch, make_targets(batch, CONFIG), CONFIG)
    assert parts["policy_loss"] == pytest.approx(0.0, abs=1e-4)
    assert parts["kl_old"] == pytest.approx(0.0, abs=1e-6)
    assert parts["clip_fraction"] == 0.0
    assert all(g.norm() > 1e-6 for g in found.values())


def test_update_untouched_value_head_says_zero():
    """Law 25: a fresh head adds no noise to the first advantages."""
    policy = Policy(tiny.llama(VOCABULARY, hidden=16), NumberTokenizer())
    batch = pack(collect(policy))
    assert not batch.value_old_BT.any()
    targets = make_targets(batch, PPOConfig(gae_lambda=1.0, gamma=1.0))
    # then the return of a token is what the rest of its episode earns
    first = batch.action_mask_BT.int().argmax(dim=1)
    earned = targets.return_BT[torch.arange(EPISODES), first]
    assert_close(earned, batch.reward_BT.sum(dim=1))


# The gradient of a minibatch


MINIBATCHES = [torch.arange(EPISODES), torch.tensor([6, 1, 3])]

def written_out(policy: EndingPolicy, batch: Batch, targets: Targets, config: PPOConfig):
    """The whole loss over padded tensors in one piece, by its definition."""
    mask = batch.action_mask_BT
    attention_mask = (torch.arange(mask.shape[1]) < batch.length_B[:, None]).long()
    hidden = policy.model.base_model(batch.token_BT, attention_mask=attention_mask)
    hidden_BTH = F.pad(hidden.last_hidden_state[:, :-1], (0, 0, 1, 0))  # now aligned to the token
    logprobs_BTV = (policy.logits(hidden_BTH) / TEMPERATURE).log_softmax(-1)
    new = logprobs_BTV.gather(-1, batch.token_BT[..., None]).squeeze(-1)[mask]
    entropy = -(logprobs_BTV.exp() * logprobs_BTV).sum(-1)[mask].mean()
    old, value_old = batch.logprob_old_BT[mask], batch.value_old_BT[mask]
    advantage, goal = targets.advantage_BT[mask], targets.return_BT[mask]
    value = policy.value(hidden_BTH)[mask]
    ratio, epsilon = (new - old).exp(), config.clip_ratio
    gain = torch.min(ratio * advantage, ratio.clip(1 - epsilon, 1 + epsilon) * advantage)
    error = (value - goal) ** 2
    if config.value_clip:
        near = value_old + (value - value_old).clip(-config.value_clip, config.value_clip)
        error = torch.max(error, (near - goal) ** 2)
    parts = {
        "policy_loss": -gain.mean(),
        "value_loss": error.mean(),
        "entropy": entropy,
        "kl_old": (ratio - 1 - (new - old)).mean(),
    }
    loss = parts["policy_loss"] + config.value_coefficient * parts["value_loss"]
    (loss - config.entropy_coefficient * entropy).backward()
    found = {n: p.grad.clone() for n, p in policy.named_parameters() if p.grad is not None}
    policy.zero_grad()
    return found, {name: float(value.detach()) for name, value in parts.items()}


@pytest.mark.parametrize("rows", MINIBATCHES, ids=["all", "some"])
@pytest.mark.parametrize("value_clip", [0.0, 0.1])
def test_minibatch_gradient_equals_the_loss_written_out(episodes, sharp_norm, value_clip, rows):
    """Laws 3, 22, 23: every mean is over the action tokens of the minibatch."""
    config = PPOConfig(microbatch_episodes=2, value_clip=value_clip, entropy_coefficient=0.1)
    batch = pack(episodes, torch.float64)
    targets, policy = make_targets(batch, config), moved_a_little(make_policy(torch.float64))
    part, length = batch.rows(rows), int(batch.length_B[rows].max())
    goals = Targets(*(x[rows, :length] for x in (targets.advantage_BT, targets.return_BT)))
    expected, expected_parts = written_out(policy, part, goals, config)
    found, parts = gradient(policy, batch, targets, config, rows)
    assert distance(found, expected) < 1e-10
    for name, value in expected_parts.items():
        assert parts[name] == pytest.approx(value, rel=1e-10), name
    assert 0.02 < parts["clip_fraction"] < 0.98  # both sides of the clip were at work
    assert parts["ratio_error"] > config.clip_ratio




@pytest.mark.parametrize("rows", MINIBATCHES, ids=["all", "some"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 3e-6)], ids=["f64", "f32"]
)
def test_micro_batch_size_never_changes_the_gradient(episodes, sharp_norm, dtype, tolerance, rows):
    """PPO-30, law 23."""
    batch = pack(episodes, dtype)
    targets, policy = make_targets(batch, CONFIG), moved_a_little(make_policy(dtype))
    expected, expected_parts = gradient(
        policy, batch, targets, PPOConfig(microbatch_episodes=EPISODES), rows
    )
    for size in (1, 2, 3, 5):
        config = PPOConfig(microbatch_episodes=size)
        found, parts = gradient(policy, batch, targets, config, rows)
        assert distance(found, expected) < tolerance, size
        assert parts == pytest.approx(expected_parts, rel=1e-4, abs=1e-7), size


def test_micro_batch_check_rejects_a_mean_of_means(episodes, sharp_norm, monkeypatch):
    mean = losses.masked_mean
    monkeypatch.setattr(losses, "masked_mean", lambda x, mask, count=None: mean(x, mask))
    with pytest.raises(AssertionError):
        test_micro_batch_size_never_changes_the_gradient(
            episodes, None, torch.float64, 1e-12, MINIBATCHES[0]
        )


def test_tool_tokens_have_no_say_in_targets_and_gradient(episodes):
    """Law 3: whatever stands at tool tokens and padding, NaN included, nothing changes."""
    batch, policy = pack(episodes), moved_a_little(make_policy())
    targets = make_targets(batch, CONFIG)
    expected, expected_parts = gradient(policy, batch, targets, CONFIG)
    mask = batch.action_mask_BT
    fields = {name: getattr(batch, name) for name in Batch.__slots__}
    for name in ("logprob_old_BT", "value_old_BT", "reward_BT"):
        fields[name] = torch.where(mask, fields[name], float("nan"))
    noisy = Batch(**fields)
    noisy_targets = make_targets(noisy, CONFIG)
    assert torch.equal(noisy_targets.advantage_BT, targets.advantage_BT)
    found, parts = gradient(policy, noisy, noisy_targets, CONFIG)
    assert equal(found, expected) and parts == expected_parts


# Targets


def test_targets_are_whitened_over_the_action_tokens_of_the_update(episodes):
    """Law 24: advantages are scaled, returns are not."""
    batch = pack(episodes)
    targets = make_targets(batch, CONFIG)
    chosen = targets.advantage_BT[batch.action_mask_BT]
    assert chosen.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert chosen.std().item() == pytest.approx(1.0, abs=1e-3)
    assert not targets.advantage_BT[~batch.action_mask_BT].any()
    raw = gae(batch.reward_BT, batch.value_old_BT, batch.action_mask_BT, batch.bootstrap_B,
              gamma=0.99, gae_lambda=0.95, turn_BT=batch.turn_BT)  # fmt: skip
    assert torch.equal(targets.return_BT, raw + batch.value_old_BT)


def test_targets_by_hand():
    # one episode, V = 0, turns of two and one token, rewards 0 and 1; gamma 0.5, lambda 1
    # per turn: returns 0.5 0.5 | 1;  per token: 0.25 0.5 | 1
    batch = pack([trajectory(range(6), [(1, 3), (4, 5)], [0.0, 1.0])])
    for per, expected in (("turn", [0, 0.5, 0.5, 0, 1, 0]), ("token", [0, 0.25, 0.5, 0, 1, 0])):
        config = PPOConfig(gamma=0.5, gae_lambda=1.0, discount_per=per)
        assert make_targets(batch, config).return_BT.tolist() == [expected], per


def test_targets_of_a_truncated_episode_bootstrap():
    """PPO-02 through the buffer: turns of one token, the value after the last action is 0.8."""
    values = [0.2, 0.4, 0.6]
    batch = pack(
        [trajectory(range(7), [(1, 2), (3, 4), (5, 6)], [0, 0, 1], values=values, bootstrap=0.8)]
    )
    found = make_targets(batch, PPOConfig()).return_BT[batch.action_mask_BT].tolist()
    assert found == pytest.approx([1.632829, 1.715076, 1.792], abs=1e-5)


# Steps


def test_update_takes_one_step_a_minibatch_and_epoch(episodes):
    metrics = run(make_policy(), episodes)
    assert metrics["optimizer_steps"] == 2 * EPISODES / 4
    assert metrics["kl_stopped"] == 0.0
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["kl_old_max"] >= metrics["kl_old"] >= 0.0


def test_update_improves_the_surrogate_it_was_given(episodes):
    policy, batch = make_policy(), pack(episodes)
    targets = make_targets(batch, CONFIG)
    run(policy, episodes)
    _, parts = gradient(policy, batch, targets, CONFIG)
    assert parts["policy_loss"] < -0.01


def test_update_raises_the_chance_of_what_earned_more():
    """One turn, two actions, rewards 1 and 0: the first becomes likelier, the second less so."""
    policy = make_policy()
    pair = [trajectory([3, 2, 5, 1], [(2, 3)], [1.0]), trajectory([3, 2, 6, 1], [(2, 3)], [0.0])]

    def logprobs() -> Tensor:
        with torch.no_grad():
            hidden = policy.model.base_model(torch.tensor([[3, 2]])).last_hidden_state
            return policy.logits(hidden[0, -1]).log_softmax(-1)

    before = logprobs()
    config = PPOConfig(episodes_per_update=2, minibatch_episodes=2, entropy_coefficient=0.0)
    run(policy, [
        trajectory(t.ids, [(2, 3)], [t.reward], logprobs=[float(before[t.ids[2]])]) for t in pair
    ], config, temperature=1.0)  # fmt: skip
    after = logprobs()
    assert after[5] > before[5] and after[6] < before[6]


def test_update_same_seed_same_weights_to_the_last_bit(episodes):
    found = []
    for seed in (0, 0, 1):
        policy = make_policy()
        run(policy, episodes, generator=torch.Generator().manual_seed(seed))
        found.append(weights(policy))
    assert equal(found[0], found[1]) and not equal(found[0], found[2])


def test_update_entropy_bonus_raises_entropy():
    """PPO-20 through the model: without advantages, only the bonus moves the policy."""
    policy = make_policy()
    same = [
        trajectory(t.ids, [(s.start, s.stop) for s in t.stages], logprobs=t.logprobs)
        for t in collect(policy)
    ]
    config = PPOConfig(episodes_per_update=EPISODES, minibatch_episodes=EPISODES,
                       value_coefficient=0.0, entropy_coefficient=0.1, epochs=4)  # fmt: skip
    batch = pack(same)
    targets = make_targets(batch, config)
    assert not targets.advantage_BT.any()  # PPO-12: all equal
    before = gradient(policy, batch, targets, config)[1]["entropy"]
    run(policy, same, config)
    assert gradient(policy, batch, targets, config)[1]["entropy"] > before


def test_update_with_a_single_action_token_stays_finite():
    """PPO-12: nothing is divided by the deviation of one number."""
    policy = make_policy()
    config = PPOConfig(episodes_per_update=1, minibatch_episodes=1)
    metrics = run(policy, [trajectory([3, 2, 5, 1], [(2, 3)], [0.7], logprobs=[-3.0])], config)
    assert all(math.isfinite(value) for value in metrics.values())
    assert all(p.isfinite().all() for p in policy.parameters())


def test_make_optimizer_has_a_step_size_for_each_part():
    policy = make_policy()
    transformer, head = make_optimizer(policy, CONFIG).param_groups
    assert (transformer["lr"], head["lr"]) == (1e-3, 1e-3)
    assert head["params"] == list(policy.value_head.parameters())
    counted = {id(p) for group in (transformer, head) for p in group["params"]}
    assert counted == {id(p) for p in policy.parameters()}


@pytest.mark.parametrize("limit", [1e-3, 1e6])
def test_gradients_are_scaled_down_to_the_norm_and_never_up(episodes, limit):
    policy, batch = make_policy(), pack(episodes)
    gradient(policy, batch, make_targets(batch, CONFIG), CONFIG)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    norm = ppo.optimizer_step(policy, optimizer, limit)
    left = torch.nn.utils.get_total_norm([p.grad for p in policy.parameters()]).item()
    assert left == pytest.approx(min(norm, limit), rel=1e-3)


# KL


FAST = PPOConfig(
    episodes_per_update=EPISODES, minibatch_episodes=2, microbatch_episodes=2, epochs=4,
    learning_rate=0.03, kl_stop=0.02,
)  # fmt: skip
Update = Callable[..., dict[str, float]]


@contextmanager
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """KL of each minibatch as it is looked at."""
    kls: list[float] = []
    real = ppo.minibatch_gradient

    def record(*args, **named):
        parts = real(*args, **named)
        kls.append(parts["kl_old"])
        return parts

    with monkeypatch.context() as patch:
        patch.setattr(ppo, "minibatch_gradient", record)
        yield kls


def check_kl_stop(update: Update, episodes, monkeypatch) -> None:
    """Law 20: the step that would follow a KL above the limit is not taken."""
    policy = make_policy()
    optimizer, after_step = make_optimizer(policy, FAST), []
    optimizer.register_step_post_hook(lambda *_: after_step.append(weights(policy)))
    with measured(monkeypatch) as kls:
        metrics = update(
            policy, optimizer, TrajectoryBuffer(episodes), FAST, temperature=TEMPERATURE,
            generator=torch.Generator().manual_seed(0),
        )  # fmt: skip
    assert metrics["kl_stopped"] == 1.0
    assert kls[-1] > FAST.kl_stop >= max(kls[:-1])
    assert len(after_step) == len(kls) - 1 == metrics["optimizer_steps"] < 16
    assert equal(weights(policy), after_step[-1])


def stops_after_stepping(policy, optimizer, buffer, config, *, temperature, generator):
    targets, rows = make_targets(buffer.batch, config), []
    for _ in range(config.epochs):
        for rows_B in buffer.epoch(config.minibatch_episodes, generator):
            rows.append(ppo.minibatch_gradient(policy, optimizer, buffer.batch, targets, rows_B,
                                               config, temperature=temperature))  # fmt: skip
            rows[-1]["grad_norm"] = ppo.optimizer_step(policy, optimizer, config.max_grad_norm)
            if rows[-1]["kl_old"] > config.kl_stop:
                return ppo._summary(rows, buffer.batch, targets, stopped=True)
    return ppo._summary(rows, buffer.batch, targets, stopped=False)


def stops_the_epoch_only(policy, optimizer, buffer, config, *, temperature, generator):
    targets, rows, stopped = make_targets(buffer.batch, config), [], False
    for _ in range(config.epochs):
        for rows_B in buffer.epoch(config.minibatch_episodes, generator):
            rows.append(ppo.minibatch_gradient(policy, optimizer, buffer.batch, targets, rows_B,
                                               config, temperature=temperature))  # fmt: skip
            if rows[-1]["kl_old"] > config.kl_stop:
                stopped = True
                break
            rows[-1]["grad_norm"] = ppo.optimizer_step(policy, optimizer, config.max_grad_norm)
    return ppo._summary(rows, buffer.batch, targets, stopped=stopped)


def test_kl_stop_comes_before_the_step(episodes, monkeypatch):
    check_kl_stop(update, episodes, monkeypatch)


@pytest.mark.parametrize("wrong", [stops_after_stepping, stops_the_epoch_only])
def test_kl_stop_check_rejects(wrong, episodes, monkeypatch):
    with pytest.raises(AssertionError):
        check_kl_stop(wrong, episodes, monkeypatch)


def test_kl_stop_uses_an_estimate_that_sees_a_balanced_move(monkeypatch):
    """PPO-22: log-ratios 0.3, -0.3 and 0 have k1 = 0; the rule stops at 0.02 all the same."""
    policy = make_policy()
    ids = [3, 2, 5, 6, 7, 1]
    with torch.no_grad():
        states = policy.model.base_model(torch.tensor([ids])).last_hidden_state[0, 1:4]
        logprobs = policy.logits(states).log_softmax(-1).gather(1, torch.tensor([[5], [6], [7]]))
    old = (logprobs.flatten() - torch.tensor([0.3, -0.3, 0.0])).tolist()
    config = PPOConfig(episodes_per_update=1, minibatch_episodes=1, kl_stop=0.02)
    before = weights(policy)
    metrics = run(policy, [trajectory(ids, [(2, 5)], [1.0], logprobs=old)], config, temperature=1.0)
    assert metrics["kl_old"] == pytest.approx(0.030226, abs=1e-4)
    assert metrics["kl_stopped"] == 1.0 and metrics["optimizer_steps"] == 0.0
    assert equal(weights(policy), before)


def test_clip_does_not_bound_the_kl_step_size_and_epochs_do(episodes):
    """Law 21: the same clip, a step size 300 times as large, and the policy is far away."""

    def kl(**named) -> float:
        config = {"episodes_per_update": EPISODES, "minibatch_episodes": 2, "epochs": 4,
                  "kl_stop": 1e9, "learning_rate": 1e-4}  # fmt: skip
        return run(make_policy(), episodes, PPOConfig(**{**config, **named}))["kl_old_max"]

    slow, fast = kl(), kl(learning_rate=3e-2)
    assert slow < 0.05 < 0.5 < fast
    assert kl(epochs=1) < slow


# What is refused


def check_non_finite(update: Update, episodes, monkeypatch) -> None:
    """PPO-39: weights and optimizer state stay as they were, and the caller is told."""
    policy = make_policy()
    optimizer = make_optimizer(policy, CONFIG)
    run(policy, episodes, optimizer=optimizer)  # so that there is optimizer state
    before = weights(policy)
    state = {k: {n: torch.as_tensor(x).clone() for n, x in s.items()}
             for k, s in optimizer.state_dict()["state"].items()}  # fmt: skip
    assert state
    real = policy.logits

    def one_nan(hidden: Tensor) -> Tensor:
        logits = real(hidden)
        return torch.cat([logits[:1] * float("nan"), logits[1:]])

    monkeypatch.setattr(policy, "logits", one_nan)
    with pytest.raises(NonFiniteUpdate, match="the step was not applied"):
        update(policy, optimizer, TrajectoryBuffer(episodes), CONFIG, temperature=TEMPERATURE,
               generator=torch.Generator().manual_seed(0))  # fmt: skip
    assert equal(weights(policy), before)
    for key, entry in optimizer.state_dict()["state"].items():
        assert equal({n: torch.as_tensor(x) for n, x in entry.items()}, state[key])


def zeroes_nan_gradients(policy, optimizer, buffer, config, *, temperature, generator):
    """Clamps what is not finite, steps, and then complains."""
    targets = make_targets(buffer.batch, config)
    for rows_B in buffer.epoch(config.minibatch_episodes, generator):
        ppo.minibatch_gradient(policy, optimizer, buffer.batch, targets, rows_B, config,
                               temperature=temperature)  # fmt: skip
        for p in policy.parameters():
            p.grad.nan_to_num_()
        optimizer.step()
    raise NonFiniteUpdate("the step was not applied")


def goes_on_silently(policy, optimizer, buffer, config, *, temperature, generator):
    return {}


def test_nan_log_probability_stops_before_the_step(episodes, monkeypatch):
    check_non_finite(update, episodes, monkeypatch)


@pytest.mark.parametrize("wrong", [zeroes_nan_gradients, goes_on_silently])
def test_non_finite_check_rejects(wrong, episodes, monkeypatch):
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_non_finite(wrong, episodes, monkeypatch)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_stored_number_that_is_not_finite_never_reaches_the_weights(episodes, number):
    """REW-10: reward, value, bootstrap or log-probability, each is reported before any step."""
    fine = episodes[0]
    spans = [(s.start, s.stop) for s in fine.stages]
    broken = {
        "reward": {"rewards": [number, 0.0]},
        "value": {"values": [number, *fine.values[1:]]},
        "bootstrap": {"bootstrap": number},
        "logprob": {"logprobs": [number, *fine.logprobs[1:]]},
    }
    config = PPOConfig(episodes_per_update=EPISODES, minibatch_episodes=EPISODES)
    for name, change in broken.items():
        if name == "logprob" and number == float("inf"):
            continue  # a ratio of 0: clipped or small, but finite
        policy = make_policy()
        before = weights(policy)
        given = {"logprobs": fine.logprobs, "values": fine.values, **change}
        rewards = given.pop("rewards", None)
        bad = trajectory(fine.ids, spans, rewards, **given)
        try:
            metrics = run(policy, [bad, *episodes[1:]], config)
        except (ValueError, NonFiniteUpdate):
            pass
        else:
            assert metrics["kl_stopped"] == 1.0 and metrics["optimizer_steps"] == 0.0, name
        assert equal(weights(policy), before), name


def test_buffer_that_has_served_four_epochs_is_refused(episodes):
    """E9: the update raises, and moves nothing."""
    policy, buffer = make_policy(), TrajectoryBuffer(episodes)
    config = PPOConfig(
        episodes_per_update=EPISODES, minibatch_episodes=4, epochs=4, kl_stop=1e9
    )
    optimizer = make_optimizer(policy, config)
    named = {"temperature": TEMPERATURE, "generator": torch.Generator().manual_seed(0)}
    update(policy, optimizer, buffer, config, **named)
    before = weights(policy)
    with pytest.raises(StaleTrajectories):
        update(policy, optimizer, buffer, config, **named)
    assert equal(weights(policy), before)


# The value head and the transformer


@pytest.mark.parametrize("backbone", ["shared", "detached"])
def test_value_backbone_says_whether_value_errors_move_the_transformer(episodes, backbone):
    """PPO-40: advantages 0, no entropy bonus, value coefficient 0.5, one step."""
    config = PPOConfig(value_backbone=backbone, entropy_coefficient=0.0, learning_rate=1e-2)
    policy, batch = make_policy(), pack(episodes)
    targets = Targets(torch.zeros_like(batch.reward_BT), make_targets(batch, config).return_BT)
    before, optimizer = weights(policy), make_optimizer(policy, config)
    ppo.minibatch_gradient(policy, optimizer, batch, targets, torch.arange(EPISODES), config,
                           temperature=TEMPERATURE)  # fmt: skip
    gradients = [p.grad for p in policy.model.parameters()]
    assert any(bool(g.any()) for g in gradients) is (backbone == "shared")
    optimizer.step()
    after = weights(policy)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert "value_head.weight" in moved
    assert any(name.startswith("model.") for name in moved) is (backbone == "shared")


def test_detached_value_head_learns_the_same_as_a_shared_one(episodes):
    """Only the transformer's gradient differs."""
    batch, policy = pack(episodes), make_policy()
    targets = make_targets(batch, CONFIG)
    heads = [
        gradient(policy, batch, targets, PPOConfig(value_backbone=kind))[0]["value_head.weight"]
        for kind in ("shared", "detached")
    ]
    assert_close(*heads)
