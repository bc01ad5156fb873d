"""Demonstrations and the warm start: the same ids, masks and boundary as a rollout.

Axes: B episode, T token position.
"""

import random
from itertools import islice, pairwise

import pytest
import torch
from torch.testing import assert_close

from agentrl_lab.config import EnvConfig, SamplingConfig
from agentrl_lab.learner import sft
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.sft import demonstrate, demonstration_batches, sft_step, train_sft
from agentrl_lab.learner.trajectories import Trajectory, pack
from agentrl_lab.records import Split, StopReason, TaskKind
from agentrl_lab.world import habits
from agentrl_lab.world.env import TicketEnv
from tests import tiny
from tests.tiny import EndingPolicy, NumberTokenizer, ScriptedPolicy, random_trajectories, script

MAX_TOKENS = 640


@pytest.fixture(scope="module")
def env(tokenizer) -> TicketEnv:
    return TicketEnv(Split.TRAIN, 0, count_tokens=tokenizer.count)


def careful(env: TicketEnv) -> list[str]:
    return habits.careful(env.task, env.codec, random.Random(0))


@pytest.fixture(scope="module")
def three_turns(tokenizer, env) -> Trajectory:
    """System, user, call, result, call, result, reply."""
    for index in range(100):
        env.reset(options={"index": index})
        if env.task.kind is TaskKind.CLOSE_PAID:
            return demonstrate(tokenizer, env, index, careful, max_tokens=MAX_TOKENS)
    raise AssertionError("no such task")


# What is trained


def check_labels(episode: Trajectory, mask: torch.Tensor, tokenizer, texts: list[str]) -> None:
    """TOK-08: exactly the assistant's spans, each with its end token, and all of them."""
    spans = [tokenizer.encode_action(text) for text in texts]
    trained = torch.tensor(episode.ids)[mask[: len(episode.ids)].bool()].tolist()
    assert trained == [token for span in spans for token in span]
    assert int(mask.sum()) == sum(map(len, spans))


def test_demonstration_trains_on_all_assistant_spans_and_nothing_else(tokenizer, env, three_turns):
    texts = [stage.text for stage in three_turns.stages]
    assert len(texts) == 3
    check_labels(three_turns, pack([three_turns]).action_mask_BT[0], tokenizer, texts)
    assert three_turns.outcome.success


def everything(mask: torch.Tensor, episode: Trajectory) -> torch.Tensor:
    return torch.ones_like(mask)


def last_turn_only(mask: torch.Tensor, episode: Trajectory) -> torch.Tensor:
    wrong = torch.zeros_like(mask)
    wrong[episode.stages[-1].start : episode.stages[-1].stop] = True
    return wrong


def without_end_tokens(mask: torch.Tensor, episode: Trajectory) -> torch.Tensor:
    wrong = mask.clone()
    wrong[[stage.stop - 1 for stage in episode.stages]] = False
    return wrong


def with_headers(mask: torch.Tensor, episode: Trajectory) -> torch.Tensor:
    wrong = mask.clone()
    wrong[[stage.start - 1 for stage in episode.stages]] = True
    return wrong


@pytest.mark.parametrize("wrong", [everything, last_turn_only, without_end_tokens, with_headers])
def test_label_check_rejects(wrong, tokenizer, three_turns):
    mask = pack([three_turns]).action_mask_BT[0]
    texts = [stage.text for stage in three_turns.stages]
    with pytest.raises(AssertionError):
        check_labels(three_turns, wrong(mask, three_turns), tokenizer, texts)


def test_demonstration_has_the_ids_and_the_boundary_of_a_rollout(tokenizer, env, three_turns):
    """TOK-09, law 5: played by a policy that samples the same actions, it is the same episode."""
    opening = three_turns.ids[: three_turns.stages[0].start]
    plan = [three_turns.ids[s.start : s.stop] for s in three_turns.stages]
    mark = tokenizer.tokenizer.convert_tokens_to_ids("<|assistant|>")
    policy = ScriptedPolicy(tokenizer, script({opening: plan}, mark), 2048)
    make = lambda: TicketEnv(Split.TRAIN, 0, count_tokens=tokenizer.count)  # noqa: E731
    collector = Collector(policy, make, SamplingConfig(action_tokens=48, context_tokens=768))
    (rolled,) = collector.collect([three_turns.index], temperature=0.7, seed=[0])
    assert rolled.ids == three_turns.ids
    assert rolled.stages == three_turns.stages
    assert rolled.outcome == three_turns.outcome


def test_demonstration_without_an_action_is_refused(tokenizer, env):
    """TOK-08, last part: no NaN loss, an error that names the task."""
    empty = demonstrate(tokenizer, env, 4, lambda env: [], max_tokens=MAX_TOKENS)
    with pytest.raises(ValueError, match=r"task 4 has 0 action tokens"):
        pack([empty])


