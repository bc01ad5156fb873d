"""The policy: what a fresh one says, what a saved one keeps, and what is refused."""

import json

import pytest
import torch
from safetensors import SafetensorError
from transformers import LlamaConfig, LlamaForCausalLM

from agentrl_lab.learner.policy import (
    Policy,
    PolicyError,
    find_policy,
    load_policy,
    num_parameters,
)
from tests import tiny
from tests.tiny import NumberTokenizer


@pytest.fixture
def policy(tokenizer) -> Policy:
    policy = Policy(tiny.llama(len(tokenizer.tokenizer), hidden=16), tokenizer)
    torch.nn.init.normal_(policy.value_head.weight)
    return policy


def scores(policy: Policy, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        position = torch.arange(len(ids))[None]
        hidden = policy.hidden(torch.tensor([ids]), position_BT=position, cache=None)
        return policy.logits(hidden), policy.value(hidden)


@pytest.mark.parametrize("make", [tiny.llama, tiny.gpt2])
def test_fresh_policy_values_everything_at_zero_and_is_in_eval_mode(make):
    """Law 25; PPO-15."""
    policy = Policy(make(20, dropout=0.1), NumberTokenizer())
    assert not scores(policy, [3, 4, 5])[1].any()
    assert not any(module.training for module in policy.modules())


@pytest.mark.parametrize("make", [tiny.llama, tiny.gpt2])
def test_logits_are_those_of_the_model(make):
    policy, ids = Policy(make(20), NumberTokenizer()), [3, 4, 5, 9]
    with torch.no_grad():
        expected = policy.model(torch.tensor([ids])).logits
    logits, value = scores(policy, ids)
    assert torch.allclose(logits, expected, atol=1e-6)
    assert logits.shape == (1, 4, 20) and value.shape == (1, 4)


def test_without_dropout_leaves_the_mode_as_found():
    policy = Policy(tiny.gpt2(20, dropout=0.1), NumberTokenizer())
    for mode in (True, False):
        policy.train(mode)
        with policy.without_dropout():
            assert not any(module.training for module in policy.modules())
        assert policy.training is mode
    policy.train()
    with pytest.raises(ArithmeticError), policy.without_dropout():
        raise ArithmeticError
    assert policy.training


def test_value_head_has_the_precision_of_the_model():
    policy = Policy(tiny.llama(20).double(), NumberTokenizer())
    assert policy.value_head.weight.dtype == torch.float64


def test_eager_attention_is_refused():
    """It would add true and false to the attention scores, and nothing would say so."""
    model = LlamaForCausalLM._from_config(
        LlamaConfig(vocab_size=20, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                    num_attention_heads=2),
        attn_implementation="eager",
    )  # fmt: skip
    with pytest.raises(ValueError, match="'eager', not 'sdpa'"):
        Policy(model, NumberTokenizer())


def test_num_parameters_counts_tied_weights_once():
    # hidden 8, vocabulary 20 (tied): 160. Layer: q and o 8x8, k and v 8x4 = 192, MLP 3x8x16 = 384,
    # two norms 16 -> 592. Last norm 8, value head 8 + 1.
    policy = Policy(tiny.llama(20, hidden=8, layers=1), NumberTokenizer())
    assert num_parameters(policy) == 160 + 592 + 8 + 9


# On disk


def test_saved_policy_comes_back_the_same(policy, tmp_path):
    ids = policy.tokenizer.encode_action("please close S1001")
    policy.save(tmp_path)
    again = load_policy(tmp_path)
    for found, expected in zip(scores(again, ids), scores(policy, ids), strict=True):
        assert torch.equal(found, expected)
    assert again.tokenizer.encode_action("please close S1001") == ids
    assert again.tokenizer.end_id == policy.tokenizer.end_id
    assert not again.training
    files = {path.name for path in tmp_path.iterdir()}
    assert {"model.safetensors", "value_head.safetensors", "tokenizer.json"} <= files
    assert not any(name.endswith((".bin", ".pt", ".pkl")) for name in files)


def test_policy_saved_without_its_value_head_starts_from_zero(policy, tmp_path):
    policy.save(tmp_path, value_head=False)
    assert not load_policy(tmp_path).value_head.weight.any()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_policy_folder_that_lacks_a_file_is_refused(policy, tmp_path, name):
    policy.save(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(PolicyError, match=rf"has no {name}: restore it"):
        load_policy(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json",
                                  "value_head.safetensors"])  # fmt: skip
@pytest.mark.parametrize("damage", ["cut", "empty", "noise"])
def test_policy_folder_with_a_damaged_file_is_refused(policy, tmp_path, name, damage):
    policy.save(tmp_path)
    whole = (tmp_path / name).read_bytes()
    broken = {"cut": whole[: len(whole) // 2], "empty": b"", "noise": b"\x00\xff" * 99}[damage]
    (tmp_path / name).write_bytes(broken)
    with pytest.raises(PolicyError, match=r"cannot be read .*: restore it"):
        load_policy(tmp_path)


def test_policy_folder_whose_weights_do_not_cover_the_model_is_refused(policy, tmp_path):
    """One more layer in the config: it would silently be a random one."""
    policy.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    config["num_hidden_layers"] += 1
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(PolicyError, match=r"differ in model\.layers\.2\."):
        load_policy(tmp_path)


def test_policy_of_another_kind_is_refused(policy, tmp_path):
    policy.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "nothing"}), "utf-8")
    with pytest.raises(PolicyError, match="cannot be read"):
        load_policy(tmp_path)


def test_an_empty_name_is_refused_and_not_taken_for_this_folder():
    with pytest.raises(PolicyError, match="got an empty one"):
        find_policy("")


def test_a_policy_that_cannot_be_written_is_one_clear_error(policy, tmp_path, monkeypatch):
    def full(*_, **__):
        raise SafetensorError("I/O error: no space left on device")

    monkeypatch.setattr("agentrl_lab.learner.policy.save_file", full)
    with pytest.raises(OSError, match=r"cannot be written: .*no space left"):
        policy.save(tmp_path)


def test_policy_name_that_is_nearly_right_gets_the_right_one_offered(tmp_path, monkeypatch):
    (tmp_path / "phrasings.json").touch()
    (tmp_path / "policies" / "tiny-base").mkdir(parents=True)
    monkeypatch.setenv("AGENTRL_LAB_DATA", str(tmp_path))
    assert find_policy("tiny-base") == tmp_path / "policies" / "tiny-base"
    assert find_policy(str(tmp_path)) == tmp_path
    with pytest.raises(PolicyError, match="no policy at 'tiny-bse': did you mean 'tiny-base'"):
        find_policy("tiny-bse")
