"""Collecting episodes: what is recorded, what belongs to whom, and when an episode stops.

Axes: R rows at work, T token position, V vocabulary.
"""

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from scipy.stats import chisquare
from torch.testing import assert_close

from agentrl_lab.config import EnvConfig, SamplingConfig
from agentrl_lab.learner import generation, losses
from agentrl_lab.learner.forward import score_actions
from agentrl_lab.learner.generation import sample
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.trajectories import Trajectory, pack
from agentrl_lab.records import StopReason
from agentrl_lab.world.env import TicketEnv
from tests import tiny
from tests.tiny import EndingPolicy, NumberTokenizer, ScriptedPolicy, ToyWorld, script

LIMITS = SamplingConfig(action_tokens=6, context_tokens=320)
MARK, END = NumberTokenizer.turn_mark, NumberTokenizer.end_id


@pytest.fixture(scope="module")
def llama_policy(tokenizer) -> EndingPolicy:
    """A small random policy on the desk's own vocabulary; some of its actions end by themselves."""
    return EndingPolicy(tiny.llama(len(tokenizer.tokenizer)), tokenizer, push=10.0)


@pytest.fixture(scope="module")
def gpt2_policy(tokenizer) -> EndingPolicy:
    """The same with learned absolute positions, exactly as many as an episode may have tokens."""
    return EndingPolicy(tiny.gpt2(len(tokenizer.tokenizer), positions=320), tokenizer, push=10.0)


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def policy(request, llama_policy, gpt2_policy) -> EndingPolicy:
    return llama_policy if request.param == "llama" else gpt2_policy


def desk(policy: EndingPolicy, limits: SamplingConfig = LIMITS, **config) -> Collector:
    """The ticket desk without three strikes: a random policy plays four turns."""
    config = EnvConfig(**{"max_invalid": 0, "max_turns": 4, **config})
    make = lambda: TicketEnv(config=config, count_tokens=policy.tokenizer.count)  # noqa: E731
    return Collector(policy, make, limits)


def plain_scores(policy, episode: Trajectory, temperature: float) -> list[list[float]]:
    """Log-probabilities, values and entropies by one full forward pass of the episode alone."""
    with torch.no_grad():
        hidden = policy.model.base_model(torch.tensor([episode.ids])).last_hidden_state[0]
        before = torch.tensor(episode.action_positions()) - 1
        logits = policy.logits(hidden[before]) / temperature
        token = torch.tensor(episode.ids)[before + 1]
        scores = (losses.chosen_logprob(logits, token), policy.value(hidden[before]),
                  losses.token_entropy(logits))  # fmt: skip
    return [score.tolist() for score in scores]


# What is recorded


@pytest.mark.parametrize("draft_rows", [0, 16])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_recorded_numbers_equal_recomputed_ones(policy, temperature, draft_rows, monkeypatch):
    """Laws 1, 19; PPO-16, PPO-17, ROL-01: log-probability, value and entropy of every token."""
    monkeypatch.setattr(generation, "DRAFT_ROWS", draft_rows)
    episodes = desk(policy).collect(range(7), temperature=temperature, seed=[1])
    assert len({len(t.ids) for t in episodes}) > 2  # unequal lengths, or it shows nothing
    assert {len(t.stages) for t in episodes} == {4}
    for episode in episodes:
        logprobs, values, entropies = plain_scores(policy, episode, temperature)
        assert list(episode.logprobs) == pytest.approx(logprobs, abs=1e-4)
        assert list(episode.values) == pytest.approx(values, abs=1e-4)
        assert list(episode.entropies) == pytest.approx(entropies, abs=1e-4)
        if temperature != 1.0:  # the check can fail: untempered scores are elsewhere
            assert plain_scores(policy, episode, 1.0)[0] != pytest.approx(logprobs, abs=1e-2)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_first_ratio_of_a_rollout_is_one(policy, temperature):
    """Law 19: sampler and trainer agree on every token, in batches and padded."""
    batch = pack(desk(policy).collect(range(9), temperature=temperature, seed=[2], chunk=4))
    with torch.no_grad():
        scored = score_actions(policy, batch)
    logprob_M = losses.chosen_logprob(scored.logits_MV / temperature, scored.token_M)
    ratio_M = (logprob_M - batch.logprob_old_BT[batch.action_mask_BT]).exp()
    assert_close(ratio_M, torch.ones_like(ratio_M), rtol=0, atol=1e-4)
    assert_close(scored.value_M, batch.value_old_BT[batch.action_mask_BT], rtol=0, atol=1e-4)


