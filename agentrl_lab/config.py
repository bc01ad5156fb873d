"""Settings of a run, checked when they are built, and where data/ lies. Knows no torch."""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

DATA_VARIABLE = "AGENTRL_LAB_DATA"
C = TypeVar("C")


def data_dir() -> Path:
    """The data/ folder: the environment variable AGENTRL_LAB_DATA, then the checkout.

    Raises:
        FileNotFoundError: neither exists; the message says what to do.
    """
    named = os.environ.get(DATA_VARIABLE)
    path = Path(named) if named else Path(__file__).resolve().parent.parent / "data"
    if not (path / "phrasings.json").is_file():
        raise FileNotFoundError(
            f"no data folder at {path}. Install from a clone with `pip install -e .`, "
            f"or set {DATA_VARIABLE} to the data/ folder of a clone."
        )
    return path


def nearest(name: str, allowed: Iterable[str]) -> str:
    """The sentence part that offers the nearest allowed name, or lists them all."""
    names = sorted(map(str, allowed))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"choose one of: {', '.join(names)}"


def _require(holds: bool, name: str, expected: str, value: object) -> None:
    if not holds:
        raise ValueError(f"{name} must be {expected}, got {value!r}")


_TYPES = {"int": (Integral, "a whole number"), "float": (Real, "a number"), "str": (str, "a str")}


def _check_types(config: Any) -> None:
    for item in dataclasses.fields(config):
        if item.type in _TYPES:  # annotations are strings in this file
            (wanted, words), value = _TYPES[item.type], getattr(config, item.name)
            fits = isinstance(value, wanted) and not isinstance(value, bool)
            _require(fits, item.name, words, value)


def choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """Refuses a value that is not among the allowed ones, and offers the nearest.

    Raises:
        ValueError: it is not.
    """
    names = tuple(allowed)
    if value not in names:
        raise ValueError(f"{name} {value!r} is not known: {nearest(value, names)}")


FEEDBACK = ("silent", "code", "hint", "schema")
PAYMENTS = ("flag", "amounts")
DEBUG_FIELDS = ("never", "half", "always")
TAMPERS = ("nothing", "everything", "declared", "undeclared", "status", "payment", "debug")
TOOLSETS = ("standard", "varied", "recombined", "new_words", "one_more", "moved")


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvConfig:
    """The ticket desk as the policy meets it."""

    max_turns: int = 6
    """Turns until the episode ends without a reply (E8). Part of the task: terminated."""
    max_invalid: int = 3
    """Invalid actions in a row that end the episode (F4); 0 switches the rule off."""
    result_budget: int = 48
    """Tokens of a tool result the policy sees (B3); 200 suits a real model."""
    codec: str = "function"
    """Encoding: function is <function=NAME>{...}</function>, json {"tool": ...}, id 1 [...]."""
    tools: str = "standard"
    """Toolset: standard, varied, recombined, new_words, one_more or moved (toolsets.py)."""
    reward: str = "shaped"
    """Reward preset: printed (D5), outcome (D1), process (D2) or shaped (D3)."""
    call_bonus: float = 0.0
    """Paid on top for each call that the desk answered (F1), before the ceiling of shaped."""
    call_cap: float = 0.0
    """Most that these bonuses may bring in one episode; 0 sets no limit."""
    repeat_charge: float = 0.0
    """Charged on top for each call that repeats an earlier one and changes nothing (F1)."""
    strike_extra: float = 0.0
    """Added on top where three strikes end an episode (F4): above 0 failing fast is milder (H7).
    Under shaped, the ceiling that invalid actions lower comes after it."""
    feedback: str = "hint"
    """What an invalid action is answered: silent (nothing), code, hint, or schema (of the tool)."""
    payment: str = "flag"
    """How a ticket shows that it is paid: flag (true, false) or amounts (two to compare)."""
    debug_field: str = "never"
    """Tasks whose answers hold expected_action, the right next step (F2): never, half, always."""
    tamper: str = "nothing"
    """Fields of an answer that another ticket's take the place of, to test a policy (H6): nothing,
    everything, declared (those it is meant to decide by), undeclared, status, payment or debug (the
    debug field). The other ticket as a whole asks for something else; that a ticket is missing is
    never hidden."""

    def __post_init__(self) -> None:
        _check_types(self)
        _require(1 <= self.max_turns <= 100, "max_turns", "between 1 and 100", self.max_turns)
        _require(0 <= self.max_invalid <= 100, "max_invalid", "0 to 100", self.max_invalid)
        _require(self.result_budget >= 16, "result_budget", "at least 16", self.result_budget)
        choice("codec", self.codec, ("function", "json", "id"))
        choice("tools", self.tools, TOOLSETS)
        choice("reward", self.reward, ("printed", "outcome", "process", "shaped"))
        choice("feedback", self.feedback, FEEDBACK)
        choice("payment", self.payment, PAYMENTS)
        choice("debug_field", self.debug_field, DEBUG_FIELDS)
        choice("tamper", self.tamper, TAMPERS)
        extra = self.strike_extra
        _require(-1e6 <= extra <= 1e6, "strike_extra", "between -1e6 and 1e6", extra)
        for name in ("call_bonus", "call_cap", "repeat_charge"):
            value = getattr(self, name)
            _require(0 <= value <= 1e6, name, "0 to 1e6", value)
        if self.strike_extra and not self.max_invalid:
            raise ValueError("strike_extra is for max_invalid strikes, and max_invalid is 0")
        if self.call_cap and not self.call_bonus:
            raise ValueError(f"call_cap caps call_bonus, which is 0: got call_cap {self.call_cap}")


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingConfig:
    """How actions are sampled."""

    temperature: float = 0.7
    """Temperature after the schedule (E2): below is timid, 1 and above is wild."""
    temperature_start: float = 1.0
    """Temperature of the first updates (E2)."""
    hot_fraction: float = 0.1
    """Share of the updates spent at temperature_start."""
    cool_fraction: float = 0.5
    """Share of the updates over which the temperature then falls in a straight line."""
    action_tokens: int = 48
    """Tokens one action may have; longer text is cut and invalid."""
    context_tokens: int = 768
    """Tokens one episode may have; more truncates the episode."""

    def __post_init__(self) -> None:
        _check_types(self)
        for name in ("temperature", "temperature_start"):
            value = getattr(self, name)
            _require(0 < value <= 10, name, "above 0 and at most 10", value)
        for name in ("hot_fraction", "cool_fraction"):
            value = getattr(self, name)
            _require(0 <= value <= 1, name, "between 0 and 1", value)
        _require(self.action_tokens >= 1, "action_tokens", "at least 1", self.action_tokens)
        _require(self.context_tokens >= 64, "context_tokens", "at least 64", self.context_tokens)

    def temperature_at(self, progress: float) -> float:
        """Temperature at `progress` (0 first update, 1 last): hot, then linear, then constant."""
        cooled = (progress - self.hot_fraction) / self.cool_fraction if self.cool_fraction else 1.0
        share = min(1.0, max(0.0, cooled)) if progress >= self.hot_fraction else 0.0
        return self.temperature_start + share * (self.temperature - self.temperature_start)


