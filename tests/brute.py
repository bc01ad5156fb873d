"""Every sequence of actions as text on a real TicketEnv: what the oracle is compared with.

Writes its own messages and reads the answers itself: nothing of `plays.py` is taken on trust.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from agentrl_lab.config import EnvConfig
from agentrl_lab.records import Call, ConclusionKind
from agentrl_lab.world import habits
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.meanings import ACTIONS, QUERY_OTHERS, REPLY_ELSEWHERE, Action, World, worlds
from agentrl_lab.world.outcomes import EpisodeOutcome
from agentrl_lab.world.rewards import PRESETS, RewardSpec, RewardTerm
from agentrl_lab.world.tasks import Task

ALL_IN_ONE = RewardSpec(
    "all", tuple(RewardTerm(n, 1.0, lambda o, s=s: s.score(o).total) for n, s in PRESETS.items())
)
"""One part for each preset, so that every sequence is played only once."""
EVERY_ACTION = (*ACTIONS, REPLY_ELSEWHERE)
WITH_OTHERS = (*EVERY_ACTION, *QUERY_OTHERS)
Actions = tuple[Action, ...]
SENTENCES = {kind: sentences[-1] for kind, sentences in habits.SENTENCES.items()} | {
    ConclusionKind.NONE: "I will look into {id}.",
    ConclusionKind.CONFLICTING: "{id} is not paid. There is no ticket {id}.",
}
"""Other words than the module under test has for the same."""


# As text


@dataclass(frozen=True)
class Played:
    """What the environment did with a whole sequence."""

    saw: tuple[str, ...]
    rewards: Mapping[str, tuple[float, ...]]
    """Preset -> reward of each turn."""
    outcome: EpisodeOutcome

    def total(self, preset: str, gamma: float = 1.0) -> float:
        return sum(gamma**turn * reward for turn, reward in enumerate(self.rewards[preset]))


def text_of(action: Action, env: TicketEnv) -> str:
    """A message that means the action, in words that the module under test does not choose."""
    call = _call(action, env.task)
    return env.codec.render(call) if call else "Please wait."


def _call(action: Action, task: Task) -> Call | None:
    if action == REPLY_ELSEWHERE:
        return Call("reply", {"content": "I have closed S7777."})
    ticket_id = task.ticket_id
    if action in QUERY_OTHERS:
        others = [other for other in task.tickets if other != ticket_id]
        ticket_id = others[QUERY_OTHERS.index(action)]
    match action.verb:
        case "query":
            return Call("query_ticket", {"ticket_id": ticket_id})
        case "update":
            return Call("update_ticket", {"ticket_id": ticket_id, "new_status": action.detail})
        case "reply":
            content = SENTENCES[ConclusionKind(action.detail)].format(id=ticket_id)
            return Call("reply", {"content": content})
    return None


def seen_of(observation: str) -> str:
    """What an answer tells: an error, accepted or refused, or status and payment."""
    data = json.loads(observation.partition("\n")[0])
    ticket = f"{data.get('status')}, {'paid' if data.get('paid') else 'unpaid'}"
    return data.get("error") or data.get("result") or ticket


def played_as_text(
    policy: Callable[[str], Action], env: TicketEnv, index: int = 0
) -> tuple[list[tuple[str, Action]], list[float]]:
    """(information state, action) and reward of each turn, by a policy that acts on what it saw."""
    env.reset(options={"index": index})
    state, steps, rewards = env.task.intent, [], []
    while env.stop_reason is None:
        action = policy(state)
        observation, reward, *_ = env.step(text_of(action, env))
        steps.append((state, action))
        rewards.append(reward)
        state = f"{state} > {action}: {seen_of(observation)}"
    return steps, rewards


# Every sequence


@cache
def every_sequence(
    world: World, max_turns: int, choice: Actions = EVERY_ACTION
) -> Mapping[Actions, Played]:
    """Each whole sequence of one world with what the environment did."""
    env = TicketEnv(
        reward=ALL_IN_ONE, config=EnvConfig(max_turns=max_turns), task_source=lambda _: world.task
    )
    env.reset(options={"index": 0})
    return dict(_all(env, choice, (), Played((), dict.fromkeys(PRESETS, ()), env.outcome)))


def _all(
    env: TicketEnv, choice: Actions, actions: Actions, so_far: Played
) -> Iterator[tuple[Actions, Played]]:
    for action in choice:
        shared = (env.task, env.tools, env.desk.tools, env.messages)
        longer = copy.deepcopy(env, {id(part): part for part in shared})
        observation, reward, *_, info = longer.step(text_of(action, longer))
        parts = info["reward_parts"]
        assert abs(sum(parts.values()) - reward) < 1e-12
        rewards = {name: (*so_far.rewards[name], parts[name]) for name in PRESETS}
        result = Played((*so_far.saw, seen_of(observation)), rewards, longer.outcome)
        if longer.outcome.stop is None:
            yield from _all(longer, choice, (*actions, action), result)
        else:
            yield (*actions, action), result


def one_of_each_kind() -> list[World]:
    """The first world of each task kind."""
    return list({world.task.kind: world for world in reversed(worlds())}.values())


def best_by_hand(
    preset: str,
    max_turns: int,
    *,
    show: Callable[[str], str] = lambda saw: saw,
    allow: Callable[[Actions], bool] = lambda actions: True,
    gamma: float = 1.0,
) -> float:
    """The best return of a policy that acts on what it sees: plain recursion, nothing merged."""

    def best(sequences: Mapping[World, Mapping[Actions, Played]], turn: int) -> float:
        """`sequences`: of each world that looks like this, the ones that begin as it did."""
        values = []
        for action in {actions[turn] for whole in sequences.values() for actions in whole}:
            value, later = 0.0, {}
            for world, whole in sequences.items():
                own = {a: p for a, p in whole.items() if a[turn] == action}
                if not own:  # pruned by allow
                    value = -float("inf")
                    continue
                first = next(iter(own.values()))
                value += world.share * gamma**turn * first.rewards[preset][turn]
                going_on = {a: p for a, p in own.items() if len(a) > turn + 1}
                if going_on:
                    later.setdefault(show(first.saw[turn]), {})[world] = going_on
            values.append(value + sum(best(group, turn + 1) for group in later.values()))
        return max(values)

    groups: dict[str, dict[World, Mapping[Actions, Played]]] = {}
    for world in worlds():
        whole = {a: p for a, p in every_sequence(world, max_turns).items() if allow(a)}
        groups.setdefault(world.task.intent, {})[world] = whole
    return sum(best(group, 0) for group in groups.values())


def without_reply_elsewhere(outcome: EpisodeOutcome) -> EpisodeOutcome:
    """The outcome without the id of the ticket that a reply about another one happened to name."""
    said = outcome.conclusion
    if said is None or outcome.conclusion_right or said.ticket_ids not in (("S7777",), ("S0000",)):
        return outcome
    return dataclasses.replace(outcome, conclusion=dataclasses.replace(said, ticket_ids=("?",)))