@pytest.mark.parametrize("make", [tiny.llama, tiny.gpt2])
def test_ratio_is_one_with_dropout_in_the_config(tokenizer, make):
    """PPO-15: dropout is active neither in the rollout nor in the update, whatever the mode."""
    policy = EndingPolicy(make(len(tokenizer.tokenizer), dropout=0.1), tokenizer, push=10.0)
    policy.train()
    batch = pack(desk(policy).collect(range(3), temperature=0.7, seed=[3]))
    for _ in range(2):
        with torch.no_grad():
            scored = score_actions(policy, batch)
        logprob_M = losses.chosen_logprob(scored.logits_MV / 0.7, scored.token_M)
        old_M = batch.logprob_old_BT[batch.action_mask_BT]
        assert_close(logprob_M, old_M, rtol=0, atol=1e-4)


def test_ids_are_kept_as_sampled_though_encoding_would_join_them(tokenizer):
    """Law 1: a call spelled letter by letter is executed, and trained on letter by letter."""
    call = '<function=query_ticket>{"ticket_id":"S1001"}</function>'
    letters = [tokenizer._encode(letter)[0] for letter in call] + [tokenizer.end_id]
    again = tokenizer.encode_action(call)
    assert tokenizer.action_text(letters) == call and letters != again
    env = TicketEnv(count_tokens=tokenizer.count)
    env.reset(options={"index": 0})
    opening = tuple(tokenizer.opening(env.messages, env.tools))
    limits = SamplingConfig(action_tokens=80, context_tokens=768)
    marks = tokenizer.tokenizer.convert_tokens_to_ids("<|assistant|>")
    policy = ScriptedPolicy(tokenizer, script({opening: [letters] * 6}, marks), 2048)
    make = lambda: TicketEnv(count_tokens=tokenizer.count)  # noqa: E731
    (episode,) = Collector(policy, make, limits).collect([0], temperature=0.7, seed=[0])
    stage = episode.stages[0]
    assert episode.ids[: stage.start] == opening
    assert list(episode.ids[stage.start : stage.stop]) == letters
    assert stage.text == call and stage.invalid is None and episode.outcome.queries > 0


# Batch, order, chunk and noise


ARRANGEMENTS = [
    ([0, 1, 2, 3, 4, 5], 64),
    ([5, 4, 3, 2, 1, 0], 64),
    ([0, 1, 2, 3, 4, 5], 2),
    ([3, 1, 5], 64),
    ([2, 2, 0], 1),
]


def test_greedy_output_does_not_depend_on_the_batch(policy):
    """ROL-02: all arrangements give the ids of playing one by one, in the order of the tasks."""
    collector = desk(policy)
    alone = {
        task: collector.collect([task], temperature=0.0, seed=[0])[0].ids for task in range(6)
    }
    assert len(set(map(len, alone.values()))) > 1
    for tasks, chunk in ARRANGEMENTS:
        found = collector.collect(tasks, temperature=0.0, seed=[9], chunk=chunk)
        assert [t.index for t in found] == tasks
        assert [t.ids for t in found] == [alone[task] for task in tasks], (tasks, chunk)


def test_greedy_logprob_is_that_of_temperature_one(llama_policy):
    (episode,) = desk(llama_policy).collect([0], temperature=0.0, seed=[0])
    assert list(episode.logprobs) == pytest.approx(plain_scores(llama_policy, episode, 1.0)[0],
                                                   abs=1e-4)  # fmt: skip


