"""A policy solved exactly: hand-worked values, sampling, and laws that no wrong version keeps."""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import pytest

from agentrl_lab.config import EnvConfig
from agentrl_lab.records import Call, TaskKind
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.information import (
    Evaluation,
    evaluate,
    hide,
    steps_of,
    table_of,
    value_of_information,
)
from agentrl_lab.world.meanings import Action, World, named, worlds
from agentrl_lab.world.plans import best_plan
from agentrl_lab.world.rewards import PRESETS, RewardSpec, preset
from agentrl_lab.world.tasks import make_task
from tests.brute import played_as_text

NAMES = pytest.mark.parametrize("name", PRESETS)
TURNS = 3
MEANT = ("query", "update closed", "reply closed", "reply unpaid", "reply status_open", "invalid")


class RandomTable(Mapping):
    """A policy with a row for every state: random, the same for the same seed, never quite 0."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __getitem__(self, state: str) -> dict[str, float]:
        rng = random.Random(f"{self.seed}/{state}")
        weights = [0.05 + rng.random() ** 3 for _ in MEANT]
        return {name: weight / sum(weights) for name, weight in zip(MEANT, weights, strict=True)}

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError

    __len__ = __iter__


def certain(policy: Mapping[str, str]) -> dict[str, dict[str, float]]:
    return {state: {action: 1.0} for state, action in policy.items()}


def is_unpaid(world: World) -> bool:
    return world.task.kind is TaskKind.CLOSE_UNPAID


# By hand

TWO_STEPS = {
    "close": {"query": 0.5, "reply unpaid": 0.5},
    "close > query: open, unpaid": {"reply unpaid": 0.75, "reply closed": 0.25},
    "close > query: pending, unpaid": {"reply unpaid": 1.0},
}


def check_two_steps_by_hand(solve: Callable[..., Evaluation]) -> None:
    """Unpaid tickets, open or pending, under `outcome`, with gamma 0.9."""
    found = solve(TWO_STEPS, preset("outcome"), only=is_unpaid, max_turns=TURNS, gamma=0.9)
    # open: 0.75 * 1 - 0.25 * 0.8 = 0.55; pending: 1; each half of the tickets
    # Q(query) = 0.9 * (0.5 * 0.55 + 0.5 * 1) = 0.6975; Q(reply unpaid) = 1
    # V(close) = 0.5 * 0.6975 + 0.5 * 1 = 0.84875
    assert found.values == pytest.approx(
        {
            "close": 0.84875,
            "close > query: open, unpaid": 0.55,
            "close > query: pending, unpaid": 1.0,
        }
    )
    assert found.value == pytest.approx(0.84875)
    advantages = {(s, a): x for s, row in found.advantages.items() for a, x in row.items()}
    assert advantages == pytest.approx(
        {
            ("close", "query"): -0.15125,
            ("close", "reply unpaid"): 0.15125,
            ("close > query: open, unpaid", "reply unpaid"): 0.45,
            ("close > query: open, unpaid", "reply closed"): -1.35,
            ("close > query: pending, unpaid", "reply unpaid"): 0.0,
        }
    )
    assert list(found.visits.values()) == pytest.approx([1.0, 0.25, 0.25])


def test_evaluate_two_steps_by_hand():
    check_two_steps_by_hand(evaluate)


def forgets_gamma(table: object, spec: RewardSpec, **how: object) -> Evaluation:
    """Wrong: does not discount."""
    return evaluate(table, spec, **how | {"gamma": 1.0})


def takes_the_best(table: Mapping, spec: RewardSpec, **how: object) -> Evaluation:
    """Wrong: the value of the best policy in place of the given one's."""
    best = best_plan(spec, **how)
    return dataclasses.replace(evaluate(table, spec, **how), value=best.value)


def pays_for_the_past(table: object, spec: RewardSpec, **how: object) -> Evaluation:
    """Wrong: values in the money of the start, discounted once more for each turn gone by."""
    found = evaluate(table, spec, **how)
    values = {s: v * how["gamma"] ** s.count(" > ") for s, v in found.values.items()}
    return dataclasses.replace(found, values=values)


def knows_the_ticket(table: Mapping, spec: RewardSpec, **how: object) -> Evaluation:
    """Wrong: the values of one of the worlds that look alike."""
    return evaluate(table, spec, **how | {"only": lambda w: w is next(filter(is_unpaid, worlds()))})


WRONG = [forgets_gamma, takes_the_best, pays_for_the_past, knows_the_ticket]


@pytest.mark.parametrize("wrong", WRONG)
def test_check_two_steps_by_hand_rejects(wrong):
    with pytest.raises(AssertionError):
        check_two_steps_by_hand(wrong)


@NAMES
def test_evaluate_the_best_plan_is_worth_what_it_says(name):
    for how in ({}, {"gamma": 0.8}):
        plan = best_plan(preset(name), max_turns=TURNS, **how)
        found = evaluate(certain(plan.policy), preset(name), max_turns=TURNS, **how)
        assert found.value == pytest.approx(plan.value)
        assert set(found.values) == set(plan.policy)


