"""Interactive cells: the picture first, the controls after it, and a plain way to do the same.

A panel is a thin shell over a pure function `draw(...) -> Picture`. It replaces the bytes of one
image, so the page never jumps, keeps every error of a callback where reader and tests see it, and
can be moved from Python (`panel.set(rate=0.3)`): in a run without a browser the last cell does so.
Where no widgets can be shown, the picture for the default values stands in their place.
"""

from __future__ import annotations

import html
import threading
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import ipywidgets
from IPython.display import display
from traitlets import TraitError

from agentrl_lab.config import nearest
from agentrl_lab.workbook.plots import Page, Picture, figure_html

ERRORS: list[str] = []
"""What went wrong in callbacks of this kernel; the last cell of a notebook wants it empty."""
VIEW_MIME = "application/vnd.jupyter.widget-view+json"
WIDE = ipywidgets.Layout(width="560px")
PAGE = ipywidgets.Layout(height="420px", overflow="auto", border="1px solid #8888", padding="6px")
SENTENCE = "84px"  # three lines: a longer sentence must not push the controls down
FEW = 6
LABELS = {"description_width": "200px"}


class Panel:
    """A picture that follows its controls. Made by `explore`."""

    def __init__(self, draw: Callable[..., Picture | Page], controls: Mapping[str, Any]) -> None:
        self._draw, self.controls = draw, dict(controls)
        self.figures_drawn = 0
        self.image = ipywidgets.Image(format="png", layout=ipywidgets.Layout(width="100%"))
        self.text = ipywidgets.HTML()
        self.picture = self._redraw()
        page = isinstance(self.picture, Page)
        self.text.layout.min_height = "auto" if page else SENTENCE
        shown = [ipywidgets.Box([self.text], layout=PAGE)] if page else [self.image, self.text]
        for control in self.controls.values():
            control.observe(self._changed, names="value")
        self.box = ipywidgets.VBox([*shown, *self.controls.values()])

    def set(self, **values: Any) -> Picture | Page:
        """Moves controls and returns the new picture, without a browser.

        Where drawing fails, the error is shown and kept in ERRORS, and the picture stays.

        Raises:
            ValueError: there is no such control, or it does not take the value.
        """
        for name, value in values.items():
            if name not in self.controls:
                raise ValueError(f"no control is called {name!r}: {nearest(name, self.controls)}")
            _put(name, self.controls[name], value)
        return self.picture

    def _changed(self, change: Any) -> None:
        with kept_errors(self.text):
            self.picture = self._redraw()

    def _redraw(self) -> Picture | Page:
        picture = self._draw(**{name: control.value for name, control in self.controls.items()})
        if not isinstance(picture, (Page, Picture)):
            raise TypeError(f"draw must return a Picture or a Page, got {picture!r:.60}")
        if isinstance(picture, Page):
            self.text.value = picture.html
        else:
            self.image.value, self.image.alt = picture.png(), picture.sentence
            self.text.value = f"<p>{html.escape(picture.sentence)}</p>"
        self.figures_drawn += 1
        return picture

    def _ipython_display_(self) -> None:
        show_widget(self.box, self.picture)


def explore(draw: Callable[..., Picture | Page], **controls: Any) -> Panel:
    """A panel for a function that draws.

    Args:
        draw: takes the controls' values by name, returns a Picture or Page, in under 0.2 s.
        controls: (low, high, step) or (low, high, step, start) becomes a slider, a list or a
            {label: value} a choice, True or False a box to tick, a text a line to type into.

    >>> from agentrl_lab.workbook.plots import blank
    >>> panel = explore(lambda rate: blank(f"the rate is {rate:g}"), rate=(0.0, 1.0, 0.1))
    >>> panel.set(rate=0.3).sentence
    'the rate is 0.3'
    """
    return Panel(draw, {name: _control(name, wanted) for name, wanted in controls.items()})


def _control(name: str, wanted: Any) -> Any:
    common = {"description": name.replace("_", " "), "style": LABELS, "layout": WIDE}
    match wanted:
        case bool():
            return ipywidgets.Checkbox(value=wanted, indent=False, **common)
        case str():
            return ipywidgets.Text(value=wanted, continuous_update=False, **common)
        case list() | dict() if wanted:
            named = wanted if isinstance(wanted, dict) else {str(value): value for value in wanted}
            return choice_of(named, **common)
        case (low, high, step, *start) if _is_range(*wanted):
            whole = all(isinstance(number, int) for number in wanted)
            kind = ipywidgets.IntSlider if whole else ipywidgets.FloatSlider
            value = start[0] if start else low
            limits = {"min": low, "max": high, "step": step, "value": value}
            readout = {} if whole else {"readout_format": ".3g"}
            return kind(**limits, **readout, continuous_update=False, **common)
    raise ValueError(
        f"control {name} must be (low, high, step) or (low, high, step, start) in numbers with low "
        f"below high, a list or a dict that holds something, a text, True or False, got {wanted!r}"
    )


