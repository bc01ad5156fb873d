"""Configs: checked when built, named in messages, and one place where data/ is looked for."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl_lab.config import (
    DATA_VARIABLE,
    EnvConfig,
    GuardConfig,
    ImitationConfig,
    PPOConfig,
    SamplingConfig,
    TrainConfig,
    data_dir,
    flatten,
    nearest,
    with_settings,
)

CONFIGS = (EnvConfig, SamplingConfig, PPOConfig, GuardConfig, ImitationConfig, TrainConfig)


# data/


def test_data_dir_is_the_checkout_without_the_variable(monkeypatch):
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    assert (data_dir() / "tickets.json").is_file()


def test_data_dir_the_variable_comes_first(monkeypatch, tmp_path):
    (tmp_path / "phrasings.json").write_text("{}", encoding="utf-8")
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    assert data_dir() == tmp_path


def test_data_dir_a_wrong_variable_is_an_error_that_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError, match=r"gone.*pip install -e .*AGENTRL_LAB_DATA"):
        data_dir()


# Names


def test_nearest_offers_one_name_or_all_of_them():
    assert nearest("shapd", ["shaped", "outcome"]) == "did you mean 'shaped'?"
    assert nearest("xyz", ["shaped", "outcome"]) == "choose one of: outcome, shaped"


def test_flatten_names_are_unique_across_groups():
    groups = [c for c in CONFIGS if c is not TrainConfig]
    own = [item.name for item in dataclasses.fields(TrainConfig)]
    names = [item.name for group in groups for item in dataclasses.fields(group)]
    names += [name for name in own if not dataclasses.is_dataclass(getattr(TrainConfig(), name))]
    assert len(names) == len(set(names))
    assert set(flatten(TrainConfig())) == set(names)


@pytest.mark.parametrize("config", CONFIGS)
def test_every_setting_has_a_line_that_explains_it(config):
    source = inspect.getsource(config)
    for item in dataclasses.fields(config):
        if not dataclasses.is_dataclass(getattr(config(), item.name)):
            assert re.search(rf"^    {item.name}: .*\n    \"\"\".", source, re.MULTILINE), item.name


# with_settings


def test_with_settings_reaches_into_every_group_and_changes_nothing_else():
    settings = {"seed": 3, "max_turns": 4, "temperature": 0.5, "epochs": 1, "max_rollbacks": 0}
    old = TrainConfig()
    new = with_settings(old, settings)
    assert flatten(new) == flatten(old) | settings
    assert old == TrainConfig()


def test_with_settings_unknown_name_offers_the_nearest():
    with pytest.raises(ValueError, match="no setting is called 'max_turn': did you mean 'max_turn"):
        with_settings(TrainConfig(), {"max_turn": 4})
    with pytest.raises(ValueError, match="no setting is called 'env'"):
        with_settings(TrainConfig(), {"env": EnvConfig()})


def test_with_settings_checks_values_again():
    with pytest.raises(ValueError, match="epochs must be 1 to 4"):
        with_settings(TrainConfig(), {"epochs": 5})


# Values


REFUSED = [
    (EnvConfig, "max_turns", 0),
    (EnvConfig, "max_invalid", -1),
    (EnvConfig, "result_budget", 15),
    (EnvConfig, "codec", "xml"),
    (EnvConfig, "reward", "shapd"),
    (SamplingConfig, "temperature", 0.0),
    (SamplingConfig, "temperature_start", 11.0),
    (SamplingConfig, "hot_fraction", -0.1),
    (SamplingConfig, "cool_fraction", 1.1),
    (SamplingConfig, "action_tokens", 0),
    (SamplingConfig, "context_tokens", 63),
    (PPOConfig, "episodes_per_update", 0),
    (PPOConfig, "episodes_per_update", 33),
    (PPOConfig, "epochs", 5),
    (PPOConfig, "clip_ratio", 1.0),
    (PPOConfig, "gamma", 1.01),
    (PPOConfig, "gae_lambda", -0.01),
    (PPOConfig, "discount_per", "episode"),
    (PPOConfig, "value_backbone", "own"),
    (PPOConfig, "entropy_coefficient", -0.01),
    (PPOConfig, "value_clip", math.inf),
    (PPOConfig, "learning_rate", 0.0),
    (PPOConfig, "kl_stop", 0.0),
    (ImitationConfig, "imitated_updates", -1),
    (ImitationConfig, "imitation_rate", 0.0),
    (EnvConfig, "strike_extra", math.inf),
    (EnvConfig, "feedback", "loud"),
    (EnvConfig, "tamper", "all"),
    (GuardConfig, "validation_tasks", 0),
    (GuardConfig, "rollback_drop", 0.0),
    (GuardConfig, "max_rollbacks", -1),
    (GuardConfig, "rollback_rate_factor", 1.5),
    (TrainConfig, "seed", -1),
    (TrainConfig, "seed", 2**63),
    (TrainConfig, "episodes", 0),
    (TrainConfig, "policy", ""),
    (TrainConfig, "test_tasks", 0),
    (TrainConfig, "threads", -1),
    (TrainConfig, "keep_checkpoints", 0),
]


@pytest.mark.parametrize(("config", "name", "value"), REFUSED)
def test_config_value_out_of_range_is_refused_with_name_and_value(config, name, value):
    with pytest.raises(ValueError) as refused:
        config(**{name: value})
    assert name in str(refused.value) and str(value) in str(refused.value)


@pytest.mark.parametrize("config", CONFIGS)
def test_config_value_of_the_wrong_type_or_nan_is_refused_by_name(config):
    wrong = {"int": ["3", 2.5, None, True], "float": ["0.5", None, math.nan, False], "str": [3]}
    for item in dataclasses.fields(config):
        for value in wrong.get(item.type, []):
            with pytest.raises(ValueError, match=f"^{item.name} must be .* got {value!r}$"):
                config(**{item.name: value})


def test_config_whole_numbers_are_numbers():
    assert PPOConfig(gamma=1).gamma == 1


@pytest.mark.parametrize("config", CONFIGS)
def test_config_is_frozen(config):
    built = config()
    name = dataclasses.fields(config)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(built, name, getattr(built, name))


def test_defaults_are_the_chapters():
    # E2, E3, E4, E5, E8, E9/E10, F3, F4; B3's 200 tokens are 48 for the tiny policy
    assert (SamplingConfig().temperature, SamplingConfig().temperature_start) == (0.7, 1.0)
    ppo = PPOConfig()
    assert (ppo.clip_ratio, ppo.gamma, ppo.gae_lambda, ppo.epochs) == (0.15, 0.99, 0.95, 2)
    assert (ppo.value_coefficient, ppo.entropy_coefficient, ppo.kl_stop) == (0.5, 0.01, 0.2)
    env = EnvConfig()
    assert (env.max_turns, env.max_invalid, env.reward) == (6, 3, "shaped")
    assert env.result_budget >= 48


@pytest.mark.parametrize(("episodes", "updates"), [(1, 1), (64, 1), (65, 2), (2560, 40)])
def test_num_updates_rounds_up_to_whole_updates(episodes, updates):
    assert TrainConfig(episodes=episodes).num_updates == updates


# Temperature (E2)


@pytest.mark.parametrize(
    ("progress", "temperature"),
    # hot to 0.1 at 1.0; then a line over 0.5 to 0.7: half way at 0.35, 0.85; then 0.7
    [(0.0, 1.0), (0.09, 1.0), (0.1, 1.0), (0.35, 0.85), (0.6, 0.7), (1.0, 0.7)],
)
def test_temperature_at_is_hot_then_cools_then_stays(progress, temperature):
    assert SamplingConfig().temperature_at(progress) == pytest.approx(temperature)


def test_temperature_at_without_cooling_falls_at_once():
    sampling = SamplingConfig(hot_fraction=0.2, cool_fraction=0.0)
    assert [sampling.temperature_at(p) for p in (0.19, 0.2)] == pytest.approx([1.0, 0.7])


FRACTION = st.floats(0, 1)


@given(FRACTION, FRACTION, FRACTION, FRACTION)
def test_temperature_at_never_rises_and_stays_between_its_ends(hot, cool, a, b):
    sampling = SamplingConfig(hot_fraction=hot, cool_fraction=cool)
    early, late = (sampling.temperature_at(p) for p in sorted((a, b)))
    assert 1.0 >= early >= late - 1e-9 and late >= 0.7 - 1e-9