def test_scores_do_not_depend_on_the_batch(policy):
    """ROL-01: a short prompt scores the same beside a longer one and alone."""
    collector = desk(policy)
    together = collector.collect(range(5), temperature=0.0, seed=[0])
    assert len({t.stages[0].start for t in together}) > 1
    for episode in together:
        (alone,) = collector.collect([episode.index], temperature=0.0, seed=[0])
        assert list(episode.logprobs) == pytest.approx(list(alone.logprobs), abs=1e-4)
        assert list(episode.values) == pytest.approx(list(alone.values), abs=1e-4)


def test_positions_of_a_row_count_its_own_tokens(monkeypatch):
    """ROL-01: prompts of 5 and 12 tokens in one batch, scored as each is alone."""
    policy = EndingPolicy(tiny.gpt2(24, positions=64), NumberTokenizer())
    lengths, seen = (4, 11), []
    hidden = policy.hidden

    def record(token_BT, *, position_BT, mask=None, cache):
        seen.append(position_BT.expand(token_BT.shape).tolist())
        return hidden(token_BT, position_BT=position_BT, mask=mask, cache=cache)

    monkeypatch.setattr(policy, "hidden", record)
    request = lambda task: range(3 + task, 3 + task + lengths[task])  # noqa: E731
    make = lambda: ToyWorld(request=request, turns=2)  # noqa: E731
    collector = Collector(policy, make, SamplingConfig(action_tokens=8, context_tokens=64))
    short, long = collector.collect([0, 1], temperature=1.0, seed=[0])
    assert (short.stages[0].start, long.stages[0].start) == (5, 12)
    assert [row[:n] for row, n in zip(seen[0], (5, 12), strict=True)] == [[*range(5)], [*range(12)]]
    for episode in (short, long):
        assert list(episode.logprobs) == pytest.approx(plain_scores(policy, episode, 1.0)[0],
                                                       abs=1e-4)  # fmt: skip


@pytest.mark.parametrize("make", [tiny.llama, tiny.gpt2])
def test_episodes_that_go_on_keep_their_own_past_when_others_stop(make):
    """ROL-04 across turns: rows leave the batch in any order, the rest scores as if alone."""
    policy = EndingPolicy(make(24), NumberTokenizer(), push=1.5)
    turns = (1, 4, 2, 3, 1, 4, 2)
    world = lambda: ToyWorld(  # noqa: E731
        request=lambda task: range(3, 5 + task), turns=turns.__getitem__
    )
    collector = Collector(policy, world, SamplingConfig(action_tokens=5, context_tokens=64))
    episodes = collector.collect(range(7), temperature=1.0, seed=[0])
    assert tuple(len(t.stages) for t in episodes) == turns
    for episode in episodes:
        logprobs, values, _ = plain_scores(policy, episode, 1.0)
        assert list(episode.logprobs) == pytest.approx(logprobs, abs=1e-4)
        assert list(episode.values) == pytest.approx(values, abs=1e-4)


def test_noise_belongs_to_the_episode(llama_policy):
    """Episode number k draws the same tokens whatever its neighbours and its chunk."""
    collector = desk(llama_policy)
    base = collector.collect([3, 4, 5, 6, 7], temperature=1.0, seed=[7, 1])
    for tasks, chunk in (([3, 4, 5, 6, 7], 2), ([3, 4, 9, 6, 0], 64), ([3, 4, 5], 64)):
        found = collector.collect(tasks, temperature=1.0, seed=[7, 1], chunk=chunk)
        for one, other in zip(base, found, strict=False):
            if one.index == other.index:
                assert one.ids == other.ids
    again = collector.collect([3, 3], temperature=1.0, seed=[7, 1])
    assert again[0].ids != again[1].ids  # episode 1 has other noise than episode 0
    assert collector.collect([3], temperature=1.0, seed=[7, 2])[0].ids != base[0].ids


def test_collect_twice_gives_the_same_to_the_last_bit(llama_policy):
    first, second = (desk(llama_policy).collect(range(4), temperature=0.7, seed=[5])
                     for _ in range(2))  # fmt: skip
    assert first == second


def test_collect_leaves_the_global_random_state_alone(llama_policy):
    state = torch.get_rng_state()
    desk(llama_policy).collect(range(2), temperature=1.0, seed=[5])
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("mode", [True, False])
def test_collect_leaves_the_mode_as_found_and_builds_no_graph(mode):
    """ROL-07: eval and no gradients during the rollout, the caller's mode after it."""
    policy = ScriptedPolicy(NumberTokenizer(), lambda ids: 5, 8).train(mode)
    world = lambda: ToyWorld(turns=2)  # noqa: E731
    Collector(policy, world, SamplingConfig(action_tokens=2, context_tokens=64)).collect(
        [0, 1], temperature=0.7, seed=[0]
    )
    assert policy.modes and not any(policy.modes)  # neither training nor grad mode, at any pass
    assert policy.training is mode


def test_collect_leaves_the_mode_as_found_when_the_environment_fails():
    class Broken(ToyWorld):
        def play(self, text, *, finished):
            raise ArithmeticError

    policy = ScriptedPolicy(NumberTokenizer(), lambda ids: 5, 8).train()
    collector = Collector(policy, Broken, SamplingConfig(action_tokens=2, context_tokens=64))
    with pytest.raises(ArithmeticError):
        collector.collect([0], temperature=0.7, seed=[0])
    assert policy.training


# Where actions stop


def toy(
    plans: Callable[[int], Sequence[Sequence[int]]],
    tasks: Sequence[int],
    *,
    limits: SamplingConfig,
    request: Callable[[int], Sequence[int]] = lambda task: [3, 100 + task],
    **world,
) -> tuple[list[Trajectory], list[ToyWorld], ScriptedPolicy]:
    """Plays scripted actions in toy worlds; returns episodes, worlds and the policy."""
    worlds: list[ToyWorld] = []

    def make() -> ToyWorld:
        worlds.append(ToyWorld(request=request, **world))
        return worlds[-1]

    openings = {(*request(task), MARK): plans(task) for task in tasks}
    policy = ScriptedPolicy(NumberTokenizer(), script(openings, MARK), 128)
    collector = Collector(policy, make, limits)
    return collector.collect(tasks, temperature=0.7, seed=[0]), worlds, policy


def test_rows_stop_by_themselves_and_leave_the_batch(monkeypatch):
    """ROL-04: lengths 3, 7 and 10, end token included; the last one is cut, so it is unfinished."""
    plans = [[[5, 6, END]], [[5, 6, 7, 8, 9, 10, END]], [[11] * 40]]
    limits = SamplingConfig(action_tokens=10, context_tokens=64)
    episodes, worlds, policy = toy(plans.__getitem__, [0, 1, 2], limits=limits)
    assert [t.num_action_tokens for t in episodes] == [3, 7, 10]
    assert [world.heard for world in worlds] == [
        [("5 6", True)], [("5 6 7 8 9 10", True)], [("11 " * 9 + "11", False)],
    ]  # fmt: skip
    assert [t.stages[0].invalid for t in episodes] == [None, None, "unfinished"]
    # prompt [3, 100 + task, MARK], then the action and nothing else
    assert [len(t.ids) for t in episodes] == [6, 10, 13]
    batch = pack(episodes)
    assert batch.action_mask_BT.sum(dim=1).tolist() == [3, 7, 10]
    assert not batch.token_BT[~(torch.arange(13) < batch.length_B[:, None])].any()
    # the shared beginning, then one pass a token without drafts: a stopped row is in none of them
    monkeypatch.setattr(generation, "DRAFT_ROWS", 0)
    _, _, policy = toy(plans.__getitem__, [0, 1, 2], limits=limits)
    assert len(policy.modes) == 1 + 10


def test_action_cut_by_the_token_limit_is_invalid_whatever_it_says(tokenizer):
    """The desk gets a perfect call whose end token did not fit: unfinished, not executed."""
    call = '<function=query_ticket>{"ticket_id":"S1001"}</function>'
    ids = tokenizer.encode_action(call)
    env = TicketEnv(count_tokens=tokenizer.count)
    env.reset(options={"index": 0})
    opening = tuple(tokenizer.opening(env.messages, env.tools))
    mark = tokenizer.tokenizer.convert_tokens_to_ids("<|assistant|>")
    policy = ScriptedPolicy(tokenizer, script({opening: [ids] * 6}, mark), 2048)
    make = lambda: TicketEnv(count_tokens=tokenizer.count)  # noqa: E731
    for spare, expected in ((0, None), (-1, "unfinished")):
        limits = SamplingConfig(action_tokens=len(ids) + spare, context_tokens=768)
        (episode,) = Collector(policy, make, limits).collect([0], temperature=0.7, seed=[0])
        assert episode.stages[0].invalid == expected
        assert bool(episode.outcome.queries) is (expected is None)
        # the history reads the same: the end mark is there once, sampled or supplied
        stage = episode.stages[0]
        assert list(episode.ids[stage.start : stage.start + len(ids)]) == ids
        assert stage.stop - stage.start == len(ids) + spare


def test_result_that_the_policy_invents_is_never_in_the_prompt(tokenizer):
    """ROL-06: text after the call makes the message invalid; the status shown is the desk's."""
    task = TicketEnv()
    task.reset(options={"index": 0})
    call = f'<function=query_ticket>{{"ticket_id":"{task.task.ticket_id}"}}</function>'
    invented = '{"status": "sold"}'
    stops = tokenizer.encode_action(call)
    runs_on = tokenizer.encode_action(call + invented + call)
    opening = tuple(tokenizer.opening(task.messages, task.tools))
    mark = tokenizer.tokenizer.convert_tokens_to_ids("<|assistant|>")
    make = lambda: TicketEnv(count_tokens=tokenizer.count)  # noqa: E731
    limits = SamplingConfig(action_tokens=len(runs_on), context_tokens=768)

    def play(plan: list[list[int]]) -> Trajectory:
        policy = ScriptedPolicy(tokenizer, script({opening: plan}, mark), 2048)
        (episode,) = Collector(policy, make, limits).collect([0], temperature=0.7, seed=[0])
        return episode

    # 1: the end token stops the action: what the script would write next is never sampled
    first = play([[*stops, *tokenizer.encode_action(invented)]] * 6)
    assert first.stages[0].invalid is None
    assert "sold" not in tokenizer.tokenizer.decode(first.ids)
    # 2: without an end token between them, the message is invalid and nothing is executed
    second = play([runs_on] * 6)
    assert {stage.invalid for stage in second.stages} == {"several_calls"}
    assert second.outcome.queries == 0
    # 3: role marks sampled by the policy open no turn for the environment
    forged = [*stops[:-1], mark, *tokenizer.encode_action(invented)]
    third = play([forged] * 6)
    assert third.outcome.turns == len(third.stages)
    assert third.stages[0].start == len(opening)


# Where episodes stop


@pytest.mark.parametrize(
    ("room", "turns"),
    [(100, 2), (139, 2), (140, 3), (99, 2), (89, 1), (90, 2)],
)
def test_context_without_room_for_a_whole_action_truncates(room, turns):
    """ROL-10: each action may have its 40 tokens, or the episode is cut before it begins."""
    # prompt 3; a turn takes 40 sampled tokens and 10 more (end mark, 8 ids, turn mark).
    # room 100: 40, answer (50), 40, answer (100), 0 < 40: cut after turn 2.
    # room 90: after turn 1 there is room for exactly 40 more; with 89 there is not.
    limits = SamplingConfig(action_tokens=40, context_tokens=3 + room)
    episodes, _, policy = toy(
        lambda task: [[11] * 99] * 9, [0], limits=limits, turns=5,
        answer=lambda task, turn: [20 + turn] * 8,
    )  # fmt: skip
    (episode,) = episodes
    assert [stage.stop - stage.start for stage in episode.stages] == [40] * turns
    assert [stage.start for stage in episode.stages] == [3 + 50 * k for k in range(turns)]
    assert episode.stop is StopReason.CONTEXT_LIMIT and episode.stop.truncated
    assert len(episode.ids) == episode.stages[-1].stop <= limits.context_tokens
    # PPO-02, law 16: the value of what the policy would have seen next, its answer included
    assert episode.bootstrap == 3 + 50 * turns
    # one pass for the beginning, one for the bootstrap; a turn of 40 equal tokens takes a few:
    # two without a guess, five with 7 right ones each
    assert len(policy.modes) <= 1 + (2 + 5) * turns + 1


def test_true_end_has_no_bootstrap():
    """Law 16: the step limit is part of the task, so its value is 0."""
    limits = SamplingConfig(action_tokens=4, context_tokens=64)
    (episode,), *_ = toy(lambda task: [[5, END]] * 3, [0], limits=limits, turns=3)
    assert episode.stop is StopReason.STEP_LIMIT
    assert episode.bootstrap == 0.0
    assert len(episode.stages) == 3


def test_steps_left_are_in_every_prompt(llama_policy):
    """Law 16, corollary: a limit that is punished is one the policy can see coming."""
    (episode,) = desk(llama_policy).collect([0], temperature=1.0, seed=[0])
    decode = llama_policy.tokenizer.tokenizer.decode
    for turn, stage in enumerate(episode.stages):
        assert f"steps left: {4 - turn}<|end|>" in decode(episode.ids[: stage.start])


def test_prompt_without_room_for_an_action_is_refused():
    limits = SamplingConfig(action_tokens=62, context_tokens=64)
    with pytest.raises(ValueError, match=r"context_tokens \(64\) is too small: .* task 0 has 3"):
        toy(lambda task: [[5]], [0], limits=limits)


# Whose token is whose


def test_every_token_is_the_policys_or_the_templates():
    """Laws 2, 5, 6: stages cover what was sampled; all else is prompt, end mark or answer."""
    plans = [[[5, 6, END], [7, 8, 9, 9], [10, END]], [[END], [5, END], [6, 6, 6, 6]]]
    limits = SamplingConfig(action_tokens=4, context_tokens=64)
    episodes, *_ = toy(plans.__getitem__, [0, 1], limits=limits, turns=3,
                       answer=lambda task, turn: [40 + turn, 50])  # fmt: skip
    # prompt | 5 6 END | 40 50 MARK | 7 8 9 9 (cut) | END 41 50 MARK | 10 END
    assert episodes[0].ids == (
        3, 100, MARK, 5, 6, END, 40, 50, MARK, 7, 8, 9, 9, END, 41, 50, MARK, 10, END,
    )  # fmt: skip
    assert [(s.start, s.stop) for s in episodes[0].stages] == [(3, 6), (9, 13), (17, 19)]
    # prompt | END | 40 50 MARK | 5 END | 41 50 MARK | 6 6 6 6 (cut)
    assert episodes[1].ids == (3, 101, MARK, END, 40, 50, MARK, 5, END, 41, 50, MARK, 6, 6, 6, 6)
    for episode, plan in zip(episodes, plans, strict=True):
        batch = pack([episode])
        assert batch.token_BT[batch.action_mask_BT].tolist() == list(itertools.chain(*plan))
        # the scripted value of a state is the number of ids it has seen: token t is valued at t
        assert list(episode.values) == episode.action_positions()


def test_reward_of_each_turn_lies_on_its_own_last_token():
    """Laws 12, 14, 15: also a reward of 0, and one that arrives after the tool has run."""
    limits = SamplingConfig(action_tokens=4, context_tokens=64)
    (episode,), *_ = toy(
        lambda task: [[5, 6, END], [7, END], [8, END]], [0], limits=limits, turns=3,
        pay=lambda task, turn, text: [0.25, 0.0, 1.0][turn],
    )  # fmt: skip
    batch = pack([episode])
    places = batch.reward_BT[0].nonzero().flatten().tolist()
    assert places == [episode.stages[0].stop - 1, episode.stages[2].stop - 1]
    assert [s.reward for s in episode.stages] == [0.25, 0.0, 1.0]
    assert episode.reward == 1.25


def test_reward_of_being_cut_joins_that_of_the_last_turn():
    limits = SamplingConfig(action_tokens=40, context_tokens=64)
    (episode,), *_ = toy(
        lambda task: [[11] * 99] * 3, [0], limits=limits, turns=3,
        pay=lambda task, turn, text: 0.25, pay_cut=-0.5,
    )  # fmt: skip
    assert episode.stop is StopReason.CONTEXT_LIMIT
    assert [stage.reward for stage in episode.stages] == [-0.25]


