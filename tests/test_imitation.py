"""Imitation: what is shown, what is kept, and that a step makes it likelier."""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import partial

import pytest
import torch

from agentrl_lab.config import EnvConfig, ImitationConfig, PPOConfig, TrainConfig, with_settings
from agentrl_lab.learner import imitation, ppo
from agentrl_lab.learner import trainer as training
from agentrl_lab.learner.forward import score_actions
from agentrl_lab.learner.losses import chosen_logprob
from agentrl_lab.learner.trajectories import pack
from agentrl_lab.records import StopReason, TaskKind
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.tasks import make_task
from tests.runs import SMALL, command, metrics, options


@pytest.fixture
def policy(small_policy):
    from agentrl_lab.learner.policy import load_policy

    return load_policy(str(small_policy))


def shown(policy, name, update=0, count=8, seed=0):
    env = TicketEnv(config=EnvConfig(), count_tokens=policy.tokenizer.count)
    return imitation.demonstrated(
        policy, env, name, update, count, seed=seed, max_tokens=768
    )  # fmt: skip


# Who shows what


def test_perfect_demonstrations_all_succeed(policy):
    assert all(t.outcome.success for t in shown(policy, "perfect"))


def test_mixed_demonstrations_sometimes_fail(policy):
    won = Counter(t.outcome.success for t in shown(policy, "mixed", count=32))
    assert won[True] > 5 and won[False] > 5


def test_the_happy_path_meets_nothing_that_stands_against_the_request(policy):
    kinds = {t.outcome.kind for t in shown(policy, "happy_path", count=24)}
    assert kinds == {TaskKind.CLOSE_PAID, TaskKind.STATUS_ONLY}


@pytest.mark.parametrize("name", imitation.DEMONSTRATORS)
def test_no_task_is_shown_twice_and_every_update_gets_its_number(policy, name):
    numbers = [[t.index for t in shown(policy, name, update)] for update in range(3)]
    flat = [number for some in numbers for number in some]
    assert len(set(flat)) == len(flat) == 24


def test_demonstrations_depend_on_seed_and_task_alone(policy):
    def texts(episodes):
        return {t.index: [stage.text for stage in t.stages] for t in episodes}

    few, many = texts(shown(policy, "mixed", count=4)), texts(shown(policy, "mixed", count=16))
    assert few == {index: many[index] for index in few}
    assert texts(shown(policy, "mixed", count=16, seed=1)) != many


# One update


def loglikelihood(policy, episodes):
    with torch.no_grad():
        scored = score_actions(policy, pack(episodes))
        return float(chosen_logprob(scored.logits_MV, scored.token_M).mean())


def learn(policy, episodes, **settings):
    config = PPOConfig(episodes_per_update=4, minibatch_episodes=4, **settings)
    optimizer = ppo.make_optimizer(policy, config)
    for group in optimizer.param_groups:
        group["lr"] = 1e-3
    return imitation.update(policy, optimizer, episodes, config, torch.Generator().manual_seed(0))


def test_an_update_makes_its_episodes_likelier(policy):
    episodes = shown(policy, "perfect", count=4)
    before = loglikelihood(policy, episodes)
    said = learn(policy, episodes, epochs=1)
    assert said["imitation_loss"] == pytest.approx(-before, rel=1e-4)  # loss before its one step
    assert loglikelihood(policy, episodes) > before
    assert (said["imitated_episodes"], said["optimizer_steps"]) == (4.0, 1.0)


def test_without_episodes_nothing_is_learned(policy):
    before = [p.clone() for p in policy.parameters()]
    assert learn(policy, [])["optimizer_steps"] == 0.0
    assert all(torch.equal(p, q) for p, q in zip(before, policy.parameters(), strict=True))


def test_the_value_head_is_left_alone(policy):
    before = [p.clone() for p in policy.value_head.parameters()]
    learn(policy, shown(policy, "perfect", count=4))
    after = policy.value_head.parameters()
    assert all(torch.equal(p, q) for p, q in zip(before, after, strict=True))


# In a run


def run(path, policy, **settings):
    config = with_settings(TrainConfig(), {**SMALL, "policy": str(policy), **settings})
    trainer = training.start_run(path, config)
    trainer.fit()
    trainer.run.release()
    return metrics(path)


@pytest.mark.slow
def test_a_run_imitates_first_and_goes_on_by_ppo(tmp_path, small_policy):
    rows = run(tmp_path / "run", small_policy, imitated_updates=2, demonstrations="perfect")
    assert ["imitation_loss" in row for row in rows] == [False, True, True, False]
    assert ["policy_loss" in row for row in rows] == [False, False, False, True]
    assert [row["shown_success_rate"] for row in rows[1:3]] == [1.0, 1.0]
    assert ["entropy_per_token" in row for row in rows[1:]] == [False, False, True]
    tokens = [row["policy_tokens"] for row in rows[1:]]
    assert tokens == sorted(tokens) and tokens[0] > 0


@pytest.mark.slow
def test_of_own_episodes_only_successes_are_imitated(tmp_path, small_policy, monkeypatch):
    kept = []
    monkeypatch.setattr(
        imitation, "update", lambda policy, optimizer, episodes, *_: kept.append(episodes) or {}
    )
    rows = run(tmp_path / "run", small_policy, imitated_updates=3)
    wins = [row["success_rate"] * SMALL["episodes_per_update"] for row in rows[1:]]
    assert [len(episodes) for episodes in kept] == wins
    assert all(t.outcome.success for episodes in kept for t in episodes)


