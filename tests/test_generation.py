"""Drafts and the fast forward pass: they save time and change nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from agentrl_lab.config import SamplingConfig
from agentrl_lab.learner import generation
from agentrl_lab.learner.decoding import LlamaDecoder
from agentrl_lab.learner.drafts import Follower, guess
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.trajectories import Trajectory
from tests import tiny
from tests.test_rollout import desk
from tests.tiny import EndingPolicy

LIMITS = SamplingConfig(action_tokens=9, context_tokens=320)


@pytest.fixture(scope="module", params=["llama", "shared key heads", "gpt2"])
def policy(request, tokenizer) -> EndingPolicy:
    """Small random policies, spread little: what they write repeats itself now and then."""
    size = len(tokenizer.tokenizer)
    models = {
        "llama": lambda: tiny.llama(size, kv_heads=4),
        "shared key heads": lambda: tiny.llama(size, kv_heads=1),
        "gpt2": lambda: tiny.gpt2(size, positions=320),
    }
    return EndingPolicy(models[request.param](), tokenizer, push=8.0)


def play(policy: Policy, temperature: float, tasks: int = 6) -> list[Trajectory]:
    return desk(policy, LIMITS).collect(range(tasks), temperature=temperature, seed=[4])


def check_same(first: list[Trajectory], second: list[Trajectory]) -> None:
    assert [t.ids for t in first] == [t.ids for t in second]
    for a, b in zip(first, second, strict=True):
        for name in ("logprobs", "values", "entropies"):
            assert getattr(a, name) == pytest.approx(getattr(b, name), abs=1e-4)


# Drafts


def test_follower_remembers_the_newest_after_one_and_two_tokens():
    follower = Follower()
    follower.read([1, 2, 3, 1, 2, 4], start=2)
    assert follower.after == {
        (1, 2): 4, (2,): 4, (2, 3): 1, (3,): 1, (3, 1): 2, (1,): 2,
    }  # fmt: skip


def test_guess_asks_the_row_then_all_rows_then_the_row_after_one_token():
    own, others = Follower({(1, 2): 3, (4,): 5}), Follower({(1, 2): 9, (2, 3): 4})
    assert guess([1, 2], 7, own, others) == [3, 4, 5]
    assert guess([1, 2], 2, own, others) == [3, 4]
    assert guess([7, 8], 7, own, others) == []


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_drafts_change_no_result(policy, temperature, monkeypatch):
    drafted = play(policy, temperature)
    monkeypatch.setattr(generation, "DRAFT_ROWS", 0)
    check_same(drafted, play(policy, temperature))


def knows_the_future(episodes: list[Trajectory]) -> Callable[..., list[int]]:
    """Guesses what a rollout without drafts has written: right to the last token."""

    def ahead(ids: list[int], most: int, *_: Follower) -> list[int]:
        (whole,) = {t.ids for t in episodes if list(t.ids[: len(ids)]) == ids}
        return list(whole[len(ids) : len(ids) + most])

    return ahead


def wild(ids: list[int], most: int, *_: Follower) -> list[int]:
    """Guesses anything, of any length: nearly always wrong."""
    rng = random.Random(str(ids))
    return [rng.randrange(2048) for _ in range(rng.randint(0, most))]


@pytest.mark.parametrize("kind", ["right", "wild"])
def test_any_guess_gives_the_same_episodes(policy, kind, monkeypatch):
    monkeypatch.setattr(generation, "DRAFT_ROWS", 0)
    plain = play(policy, 0.7)
    monkeypatch.setattr(generation, "DRAFT_ROWS", 16)
    monkeypatch.setattr(generation, "guess", knows_the_future(plain) if kind == "right" else wild)
    check_same(play(policy, 0.7), plain)


def test_check_rejects_a_rollout_that_trusts_its_drafts(policy, monkeypatch):
    """Planted: a wrong guess does not end the accepting."""

    def trusting(self, row, draft, sampled, limits) -> None:
        for numbers in sampled[: len(draft) + 1]:
            row.write(*numbers)
            if not self._goes_on(row, limits):
                break
        row.cached = len(row.ids) - 1

    plain = play(policy, 0.7)
    monkeypatch.setattr(generation, "guess", wild)
    monkeypatch.setattr(generation.Generation, "_accept", trusting)
    with pytest.raises(AssertionError):
        check_same(play(policy, 0.7), plain)


def test_right_drafts_save_passes(policy, monkeypatch):
    """With the future known, seven guesses and one more token come from each pass."""
    plain = play(policy, 0.7)
    passes = []
    run = generation.Generation._run
    monkeypatch.setattr(
        generation.Generation, "_run", lambda *a, **k: passes.append(1) or run(*a, **k)
    )
    monkeypatch.setattr(generation, "guess", knows_the_future(plain))
    play(policy, 0.7)
    turns = max(len(t.stages) for t in plain)
    assert len(passes) <= 2 * turns  # 9 tokens: 8 and 1


# The fast forward pass


def test_fast_pass_is_taken_for_a_plain_llama_only(tokenizer):
    size = len(tokenizer.tokenizer)
    assert LlamaDecoder.fits(Policy(tiny.llama(size), tokenizer))
    assert not LlamaDecoder.fits(Policy(tiny.gpt2(size), tokenizer))
    biased = tiny.llama(size)
    biased.config.attention_bias = True
    assert not LlamaDecoder.fits(Policy(biased, tokenizer))

    class Own(Policy):
        def hidden(self, *args, **named):
            return super().hidden(*args, **named)

    assert not LlamaDecoder.fits(Own(tiny.llama(size), tokenizer))


@pytest.mark.parametrize("tasks", [1, 6, 40])
def test_fast_pass_gives_what_the_models_own_gives(policy, tasks, monkeypatch):
    fast = play(policy, 0.7, tasks)
    monkeypatch.setattr(LlamaDecoder, "fits", staticmethod(lambda policy: False))
    check_same(fast, play(policy, 0.7, tasks))


def test_fast_pass_sees_new_weights(policy):
    """A decoder belongs to one collect: after an update the next rollout is another."""
    before = play(policy, 0.0, 2)
    with torch.no_grad():
        weights = [p for p in policy.model.parameters() if p.dim() > 1]
        saved = [w.clone() for w in weights]
        for weight in weights:
            weight.add_(torch.randn_like(weight))
    after = play(policy, 0.0, 2)
    with torch.no_grad():
        for weight, old in zip(weights, saved, strict=True):
            weight.copy_(old)
    assert [t.ids for t in before] != [t.ids for t in after]
    check_same(play(policy, 0.0, 2), before)


def test_prompts_that_share_nothing_are_played_all_the_same(policy, monkeypatch):
    """No shared beginning: the same numbers, from each row's own keys and values."""
    whole = play(policy, 0.7)
    monkeypatch.setattr(generation, "common_prefix", lambda rows: 0)
    check_same(whole, play(policy, 0.7))


def test_idle_rows_leave_no_trace(policy):
    """Rows that wait on padding while others write are the same as when played alone."""
    alone = desk(policy, LIMITS).collect(range(6), temperature=0.7, seed=[4], chunk=1)
    check_same(play(policy, 0.7), alone)