def test_demonstration_stops_with_the_episode(tokenizer, env):
    """Messages left over when the desk has stopped are not played."""
    episode = demonstrate(tokenizer, env, 0, lambda env: ["no call"] * 9, max_tokens=MAX_TOKENS)
    assert len(episode.stages) == 3
    assert episode.stop is StopReason.THREE_STRIKES
    assert len(episode.ids) == episode.stages[-1].stop


@pytest.mark.parametrize("room", [150, 200, 300])
def test_demonstration_keeps_within_its_tokens(tokenizer, env, room):
    """A turn that would not fit is not begun; the first one is always there."""
    query = lambda env: [env.codec.render(habits.query(env.task))] * 6  # noqa: E731
    whole = demonstrate(tokenizer, env, 1, query, max_tokens=10_000)
    episode = demonstrate(tokenizer, env, 1, query, max_tokens=room)
    assert episode.ids == whole.ids[: len(episode.ids)]
    assert 1 <= len(episode.stages) < len(whole.stages)
    assert len(episode.ids) <= room


def test_demonstration_number_i_depends_on_the_seed_and_i_alone(tokenizer):
    def number(index: int, *, seed: int, batch: int) -> Trajectory:
        env = TicketEnv(Split.TRAIN, 0, EnvConfig(), count_tokens=tokenizer.count)
        batches = demonstration_batches(
            tokenizer, env, lambda e, rng: habits.guessing(e.task, e.codec, rng),
            seed=seed, batch=batch, max_tokens=MAX_TOKENS,
        )  # fmt: skip
        found = [t for part in islice(batches, index // batch + 1) for t in part]
        assert [t.index for t in found] == list(range(len(found)))
        return found[index]

    assert number(5, seed=0, batch=2) == number(5, seed=0, batch=3) == number(5, seed=0, batch=6)
    texts = [[s.text for s in number(i, seed=s, batch=4).stages] for s in (0, 1) for i in range(8)]
    assert texts[:8] != texts[8:]


# Training


VOCABULARY = 30


def small_policy(**named) -> EndingPolicy:
    return EndingPolicy(tiny.llama(VOCABULARY, hidden=16, **named), NumberTokenizer())


def test_sft_step_is_the_mean_over_action_tokens(monkeypatch):
    """Laws 22, 23: the value and the gradient of one plain pass, whatever the micro-batches."""
    batch, policy = pack(random_trajectories(VOCABULARY, 7)), small_policy()
    attention_mask = (torch.arange(batch.token_BT.shape[1]) < batch.length_B[:, None]).long()
    logits = policy.model(batch.token_BT, attention_mask=attention_mask).logits[:, :-1]
    mask = batch.action_mask_BT[:, 1:]
    expected = torch.nn.functional.cross_entropy(logits[mask], batch.token_BT[:, 1:][mask])
    expected.backward()
    gradients = {n: p.grad.clone() for n, p in policy.model.named_parameters()}
    for size in (1, 3, 8):
        monkeypatch.setattr(sft, "MICRO_BATCH", size)
        policy.zero_grad()
        assert sft_step(policy, batch) == pytest.approx(expected.item(), rel=1e-5)
        for name, p in policy.model.named_parameters():
            assert_close(p.grad, gradients[name], rtol=1e-3, atol=1e-5)
        assert policy.value_head.weight.grad is None


def test_train_sft_lowers_the_loss_and_leaves_the_value_head_alone():
    policy, episodes = small_policy(), random_trajectories(VOCABULARY, 4)
    head = policy.value_head.weight.detach().clone()
    batches = iter(lambda: episodes, None)
    found = list(train_sft(policy, batches, steps=30, learning_rate=1e-2, warmup=3))
    assert len(found) == 30
    assert found[-1] < 0.5 * found[0]
    assert torch.equal(policy.value_head.weight, head)
    assert not policy.training


def test_train_sft_step_size_rises_and_falls_to_a_tenth():
    # warmup 4: 1/4, 2/4, 3/4, 1; then a cosine from 1 to 0.1 over the other 16 steps
    found = [sft._schedule(step, 20, 4) for step in range(21)]
    assert found[:5] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert found[12] == pytest.approx(0.55)  # half way: 0.1 + 0.9 / 2
    assert found[20] == pytest.approx(0.1)
    assert all(a > b for a, b in pairwise(found[4:]))


def test_train_sft_refuses_a_gradient_that_is_not_finite():
    policy = small_policy()
    with torch.no_grad():
        policy.model.base_model.norm.weight[0] = float("nan")
    before = policy.model.get_input_embeddings().weight.detach().clone()
    batches = iter(lambda: random_trajectories(VOCABULARY, 2), None)
    with pytest.raises(RuntimeError, match="non-finite"):
        next(train_sft(policy, batches, steps=2, learning_rate=1e-2))
    assert torch.equal(policy.model.get_input_embeddings().weight, before)
