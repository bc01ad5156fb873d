"""`make bench`: speed as ratios within one run, printed and written to build/bench.json.

Each pair is timed in turn, A B A B ..., so that a machine whose speed drifts drifts for both.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from agentrl_lab.config import PPOConfig, SamplingConfig
from agentrl_lab.learner import losses, ppo
from agentrl_lab.learner.forward import score_actions
from agentrl_lab.learner.policy import Policy, load_policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.streams import stream, torch_generator
from agentrl_lab.learner.trajectories import Trajectory, TrajectoryBuffer, pack
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.parser import CODECS, MAX_CHARACTERS
from tests.benchmarks.baselines import generate_rollout, plain_minibatch_gradient

EPISODES = 64
TEMPERATURE = 0.7
ROUNDS = 5
OUT = Path("build/bench.json")


def main() -> None:
    """Runs every benchmark."""
    policy = load_policy("tiny-base")
    trajectories = collect(policy)
    report = {
        "threads": torch.get_num_threads(),
        "matrix_product_gflops": matrix_rate(),
        "rollout": rollout(policy, trajectories),
        "update": update(policy, trajectories),
        "parser_ms": parser(),
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))
    print(f"written to {OUT}")


def collector(policy: Policy) -> Collector:
    """The package's rollout on training tasks."""
    return Collector(
        policy, lambda: TicketEnv("train", 0, count_tokens=policy.tokenizer.count), SamplingConfig()
    )


def collect(policy: Policy) -> list[Trajectory]:
    return collector(policy).collect(range(EPISODES), temperature=TEMPERATURE, seed=[0])


def in_turn(*ways: Callable[[], float]) -> list[tuple[float, ...]]:
    """All ways in turn, after one round to warm up that is not counted."""
    return [tuple(way() for way in ways) for _ in range(ROUNDS + 1)][1:]


def rollout(policy: Policy, trajectories: list[Trajectory]) -> dict[str, float]:
    """Policy tokens a second, against generate on the whole conversation each turn, bare and with
    the numbers that PPO needs beside the tokens.
    """
    envs = [TicketEnv("train", 0, count_tokens=policy.tokenizer.count) for _ in range(EPISODES)]
    limit = SamplingConfig().action_tokens

    def ours() -> float:
        started = time.perf_counter()
        return sum(t.num_action_tokens for t in collect(policy)) / (time.perf_counter() - started)

    def plain(numbers: bool) -> float:
        torch.manual_seed(0)
        started = time.perf_counter()
        written = generate_rollout(
            policy, envs, range(EPISODES), temperature=TEMPERATURE, max_new=limit, numbers=numbers
        )
        return written / (time.perf_counter() - started)

    rounds = in_turn(ours, lambda: plain(False), lambda: plain(True))
    own, bare, scored = (statistics.median(column) for column in zip(*rounds, strict=True))
    return {
        "episodes": EPISODES,
        "tokens_per_s": own,
        "generate_tokens_per_s": bare,
        "ratio_median": statistics.median(a / b for a, b, _ in rounds),
        "ratio_min": min(a / b for a, b, _ in rounds),
        "generate_and_score_tokens_per_s": scored,
        "ratio_to_scored_median": statistics.median(a / c for a, _, c in rounds),
        "ratio_to_scored_min": min(a / c for a, _, c in rounds),
        "logprob_difference_max": logprob_difference(policy, trajectories),
    }


@torch.no_grad()
def logprob_difference(policy: Policy, trajectories: list[Trajectory]) -> float:
    """Largest difference between sampled and recomputed log-probabilities, nats."""
    batch = pack(trajectories)
    scored = score_actions(policy, batch)
    logprob_M = losses.chosen_logprob(scored.logits_MV / TEMPERATURE, scored.token_M)
    return float((logprob_M - batch.logprob_old_BT[batch.action_mask_BT]).abs().max())


def update(policy: Policy, trajectories: list[Trajectory]) -> dict[str, float]:
    """Seconds of the gradients of one update's minibatches, against plain padded rows."""
    config = PPOConfig()
    batch = pack(trajectories)
    targets = ppo.make_targets(batch, config)
    optimizer = ppo.make_optimizer(policy, config)
    generator = torch_generator(stream(0, "shuffling"))
    rows = TrajectoryBuffer(trajectories).epoch(config.minibatch_episodes, generator)

    def ours() -> float:
        started = time.perf_counter()
        for rows_B in rows:
            ppo.minibatch_gradient(
                policy, optimizer, batch, targets, rows_B, config, temperature=TEMPERATURE
            )
        return time.perf_counter() - started

    def plain() -> float:
        started = time.perf_counter()
        for rows_B in rows:
            plain_minibatch_gradient(
                policy, batch, targets, rows_B, config, temperature=TEMPERATURE
            )
        return time.perf_counter() - started

    pairs = in_turn(ours, plain)
    return {
        "seconds_per_epoch": statistics.median(a for a, _ in pairs),
        "plain_seconds_per_epoch": statistics.median(b for _, b in pairs),
        "ratio_median": statistics.median(b / a for a, b in pairs),
        "ratio_min": min(b / a for a, b in pairs),
    }


def parser() -> dict[str, float]:
    """Milliseconds to parse 1 MB, and the longest text that is read at all, by codec and junk."""
    junk = {
        "opener": "<function=",
        "json_opener": '{"tool": ',
        "nested": '{"a":',
        "call": '<function=reply>{"content": "text"}</function>',
    }
    times = {}
    for codec in CODECS.values():
        for name, piece in junk.items():
            for size in (1_000_000, MAX_CHARACTERS):
                text = (piece * (size // len(piece) + 1))[:size]
                started = time.perf_counter()
                codec.parse(text)
                times[f"{codec.name}/{name}/{size}"] = 1000 * (time.perf_counter() - started)
    return times


def matrix_rate() -> float:
    """The machine's float32 rate on a 2048-cubed matrix product, in GFLOP/s."""
    a = torch.randn(2048, 2048)
    a @ a
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - started)
    return 2 * 2048**3 / statistics.median(times) / 1e9


if __name__ == "__main__":
    main()
