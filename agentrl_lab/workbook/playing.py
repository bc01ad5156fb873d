"""The reader is the policy, in the terminal."""

from __future__ import annotations

from agentrl_lab.config import EnvConfig
from agentrl_lab.records import Call
from agentrl_lab.world.env import TicketEnv

HELP = """Write a call as a policy would, or short:
  query S1234            update S1234 closed            reply any text
Anything else is sent as it is. An empty line shows this again; Ctrl-D leaves."""


def play_in_terminal(task: int, split: str, reward: str) -> None:
    """One episode: prints what the policy would see, reads actions, then shows the score."""
    env = TicketEnv(split, 0, EnvConfig(reward=reward))
    env.reset(options={"index": task})
    print(HELP)
    for message in env.messages:
        print(f"\n[{message.role}] {message.content}")
    while env.stop_reason is None:
        try:
            line = input("\nyour action> ").strip()
        except EOFError:
            print("\nleft before the end: nothing is scored")
            return
        if not line:
            print(HELP)
            continue
        action = expand(line, env)
        observation, earned, *_ = env.play(action)
        print(f"[you] {action}\n[tool] {observation}\n[reward of this turn] {earned:+.2f}")
    print(verdict(env))


def expand(line: str, env: TicketEnv) -> str:
    """The short forms, written out in the environment's own encoding; other text unchanged."""
    match line.split(maxsplit=2):
        case ["query", ticket_id]:
            return env.codec.render(Call("query_ticket", {"ticket_id": ticket_id}))
        case ["update", ticket_id, status]:
            arguments = {"ticket_id": ticket_id, "new_status": status}
            return env.codec.render(Call("update_ticket", arguments))
        case ["reply", *_]:
            return env.codec.render(Call("reply", {"content": line[len("reply") :].strip()}))
        case _:
            return line


def verdict(env: TicketEnv) -> str:
    """How the episode was scored, part by part."""
    outcome = env.outcome
    said = outcome.conclusion.kind.value if outcome.conclusion else "nothing"
    lines = [
        "",
        f"stopped: {outcome.stop.value}; {'success' if outcome.success else 'no success'}",
        f"you concluded: {said}; right would have been: {env.task.expected.value}",
        f"state of the desk right: {'yes' if outcome.state_right else 'no'}; "
        f"claimed a change that did not happen: {'yes' if outcome.fabricated else 'no'}",
        *_how_it_is_read(said, env.task.expected.value),
        "reward:",
        *(f"  {name:<14}{value + 0.0:+.2f}" for name, value in env.score.parts.items()),
        f"  {'total':<14}{env.score.total:+.2f}",
    ]
    return "\n".join(lines)


def _how_it_is_read(said: str, right: str) -> list[str]:
    """How to say it so that it is read as meant, where the words may have been the trouble."""
    if said == right or said not in ("closed", "none", "nothing"):
        return []
    return [
        "(\"is closed\" is read as \"I have closed it\". Else write \"the status of S1 is open\",",
        "\"S1 was already closed\", \"S1 is unpaid\" or \"there is no ticket S1\".)",
    ]
