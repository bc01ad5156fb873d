"""The leak detector on environments it was not written for.

Four modules in tests/foreign were written by somebody who had not seen the detector, with leaks
planted in 25 of their 42 variants. The two that it misses hide the answer inside a code: in the
digit sum of a number, and in one bit of a hexadecimal register. Their declared names were made full
paths later, when the detector came to ask for them.

The fifth, `hotline`, was written after a stranger's attack: what it had missed in prose, and clean
environments with JSON amid other text, which it had accused.
"""

import pytest

from agentrl_lab.world.leaks import Sighting, tells
from tests.foreign import greenhouse, hotline, reviewbot, stockroom, visadesk

MISSED = {("stockroom", "leak_check"), ("greenhouse", "leak_register")}
MODULES = {
    "stockroom": stockroom, "visadesk": visadesk, "greenhouse": greenhouse, "reviewbot": reviewbot,
}  # fmt: skip
CASES = [(name, variant) for name, module in MODULES.items() for variant in module.VARIANTS]
SEED, TASKS = 7, 240


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant"), CASES)
def test_foreign_environment_is_judged(name, variant):
    module = MODULES[name]
    env, shown = module.Env(variant), []
    for index in range(TASKS):
        texts, answer = module.sighting(env, SEED, index)
        shown.append(Sighting(tuple(texts), answer))
    found = tells(shown, module.DECLARED)
    planted = module.VARIANTS[variant]
    assert bool(found) == (planted and (name, variant) not in MISSED), found


def test_more_than_half_of_the_variants_are_traps_and_plants():
    planted = [MODULES[name].VARIANTS[variant] for name, variant in CASES]
    assert (len(planted), sum(planted)) == (42, 25)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("variant", hotline.VARIANTS)
def test_hotline_is_judged(variant, seed):
    shown = [Sighting(*hotline.sighting(variant, seed, index)) for index in range(TASKS)]
    found = tells(shown, hotline.declared(variant))
    assert bool(found) == hotline.VARIANTS[variant], found