def _is_range(*numbers: Any) -> bool:
    if len(numbers) > 4 or not all(isinstance(number, Real) for number in numbers):
        return False
    low, high, step, start = numbers if len(numbers) == 4 else (*numbers, numbers[0])
    return low < high and step > 0 and low <= start <= high


def choice_of(options: Mapping[str, Any], **common: Any) -> Any:
    """Buttons for a few options, a slider for many; they never change (WID-10).

    No drop-down menu: JupyterLab takes the arrow keys of a menu to move between cells.
    """
    pairs = list(options.items())
    if len(pairs) <= FEW:
        style = {**LABELS, "button_width": "auto"}
        return ipywidgets.ToggleButtons(options=pairs, **{**common, "style": style})
    return ipywidgets.SelectionSlider(options=pairs, continuous_update=False, **common)


def _put(name: str, control: Any, value: Any) -> None:
    """Sets a control's value; what lies outside of it is refused, never bent to fit (WID-12)."""
    low, high = getattr(control, "min", value), getattr(control, "max", value)
    try:
        inside = low <= value <= high
        if inside:
            control.value = value
    except (TypeError, TraitError) as error:
        raise ValueError(f"{name} cannot be {value!r}: {error}") from error
    if not inside:
        raise ValueError(f"{name} must be between {low} and {high}, got {value!r}")


class kept_errors:
    """A context in which an error is shown to the reader and kept in ERRORS; it never spreads."""

    def __init__(self, place: ipywidgets.HTML) -> None:
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, Exception):
            return False
        line = f"{kind.__name__}: {error}"
        ERRORS.append(line)
        self._place.value = f"<p><b>This did not work.</b> {html.escape(line)}</p>"
        return True


class Worker:
    """Long work in a thread of its own, with buttons to start and to stop it.

    Args:
        work: called with `should_stop`, which it asks as often as it can; what it returns is the
            last line of the status.
        name: what the start button says.
    """

    def __init__(self, work: Callable[[Callable[[], bool]], str], name: str = "Start") -> None:
        self._work, self._stop, self._thread = work, threading.Event(), None
        self.start_button = ipywidgets.Button(description=name, button_style="primary")
        self.stop_button = ipywidgets.Button(description="Stop", disabled=True)
        self.status = ipywidgets.HTML(value="<p>not started</p>")
        self.start_button.on_click(lambda button: self.start())
        self.stop_button.on_click(lambda button: self.stop())
        self.buttons = ipywidgets.HBox([self.start_button, self.stop_button])
        self.box = ipywidgets.VBox([self.buttons, self.status])

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Starts the work, unless it is under way."""
        if self.running:
            return
        self._stop.clear()
        self.start_button.disabled, self.stop_button.disabled = True, False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Asks the work to end; it does at the next place where it asks."""
        if not self.running:
            return
        self.say("stopping ...")
        self._stop.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Waits for the work to end; whether it did."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.running

    def say(self, text: str) -> None:
        self.status.value = f"<p>{html.escape(text)}</p>"

    def _run(self) -> None:
        try:
            with kept_errors(self.status):
                self.say(str(self._work(self._stop.is_set) or "done"))
        finally:
            self.start_button.disabled, self.stop_button.disabled = False, True


def show(picture: Picture | Page) -> None:
    """Shows a picture in a notebook."""
    display({"text/html": figure_html(picture), "text/plain": picture.sentence}, raw=True)


def show_widget(box: ipywidgets.Widget, picture: Picture | Page) -> None:
    """Shows a widget, and the picture wherever widgets cannot be shown."""
    view = {"version_major": 2, "version_minor": 0, "model_id": box.model_id}
    bundle = {
        VIEW_MIME: view,
        "text/html": figure_html(picture),
        "text/plain": picture.sentence,
    }
    display(bundle, raw=True)


class Prediction:
    """Asks the reader what will happen, before it does.

    Args:
        question: one sentence.
        options: what may be answered; nothing is chosen at first.
    """

    def __init__(self, question: str, options: Sequence[Any]) -> None:
        self.question = question
        self.choice = ipywidgets.ToggleButtons(
            options=[(str(option), option) for option in options], value=None,
            style={"button_width": "auto"},
        )  # fmt: skip
        label = ipywidgets.HTML(f"<p><b>Your prediction.</b> {html.escape(question)}</p>")
        self.box = ipywidgets.VBox([label, self.choice])

    def reveal(self, actual: Any) -> str:
        """What was predicted beside what came."""
        if self.choice.value is None:
            return f"{self.question} You made no prediction; it was {actual}."
        verdict = "as you said" if self.choice.value == actual else f"you said {self.choice.value}"
        return f"{self.question} It was {actual}: {verdict}."

    def _ipython_display_(self) -> None:
        view = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        text = f"Your prediction. {self.question} ({', '.join(map(str, self._options()))})"
        display({VIEW_MIME: view, "text/plain": text}, raw=True)

    def _options(self) -> list[Any]:
        return [value for _, value in self.choice.options]
