"""Shared fixtures. torch is imported only where a test asks for it: the world's tests need none."""

import signal

import hypothesis
import pytest

# No test asserts a time: a busy machine must not fail one.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")

# A shell that runs us in the background ignores Ctrl-C for all our children; some tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tokenizer():
    """The tokenizer of the tiny policies, trained afresh: nothing under data/policies is needed."""
    from agentrl_lab.learner.warmstart import make_tokenizer

    return make_tokenizer()


@pytest.fixture
def sharp_norm(monkeypatch):
    """Llama in float64 from end to end: its norm otherwise computes in float32."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    from tests import tiny

    monkeypatch.setattr(LlamaRMSNorm, "forward", tiny.in_own_precision)


@pytest.fixture(scope="session")
def small_policy(tokenizer, tmp_path_factory):
    """Folder of a small random policy that likes to end its messages early."""
    from agentrl_lab.learner.policy import Policy
    from tests import tiny

    folder = tmp_path_factory.mktemp("small-policy")
    Policy(tiny.llama(len(tokenizer.tokenizer), hidden=16, heads=2, kv_heads=2), tokenizer).save(
        folder, value_head=False
    )
    return folder