@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        (LIMITS, StopReason.THREE_STRIKES),
        (SamplingConfig(action_tokens=6, context_tokens=160), StopReason.CONTEXT_LIMIT),
    ],
)
def test_rewards_of_the_turns_sum_to_the_score_of_the_episode(llama_policy, limits, stop):
    collector = desk(llama_policy, limits, max_invalid=3)
    for episode in collector.collect(range(4), temperature=1.0, seed=[1]):
        assert episode.reward == pytest.approx(sum(episode.reward_parts.values()))
        assert episode.stop is stop


def test_each_episode_has_an_environment_of_its_own():
    """Law 33: a fresh one each time, also for the same task."""
    limits = SamplingConfig(action_tokens=4, context_tokens=64)
    _, worlds, _ = toy(lambda task: [[5, END]] * 2, [0, 0, 1], limits=limits, turns=2)
    assert len({id(world) for world in worlds}) == 3
    assert [len(world.heard) for world in worlds] == [2, 2, 2]


# Sampling


def test_sample_follows_the_distribution():
    """Chi-square over 20000 draws on three tokens, at two temperatures."""
    logits = torch.tensor([[1.0, 0.0, -1.0]])
    noise = torch.rand(20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for temperature in (1.0, 0.5):
        token, *_ = sample(logits.expand(len(noise), 3), temperature, noise.tolist())
        expected = (logits[0] / temperature).double().softmax(0) * len(noise)
        counts = torch.bincount(token, minlength=3).double()
        assert chisquare(counts.numpy(), expected.numpy()).pvalue > 0.01
        # the check can fail: the same counts at the other temperature
        other = (logits[0] / (1.5 - temperature)).double().softmax(0) * len(noise)
        assert chisquare(counts.numpy(), other.numpy()).pvalue < 1e-6


def test_sample_takes_the_first_token_whose_cumulative_probability_exceeds_the_noise():
    # probabilities 0.2, 0.5, 0.3: borders 0.2 and 0.7
    logits = torch.tensor([[0.2, 0.5, 0.3]]).log().expand(6, 3)
    token, logprob, _ = sample(logits, 1.0, [0.0, 0.19, 0.21, 0.69, 0.71, 1 - 1e-12])
    assert token.tolist() == [0, 0, 1, 1, 2, 2]
    assert logprob.exp().tolist() == pytest.approx([0.2, 0.2, 0.5, 0.5, 0.3, 0.3])


def test_sample_never_takes_a_token_of_probability_zero():
    logits = torch.tensor([[-float("inf"), 0.0, -float("inf"), 0.0, -float("inf")]]).expand(4, 5)
    token, *_ = sample(logits, 0.7, [0.0, 0.49, 0.51, 1 - 1e-16])
    assert token.tolist() == [1, 1, 3, 3]


def test_sample_row_depends_on_its_own_logits_and_noise_alone():
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(1))
    noise = [0.1, 0.3, 0.5, 0.7, 0.9]
    whole = sample(logits, 0.7, noise)
    for row in range(5):
        alone = sample(logits[row : row + 1], 0.7, noise[row : row + 1])
        assert all(torch.equal(a[row : row + 1], b) for a, b in zip(whole, alone, strict=True))


def test_sample_temperature_zero_is_greedy_and_reports_temperature_one():
    # PPO-16, PPO-17: log softmax([2, 0])[0] = -0.126928, entropy 0.365334
    token, logprob, entropy = sample(torch.tensor([[2.0, 0.0]]), 0.0, [0.999])
    assert token.tolist() == [0]
    assert logprob.item() == pytest.approx(-0.126928, abs=1e-6)
    assert entropy.item() == pytest.approx(0.365334, abs=1e-6)


def test_sample_reports_the_tempered_distribution():
    # PPO-16, PPO-17: log softmax([4, 0])[0] = -0.018150, entropy 0.090095
    token, logprob, entropy = sample(torch.tensor([[2.0, 0.0]]), 0.5, [0.5])
    assert token.tolist() == [0]
    assert logprob.item() == pytest.approx(-0.018150, abs=1e-6)
    assert entropy.item() == pytest.approx(0.090095, abs=1e-6)
