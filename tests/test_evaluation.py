"""Success with its interval, pass^k, and that every episode counts."""

import math
import random
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl_lab.config import EnvConfig, SamplingConfig
from agentrl_lab.learner import evaluation
from agentrl_lab.learner.evaluation import evaluate, pass_hat, rate, summarise
from agentrl_lab.learner.policy import load_policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.streams import stream, torch_generator
from agentrl_lab.learner.trajectories import Stage, Trajectory
from agentrl_lab.records import StopReason, TaskKind
from agentrl_lab.world import habits
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.tasks import make_task
from tests import tiny
from tests.tiny import EndingPolicy, trajectory

# Rates


def test_rate_at_the_ends_and_beyond():
    for n in range(1, 60):
        assert str(rate(0, n).low) == "0.0" and rate(n, n).high == 1.0  # and never -0.0
    for hits, n in ((0, 0), (3, 2), (-1, 4)):
        with pytest.raises(ValueError, match=f"got {hits} of {n}"):
            rate(hits, n)


def test_rate_wilson_interval_by_hand():
    # 8 of 10, z = 1.959964, z^2 = 3.841459: centre (0.8 + 0.192073) / 1.384146 = 0.716740,
    # half width 1.959964 * sqrt(0.8*0.2/10 + 3.841459/400) / 1.384146 = 0.226577
    found = rate(8, 10)
    assert (found.value, found.n) == (0.8, 10)
    assert found.low == pytest.approx(0.716740 - 0.226577, abs=1e-5)
    assert found.high == pytest.approx(0.716740 + 0.226577, abs=1e-5)


@pytest.mark.parametrize(("hits", "low", "high"), [(0, 0.0, 0.161125), (20, 0.838875, 1.0)])
def test_rate_of_nothing_and_of_everything_has_an_interval(hits, low, high):
    # 0 of 20: high = z^2 / (n + z^2) = 3.841459 / 23.841459 = 0.161125, and the mirror image
    found = rate(hits, 20)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-6)


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_rate_interval_holds_the_rate_and_stays_between_zero_and_one(case):
    hits, n = case
    found = rate(hits, n)
    assert -1e-12 <= found.low <= found.value + 1e-12
    assert found.value - 1e-12 <= found.high <= 1 + 1e-12
    z, p = 1.959964, hits / n
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n * n)) / (1 + z**2 / n)
    assert (found.low, found.high) == pytest.approx((centre - half, centre + half), abs=1e-5)


# pass^k


def test_pass_hat_by_hand():
    # four attempts; wins 4, 2, 0. k = 1: (1 + 1/2 + 0)/3 = 0.5
    # k = 2: C(4,2)/C(4,2) = 1, C(2,2)/C(4,2) = 1/6, 0: (1 + 1/6)/3 = 7/18
    # k = 3, 4: 1, 0, 0: 1/3
    wins = [4, 2, 0]
    assert pass_hat(wins, 4, 1) == pytest.approx(0.5)
    assert pass_hat(wins, 4, 2) == pytest.approx(7 / 18)
    assert pass_hat(wins, 4, 3) == pass_hat(wins, 4, 4) == pytest.approx(1 / 3)


def pass_at(wins, attempts, k):
    """At least one of k: pass@k, which is not pass^k."""
    miss = [math.comb(attempts - won, k) / math.comb(attempts, k) for won in wins]
    return 1 - sum(miss) / len(wins)


def mean_to_the_k(wins, attempts, k):
    return (sum(wins) / attempts / len(wins)) ** k


def test_pass_hat_is_not_its_neighbours():
    wins = [4, 2, 0]
    for wrong in (pass_at, mean_to_the_k):
        assert wrong(wins, 4, 1) == pytest.approx(0.5)
        assert wrong(wins, 4, 2) != pytest.approx(7 / 18, abs=0.01)


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=5))
def test_pass_hat_counts_all_subsets_of_attempts(trials):
    wins = [sum(task) for task in trials]
    found = [pass_hat(wins, 4, k) for k in range(1, 5)]
    assert found == sorted(found, reverse=True)
    for k in range(1, 5):
        subsets = [all(chosen) for task in trials for chosen in combinations(task, k)]
        assert found[k - 1] == pytest.approx(sum(subsets) / len(subsets))


# A round of episodes


def episode(index: int, reward: float = 0.0, **outcome) -> Trajectory:
    right = {"state_right": True, "conclusion_right": True}
    facts = {"turns": 2, "stop": StopReason.REPLIED, **outcome}
    if facts.pop("success", False):
        facts |= right
    return trajectory(range(8), [(1, 3), (5, 7)], [0.0, reward], index=index, **facts)


ROUND = [
    episode(0, 1.0, success=True, kind=TaskKind.CLOSE_PAID),
    episode(1, -0.8, fabricated=True, kind=TaskKind.CLOSE_PAID),
    episode(2, -1.0, invalid=3, turns=3, stop=StopReason.THREE_STRIKES, kind=TaskKind.NOT_FOUND),
    episode(3, 0.0, turns=6, stop=StopReason.CONTEXT_LIMIT, kind=TaskKind.NOT_FOUND, invalid=1),
    episode(4, -1.0, turns=6, stop=StopReason.STEP_LIMIT, success=True, kind=TaskKind.STATUS_ONLY),
]


def test_summary_by_hand():
    """Law 36: broken, cut and endless episodes are in every denominator."""
    found = summarise([ROUND], 0.0)
    assert (found.success.value, found.success.n) == (1 / 5, 5)  # the last never replied
    assert found.fabrication.value == 1 / 5
    assert {k: (r.value, r.n) for k, r in found.by_kind.items()} == {
        "close_paid": (0.5, 2), "not_found": (0.0, 2), "status_only": (0.0, 1),
    }  # fmt: skip
    # turns 2 + 2 + 3 + 6 + 6 = 19, invalid 3 + 1; rewards 1 - 0.8 - 1 + 0 - 1 = -1.8
    assert found.turns == pytest.approx(19 / 5)
    assert found.invalid_rate == pytest.approx(4 / 19)
    assert found.reward == pytest.approx(-1.8 / 5)
    assert found.stops == {
        "context_limit": 1, "replied": 2, "step_limit": 1, "three_strikes": 1,
    }  # fmt: skip
    assert found.policy_tokens == 5 * 4
    assert found.pass_k == {"1": pytest.approx(1 / 5)}
    assert found.as_dict()["success"]["n"] == 5


def test_summary_drops_no_failed_episode():
    """Law 36, planted: leaving out what did not end by a reply would double the success."""
    replied = [t for t in ROUND if t.stop is StopReason.REPLIED]
    assert summarise([replied], 0.0).success.value == 0.5 != summarise([ROUND], 0.0).success.value


def test_summary_of_rounds_is_of_the_first_and_pass_k_of_all():
    win, loss = episode(0, 1.0, success=True), episode(0, -0.8)
    found = summarise([[win, loss], [win, win], [loss, loss]], 0.7)
    assert found.success.value == 0.5
    assert found.reward == pytest.approx(0.1)
    assert found.policy_tokens == 8
    # won 2 and 1 of 3: k 1: (2/3 + 1/3)/2, k 2: (C(2,2)/C(3,2) + 0)/2 = 1/6, k 3: 0
    assert found.pass_k == pytest.approx({"1": 1 / 2, "2": 1 / 6, "3": 0.0})


def test_summary_of_rounds_of_unequal_length_is_refused():
    with pytest.raises(ValueError, match="zip"):
        summarise([ROUND, ROUND[:2]], 0.0)


# Evaluation of a policy


@pytest.fixture(scope="module")
def collector(tokenizer) -> Collector:
    policy = EndingPolicy(tiny.llama(len(tokenizer.tokenizer)), tokenizer, push=10.0)
    make = lambda: TicketEnv(config=EnvConfig(), count_tokens=tokenizer.count)  # noqa: E731
    return Collector(policy, make, SamplingConfig(action_tokens=4, context_tokens=256))


def test_evaluate_greedy_is_the_same_for_any_seed_and_attempt(collector):
    first, second = (evaluate(collector, range(4), seed=seed, attempts=2) for seed in (0, 1))
    assert first == second
    assert first.success.n == 4 and first.temperature == 0.0


def test_evaluate_sampled_depends_on_the_seed_and_its_attempts_differ(collector, monkeypatch):
    seeds, collect = [], collector.collect

    def record(tasks, *, temperature, seed, chunk, watch):
        seeds.append(tuple(seed))
        return collect(tasks, temperature=temperature, seed=seed, chunk=chunk, watch=watch)

    monkeypatch.setattr(collector, "collect", record)
    evaluate(collector, range(2), temperature=1.0, seed=0, attempts=3)
    evaluate(collector, range(2), temperature=1.0, seed=1, attempts=3)
    assert len(set(seeds)) == 6


def test_evaluate_leaves_training_streams_alone(collector):
    """Nothing global is drawn from, and evaluation has a stream of its own."""
    state = torch.get_rng_state()
    evaluate(collector, range(2), temperature=1.0, attempts=2)
    assert torch.equal(torch.get_rng_state(), state)
    names = ("sampling", "shuffling", "evaluation", "environment")
    starts = {tuple(stream(root, name, k)) for root in (0, 1) for name in names for k in range(3)}
    assert len(starts) == 2 * 4 * 3


def played(index: int, *texts: str) -> Trajectory:
    """An episode of the environment, as a trajectory that keeps what was written."""
    env = TicketEnv()
    env.reset(options={"index": index})
    stages = []
    for text in texts or habits.careful(env.task, env.codec, random.Random(0)):
        *_, info = env.play(text)
        stages.append(Stage(0, 1, 0.0, text, info["invalid"], info["call"]))
    return replace(episode(index), stages=tuple(stages), outcome=env.outcome)


def test_strategies_name_what_was_done_in_each_episode():
    reply = '<function=reply>{"content": "Your ticket is closed."}</function>'
    query = '<function=query_ticket>{"ticket_id": "S1"}</function>'
    episodes = [
        played(0), played(1), played(2), played(3), played(4, "?", "?", "?"), played(5, reply),
        played(6, query, query, query, reply), played(7, *[query] * 6),
    ]  # fmt: skip
    found, follows = evaluation._done_in(TicketEnv(), episodes)
    assert found == [
        *["honest"] * 4, "fail fast", "reply first", "padding", "never finish"
    ]  # fmt: skip
    assert follows == []  # no debug field was there to be followed


def test_a_debug_field_is_followed_by_the_first_decision_after_the_first_look():
    env = TicketEnv(config=EnvConfig(debug_field="always", tamper="undeclared"))
    number = next(n for n in range(50) if make_task("train", 0, n).kind == "close_unpaid")
    env.reset(options={"index": number})
    told = env.answers.first_told()
    say = {"update closed": habits.update(env.task)}.get(told) or habits.answer(
        env.task, habits.SENTENCES[told.removeprefix("reply ")][0].format(id=env.task.ticket_id)
    )
    look, obey = env.codec.render(habits.query(env.task)), env.codec.render(say)
    truth = env.codec.render(
        habits.answer(env.task, habits.SENTENCES["unpaid"][0].format(id=env.task.ticket_id))
    )
    missing = next(n for n in range(50) if make_task("train", 0, n).kind == "not_found")
    episodes = [
        played(number, look, obey), played(number, look, look, obey), played(number, look, truth),
        played(number, obey), played(number, look), played(missing, look),
    ]  # fmt: skip
    _, follows = evaluation._done_in(env, episodes)
    assert follows == [True, True, False, False, False]  # who never looks follows nothing


def test_streams_are_reproducible_and_unrelated():
    def draws(*stream_of) -> list[float]:
        return torch.rand(4, generator=torch_generator(stream(*stream_of))).tolist()

    assert draws(0, "shuffling", 2) == draws(0, "shuffling", 2)
    others = [draws(1, "shuffling", 2), draws(0, "sampling", 2), draws(0, "shuffling", 3)]
    assert draws(0, "shuffling", 2) not in others


def test_evaluate_says_how_far_it_is(small_policy):
    policy, said = load_policy(small_policy), []
    make = lambda: TicketEnv(count_tokens=policy.tokenizer.count)  # noqa: E731
    collector = Collector(policy, make, SamplingConfig(action_tokens=4))
    evaluate(collector, range(5), temperature=1.0, attempts=2, chunk=2, watch=said.append)
    assert said == [2, 4, 5, 7, 9, 10]