@dataclass(frozen=True, kw_only=True, slots=True)
class PPOConfig:
    """Knobs of one PPO update; notebook 04 explains each."""

    episodes_per_update: int = 64
    """Episodes collected before each update."""
    minibatch_episodes: int = 32
    """Episodes behind one optimizer step."""
    microbatch_episodes: int = 16
    """Episodes in one forward pass: changes memory and speed, never the gradient."""
    epochs: int = 2
    """Passes over the episodes of an update (E10); more than 4 are refused (E9)."""
    clip_ratio: float = 0.15
    """Clip range epsilon on the ratio new / old probability (E3)."""
    gamma: float = 0.99
    """Discount per turn (or per token, see discount_per): 1 does not discount (E4)."""
    gae_lambda: float = 0.95
    """GAE mixing weight: 0 is one-step TD, 1 is Monte Carlo (E4)."""
    discount_per: str = "turn"
    """What one step of gamma and lambda is: turn or token."""
    value_coefficient: float = 0.5
    """Weight of the squared value error (E5)."""
    value_clip: float = 0.0
    """Largest step of a value from its old prediction; 0 switches value clipping off."""
    value_backbone: str = "shared"
    """shared: value errors train the transformer too; detached: only the value head."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus (E5)."""
    learning_rate: float = 1e-4
    """Adam step size of the transformer."""
    value_learning_rate: float = 1e-3
    """Adam step size of the value head."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    kl_stop: float = 0.2
    """KL (nats per action token) at which the rest of an update is skipped (F3)."""

    def __post_init__(self) -> None:
        _check_types(self)
        for name in ("episodes_per_update", "minibatch_episodes", "microbatch_episodes"):
            value = getattr(self, name)
            _require(value >= 1, name, "at least 1", value)
        _require(1 <= self.epochs <= 4, "epochs", "1 to 4 (E9)", self.epochs)
        _require(0 < self.clip_ratio < 1, "clip_ratio", "between 0 and 1", self.clip_ratio)
        for name in ("gamma", "gae_lambda"):
            value = getattr(self, name)
            _require(0 <= value <= 1, name, "between 0 and 1", value)
        choice("discount_per", self.discount_per, ("turn", "token"))
        choice("value_backbone", self.value_backbone, ("shared", "detached"))
        for name in ("value_coefficient", "value_clip", "entropy_coefficient"):
            value = getattr(self, name)
            _require(0 <= value < math.inf, name, "0 or more and finite", value)
        for name in ("learning_rate", "value_learning_rate", "max_grad_norm", "kl_stop"):
            value = getattr(self, name)
            _require(0 < value < math.inf, name, "above 0 and finite", value)
        if self.episodes_per_update % self.minibatch_episodes:
            raise ValueError(
                f"episodes_per_update ({self.episodes_per_update}) must be divisible by "
                f"minibatch_episodes ({self.minibatch_episodes})"
            )


DEMONSTRATIONS = ("own", "perfect", "mixed", "filtered", "happy_path")


@dataclass(frozen=True, kw_only=True, slots=True)
class ImitationConfig:
    """Updates that imitate whole episodes, instead of weighing each action by its advantage."""

    imitated_updates: int = 0
    """Updates at the start of a run that imitate; the others are PPO's."""
    demonstrations: str = "own"
    """What is imitated: own (the successes among own episodes), perfect, mixed, filtered (the
    successes among mixed) or happy_path."""
    imitation_rate: float = 3e-4
    """Adam step size of the transformer in these updates."""

    def __post_init__(self) -> None:
        _check_types(self)
        _require(self.imitated_updates >= 0, "imitated_updates", "0 or more", self.imitated_updates)
        choice("demonstrations", self.demonstrations, DEMONSTRATIONS)
        rate = self.imitation_rate
        _require(0 < rate < math.inf, "imitation_rate", "above 0 and finite", rate)
        for name, default in (("demonstrations", "own"), ("imitation_rate", 3e-4)):
            value = getattr(self, name)
            if value != default and not self.imitated_updates:
                raise ValueError(f"{name} {value!r} is for imitated_updates, of which there are 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardConfig:
    """The clean validation set that no gradient sees, and the rollback it triggers (G3)."""

    validation_tasks: int = 64
    """Tasks played greedily after each update."""
    rollback_drop: float = 0.3
    """Fall of validation success below the best so far that triggers a rollback."""
    max_rollbacks: int = 3
    """Rollbacks allowed in one run; then the run goes on without the guard."""
    rollback_rate_factor: float = 0.5
    """Learning rates are multiplied by this at each rollback."""

    def __post_init__(self) -> None:
        _check_types(self)
        _require(self.validation_tasks >= 1, "validation_tasks", "1 or more", self.validation_tasks)
        _require(0 < self.rollback_drop <= 1, "rollback_drop", "in (0, 1]", self.rollback_drop)
        _require(self.max_rollbacks >= 0, "max_rollbacks", "0 or more", self.max_rollbacks)
        factor = self.rollback_rate_factor
        _require(0 < factor <= 1, "rollback_rate_factor", "in (0, 1]", factor)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """One training run."""

    seed: int = 0
    """Root of every random stream: environment, sampling, shuffling, evaluation."""
    episodes: int = 1920
    """Episodes to train on; rounded up to whole updates."""
    policy: str = "tiny-base"
    """Where to start: a name under data/policies, or a folder in Hugging Face format."""
    test_tasks: int = 200
    """Test tasks played once, at the end."""
    threads: int = 0
    """Torch threads; 0 takes torch's own choice. Other counts give other last bits."""
    keep_checkpoints: int = 2
    """Newest checkpoints kept beside the best."""
    env: EnvConfig = field(default_factory=EnvConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    imitation: ImitationConfig = field(default_factory=ImitationConfig)
    guard: GuardConfig = field(default_factory=GuardConfig)

    def __post_init__(self) -> None:
        _check_types(self)
        _require(0 <= self.seed < 2**63, "seed", "between 0 and 2**63 - 1", self.seed)
        _require(1 <= self.episodes <= 10**9, "episodes", "at least 1", self.episodes)
        _require(bool(self.policy), "policy", "a name or a folder", self.policy)
        _require(self.test_tasks >= 1, "test_tasks", "at least 1", self.test_tasks)
        _require(0 <= self.threads <= 256, "threads", "0 to 256", self.threads)
        _require(self.keep_checkpoints >= 1, "keep_checkpoints", "1 or more", self.keep_checkpoints)
        imitated, most = self.imitation.imitated_updates, self.num_updates
        _require(imitated <= most, "imitated_updates", f"at most {most} (all updates)", imitated)

    @property
    def num_updates(self) -> int:
        return -(-self.episodes // self.ppo.episodes_per_update)


def flatten(config: Any) -> dict[str, Any]:
    """All settings of a (nested) config under their own names: names are unique across groups."""
    flat: dict[str, Any] = {}
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        flat |= flatten(value) if dataclasses.is_dataclass(value) else {item.name: value}
    return flat


def with_settings(config: C, settings: Mapping[str, Any]) -> C:
    """A copy of a (nested) config with the named settings replaced.

    Raises:
        ValueError: a name is not a setting (the nearest one is offered), or a value is refused.
    """
    for name in settings.keys() - flatten(config).keys():
        raise ValueError(f"no setting is called {name!r}: {nearest(name, flatten(config))}")
    return _replace(config, settings)


def _replace(config: C, settings: Mapping[str, Any]) -> C:
    changes: dict[str, Any] = {}
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            changes[item.name] = _replace(value, settings)
        elif item.name in settings:
            changes[item.name] = settings[item.name]
    return dataclasses.replace(config, **changes)