# Laws


@NAMES
@pytest.mark.parametrize("seed", range(2))
def test_evaluate_advantages_of_a_state_average_to_nothing(name, seed):
    table = RandomTable(seed)
    found = evaluate(table, preset(name), max_turns=TURNS, gamma=0.9)
    for state, row in found.advantages.items():
        assert sum(table[state][a] * x for a, x in row.items()) == pytest.approx(0.0, abs=1e-12)
    assert found.visits["close"] == pytest.approx(0.75)


@NAMES
def test_evaluate_another_policy_gains_the_advantages_it_collects(name):
    # The performance difference: V' - V = sum over states and actions of
    # visits'(s) * gamma^turn * pi'(a | s) * A(s, a), exactly.
    gamma, old, new = 0.9, RandomTable(0), RandomTable(1)
    before, after = (evaluate(t, preset(name), max_turns=TURNS, gamma=gamma) for t in (old, new))
    gain = sum(
        visit * gamma ** state.count(" > ") * sum(
            new[state][action] * before.advantages[state][action] for action in MEANT
        )
        for state, visit in after.visits.items()
    )  # fmt: skip
    assert after.value - before.value == pytest.approx(gain)


# Against sampling


@dataclasses.dataclass
class Sample:
    """Returns that were seen from a state on: after any action, and after each."""

    returns: dict[object, list[float]]

    def check(self, key: object, exact: float, least: int) -> int:
        """1 if the state was seen often enough to compare, within 4 standard errors; else 0.

        Often, since successes are rare: the standard error of few returns is too small.
        """
        values = self.returns[key]
        if len(values) < least:
            return 0
        mean = sum(values) / len(values)
        variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
        assert abs(mean - exact) <= 4 * (variance / len(values)) ** 0.5 + 1e-9, key
        return 1


TABLE, SPEC, GAMMA = RandomTable(5), preset("shaped"), 0.8


@cache
def sampled(episodes: int) -> Sample:
    """Plays TABLE on real environments, as text, in worlds drawn by their shares."""
    rng, returns = random.Random(3), defaultdict(list)

    def drawn(state: str) -> Action:
        return named(rng.choices(MEANT, [TABLE[state][meant] for meant in MEANT])[0])

    for world in rng.choices(worlds(), [world.share for world in worlds()], k=episodes):
        env = TicketEnv(
            reward=SPEC, config=EnvConfig(max_turns=TURNS), task_source=lambda _, w=world: w.task
        )
        steps, rewards = played_as_text(drawn, env)
        total = 0.0
        for (state, action), reward in zip(reversed(steps), reversed(rewards), strict=True):
            total = reward + GAMMA * total
            returns[state].append(total)
            returns[state, str(action)].append(total)
        returns[()].append(total)
    return Sample(returns)


def check_against_sampling(solve: Callable[..., Evaluation], episodes: int, least: int) -> None:
    sample, exact = sampled(episodes), solve(TABLE, SPEC, max_turns=TURNS, gamma=GAMMA)
    compared = sample.check((), exact.value, least)
    for state, row in exact.advantages.items():
        compared += sample.check(state, exact.values[state], least)
        for action, advantage in row.items():
            compared += sample.check((state, action), exact.values[state] + advantage, least)
    assert compared >= 10


def test_evaluate_agrees_with_sampling_within_four_standard_errors():
    check_against_sampling(evaluate, episodes=1000, least=60)


@pytest.mark.slow
def test_evaluate_agrees_with_much_sampling():
    check_against_sampling(evaluate, episodes=15_000, least=500)


@pytest.mark.parametrize("wrong", [forgets_gamma, takes_the_best, pays_for_the_past])
def test_check_against_sampling_rejects(wrong):
    with pytest.raises(AssertionError):
        check_against_sampling(wrong, episodes=1000, least=60)


# Errors


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        ({"query": 0.5}, "0.5"),
        ({"query": 1.5, "invalid": -0.5}, "-0.5"),
        ({}, "{}"),
    ],
)
def test_evaluate_a_row_that_is_no_distribution_is_an_error(row, shown):
    with pytest.raises(ValueError, match=r"table\['close'\] must hold probabilities") as error:
        evaluate({"close": row, "status": {"reply none": 1.0}}, preset("outcome"), max_turns=2)
    assert shown in str(error.value)


def test_evaluate_a_state_without_a_row_is_an_error():
    table = {"close": {"query": 1.0}, "status": {"reply none": 1.0}}
    with pytest.raises(ValueError, match=r"close > query: .* got None\. Every state that"):
        evaluate(table, preset("outcome"), max_turns=2)


def test_evaluate_leaves_actions_of_no_probability_out():
    table = {"close": {"query": 0.0, "reply none": 1.0}, "status": {"reply none": 1.0}}
    found = evaluate(table, preset("outcome"), max_turns=2)
    assert found.value == pytest.approx(-0.8) and found.advantages["close"] == {"reply none": 0.0}


# A table from episodes


def test_steps_of_a_plan_played_as_text_are_its_policy_and_earn_its_value():
    plan, steps = best_plan(preset("shaped"), max_turns=TURNS), []
    for index in range(40):  # real tasks, whole tickets, the summary cut to 48 words
        env = TicketEnv("test", config=EnvConfig(max_turns=TURNS))
        played_as_text(lambda state: named(plan.policy[state]), env, index)
        steps += steps_of(env.task, env.messages, env.codec)
    table = table_of(steps)
    assert table.items() <= certain(plan.policy).items()
    assert len(table) > 12  # nearly all 18 states are met


def test_steps_of_counts_what_the_desk_made_of_a_message():
    task = make_task("train", 0, 0)
    env = TicketEnv(task_source=lambda _: task)
    env.reset(options={"index": 0})
    call = env.codec.render(Call("query_ticket", {"ticket_id": task.ticket_id}))
    env.play(call, finished=False)  # a whole call, yet cut at the token limit
    env.step(env.codec.render(Call("query_ticket", {"ticket_id": "S0000"})))
    env.step(env.codec.render(Call("update_ticket", {"ticket_id": "S0000", "new_status": "open"})))
    env.step(call.replace("query", "get"))
    intent = task.intent
    assert steps_of(task, env.messages, env.codec) == [
        (intent, "invalid"),
        (f"{intent} > invalid: no_call", "query elsewhere"),
        (
            f"{intent} > invalid: no_call > query elsewhere: ticket_not_found",
            "update open elsewhere",
        ),
        (
            f"{intent} > invalid: no_call > query elsewhere: ticket_not_found"
            " > update open elsewhere: refused",
            "invalid",
        ),
    ]


def test_table_of_shares_by_state():
    steps = [("close", "query"), ("close", "query"), ("close", "invalid"), ("status", "query")]
    assert table_of(steps) == {
        "close": {"query": pytest.approx(2 / 3), "invalid": pytest.approx(1 / 3)},
        "status": {"query": 1.0},
    }


# The value of looking


@pytest.mark.parametrize(
    ("saw", "no_status", "no_paid"),
    [
        ("open, paid", "hidden, paid", "open, hidden"),
        ("ticket_not_found", "ticket_not_found", "ticket_not_found"),
        ("accepted", "accepted", "accepted"),
    ],
)
def test_hide_hides_one_field_of_a_ticket(saw, no_status, no_paid):
    assert (hide("status")(saw), hide("paid")(saw)) == (no_status, no_paid)


# Without the status: "close" cannot tell open and pending (0.30 paid, 0.20 unpaid) from closed
#   (0.15, half of it paid); the rest of "close" is a missing ticket, 0.10. Best: go by payment,
#   right for 0.30 + 0.20 + 0.10, and for one status of three and a missing ticket, 0.0667 + 0.05.
#   outcome: 1 - (0.716667 - 0.283333 * 0.8) = 0.51; shaped: 1.08 for a success, 0.283333 * 1.88.
#   process: as outcome, for what is paid on the way is paid all the same.
#   printed: the 0.075 that are closed and paid are changed for nothing, 0.075 * 2.
# Without the payment: closing what is open or pending is right for 0.30 and wrong for 0.20.
#   outcome: 0.20 * 1.8 = 0.36; shaped: 0.20 * 1.88; printed: 0.20 * 2.
# Without the query: tests/test_oracle.py.
VALUE_OF_INFORMATION = {
    "printed": {"query": 0.555, "status": 0.15, "paid": 0.40},
    "outcome": {"query": 1.14, "status": 0.51, "paid": 0.36},
    "process": {"query": 1.275, "status": 0.51, "paid": 0.36},
    "shaped": {"query": 1.190667, "status": 0.532667, "paid": 0.376},
}


@NAMES
def test_value_of_information_by_hand(name):
    found = value_of_information(preset(name), max_turns=TURNS)
    assert found == pytest.approx(VALUE_OF_INFORMATION[name], abs=1e-6)


def test_value_of_information_where_every_ticket_is_the_same_h3():
    # The printed environment's one ticket: always there, open and paid. Looking is worth nothing.
    def is_printed(world: World) -> bool:
        return world.task.kind is TaskKind.CLOSE_PAID and world is worlds()[same]

    same = next(n for n, world in enumerate(worlds()) if world.task.kind is TaskKind.CLOSE_PAID)
    for name in ("printed", "outcome"):
        found = value_of_information(preset(name), only=is_printed, max_turns=TURNS)
        assert found == pytest.approx({"query": 0.0, "status": 0.0, "paid": 0.0})


@pytest.mark.slow
@NAMES
def test_value_of_information_is_the_same_for_six_turns(name):
    found = value_of_information(preset(name))
    assert found == pytest.approx(VALUE_OF_INFORMATION[name], abs=1e-6)
