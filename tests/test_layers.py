"""The floors: what importing one loads, and how big the package may grow."""

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "transformers", "tokenizers", "safetensors", "matplotlib", "pandas", "scipy")


def loaded_by(module):
    code = f"import sys, {module}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module", ["agentrl_lab", "agentrl_lab.world", "agentrl_lab.world.oracle", "agentrl_lab.config"]
)
def test_world_loads_nothing_heavy(module):
    assert loaded_by(module) == set()


@pytest.mark.slow
def test_the_check_sees_what_the_learner_loads():
    assert {"torch", "transformers"} <= loaded_by("agentrl_lab.learner.policy")


def code_lines(text):
    """Lines that hold code: docstrings, comments and blank lines are for the reader and free."""
    free = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            free |= set(range(node.lineno, node.end_lineno + 1))
    marks = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    used = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in marks and token.string:
            used |= set(range(token.start[0], token.end[0] + 1))
    return len(used - free)


def test_code_lines_by_hand():
    text = '"""Doc."""\n\n# why\nx = (\n    1,\n)\ndef f():\n    """Two\n    lines."""\n    x\n'
    assert code_lines(text) == 5  # three of x, def, x


LIMITS = {"world": 2210, "learner": 2385, "workbook": 3200, "workbook/lessons": 2700}
"""Code lines of a room and its modules, rooms inside it not counted."""


@pytest.mark.parametrize(("room", "limit"), LIMITS.items())
def test_room_stays_small(room, limit):
    files = list((ROOT / "agentrl_lab" / room).glob("*.py"))
    assert sum(code_lines(path.read_text(encoding="utf-8")) for path in files) <= limit


def test_no_module_is_long():
    files = (ROOT / "agentrl_lab").rglob("*.py")
    assert [p.name for p in files if len(p.read_text("utf-8").splitlines()) > 350] == []