def test_filtered_is_mixed_without_its_failures(policy):
    episodes = shown(policy, "filtered", count=32)
    assert [t.ids for t in episodes] == [t.ids for t in shown(policy, "mixed", count=32)]
    wins = [t for t in episodes if t.outcome.success]
    assert 0 < len(wins) < len(episodes)
    assert imitation.kept(episodes, "filtered") == imitation.kept(episodes, "own") == wins
    assert imitation.kept(episodes, "mixed") == episodes


def test_demonstrations_that_are_never_shown_are_refused():
    with pytest.raises(ValueError, match="is for imitated_updates, of which there are 0"):
        ImitationConfig(demonstrations="perfect")
    with pytest.raises(ValueError, match="did you mean 'perfect'"):
        ImitationConfig(demonstrations="perfct", imitated_updates=1)
    with pytest.raises(ValueError, match=r"imitation_rate 0.1 is for imitated_updates"):
        ImitationConfig(imitation_rate=0.1)
    with pytest.raises(ValueError, match=r"imitated_updates must be at most 30 \(all updates\)"):
        with_settings(TrainConfig(), {"imitated_updates": 31})


def test_careful_and_only_it_is_perfect():
    env = TicketEnv()
    number = next(n for n in range(50) if make_task("train", 0, n).kind is TaskKind.CLOSE_PAID)
    env.reset(options={"index": number})
    plan = imitation.DEMONSTRATORS["perfect"].mixture.plan(env.task, env.codec, random.Random(0))
    tools = [env.play(text)[-1]["call"].tool for text in plan]
    assert tools == ["query_ticket", "update_ticket", "reply"] and env.outcome.success


def test_a_desk_with_too_few_of_what_is_shown_is_refused(policy):
    task = next(t for t in map(partial(make_task, "train", 0), range(50)) if t.kind == "not_found")
    env = TicketEnv(count_tokens=policy.tokenizer.count, task_source=lambda _: task)
    with pytest.raises(ValueError, match="happy_path shows only 0 of 64 tasks, 2 are needed"):
        imitation.demonstrated(policy, env, "happy_path", 0, 2, seed=0, max_tokens=768)


def test_a_demonstration_that_does_not_fit_is_truncated(policy):
    env = TicketEnv(count_tokens=policy.tokenizer.count)
    (cut,) = imitation.demonstrated(policy, env, "perfect", 0, 1, seed=0, max_tokens=200)
    assert cut.stop is StopReason.CONTEXT_LIMIT and len(cut.stages) == 1


@pytest.mark.slow
def test_without_a_success_nothing_moves_and_the_run_goes_on(tmp_path, small_policy):
    rows = run(tmp_path / "run", small_policy, imitated_updates=2)  # untrained: it never succeeds
    assert [row["imitated_episodes"] for row in rows[1:3]] == [0.0, 0.0]
    assert [row["optimizer_steps"] for row in rows[1:3]] == [0.0, 0.0]
    assert rows[3]["optimizer_steps"] > 0


@pytest.mark.slow
def test_adam_starts_anew_when_ppo_begins(tmp_path, small_policy):
    config = with_settings(
        TrainConfig(),
        {**SMALL, "policy": str(small_policy), "imitated_updates": 1, "demonstrations": "perfect"},
    )
    trainer = training.start_run(tmp_path / "run", config)
    steps = []

    def note(row):
        state = trainer.optimizer.state_dict()["state"]
        steps.append(max((int(s["step"]) for s in state.values()), default=0))

    trainer.fit(note)
    trainer.run.release()
    each = steps[1]
    assert steps == [0, each, each, 2 * each]  # not 3: the moments of the imitation are gone


@pytest.mark.slow
def test_a_rollback_into_the_imitation_brings_none_of_its_moments(
    tmp_path, small_policy, monkeypatch
):
    """Update 1 imitates and is the best one; both updates of PPO fall, and each starts anew."""
    settings = {**SMALL, "policy": str(small_policy), "imitated_updates": 1}
    config = with_settings(TrainConfig(), {**settings, "demonstrations": "perfect"})
    trainer = training.start_run(tmp_path / "run", config)
    scores = iter([0.1, 0.9, 0.1, 0.1])
    monkeypatch.setattr(trainer, "_validate", lambda: {"validation_success": next(scores)})
    before = []
    monkeypatch.setattr(
        ppo, "update",
        lambda policy, optimizer, *_, **__: before.append(len(optimizer.state)) or {},
    )  # fmt: skip
    monkeypatch.setattr(trainer, "_result", dict)
    trainer.fit()
    trainer.run.release()
    assert before == [0, 0] and trainer.progress.rollbacks == 2


def test_few_episodes_an_update_still_find_the_happy_path(policy):
    """Each update looks through 64 tasks at least: 8 might hold no happy one."""
    for update in range(40):
        assert len(shown(policy, "happy_path", update, count=1)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shown", "said"), [("own", "imitated 0"), ("mixed", r"shown \d\.\d\d, imitated \d")]
)
def test_the_command_tells_of_imitation_and_leaves_a_report(tmp_path, small_policy, shown, said):
    settings = {**SMALL, "policy": small_policy, "imitated_updates": 2, "demonstrations": shown}
    out = tmp_path / "run"
    done = command("train", "--out", str(out), *options(settings), check=True)
    assert len(re.findall(said, done.stdout)) == 2 and done.stdout.count("  kl ") == 1
    assert (out / "report.html").is_file()
