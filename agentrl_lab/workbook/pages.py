"""Pages from the templates beside this file: plain HTML that loads nothing."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jinja2


def render(template: str, **parts: Any) -> str:
    """A page; text is escaped, and a part that the template names and nobody gave is an error."""
    return _environment().get_template(template).render(**parts)


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip
