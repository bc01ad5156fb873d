"""Panels, workers and predictions without a browser."""

from __future__ import annotations

import threading

import ipywidgets
import matplotlib.pyplot as plt
import pytest

from agentrl_lab.config import EnvConfig, PPOConfig
from agentrl_lab.records import Call
from agentrl_lab.workbook import checks, widgets
from agentrl_lab.workbook.desk_panel import DeskPanel, reward_picture
from agentrl_lab.workbook.plots import Page, blank, figure_html
from agentrl_lab.workbook.widgets import Prediction, Worker, explore
from agentrl_lab.world.env import TicketEnv


@pytest.fixture(autouse=True)
def no_errors():
    widgets.ERRORS.clear()
    yield
    widgets.ERRORS.clear()


def say(**values):
    return blank(" ".join(f"{name}={value}" for name, value in values.items()))


# Panels


def test_panel_draws_once_at_first_and_once_a_move():
    panel = explore(say, rate=(0.0, 1.0, 0.1, 0.5), kind=["a", "b"], on=False, n=(1, 6, 1))
    assert panel.picture.sentence == "rate=0.5 kind=a on=False n=1" and panel.figures_drawn == 1
    before = panel.image.value
    assert panel.set(kind="b").sentence == "rate=0.5 kind=b on=False n=1"
    assert panel.figures_drawn == 2 and panel.image.value != before
    assert panel.image.alt == panel.picture.sentence


def test_ten_moves_leave_one_image_and_no_open_figure():
    """WID-08."""
    panel = explore(say, rate=(0.0, 1.0, 0.1))
    for step in range(10):
        panel.set(rate=step / 10)
    assert [type(child) for child in panel.box.children[:2]] == [
        ipywidgets.Image, ipywidgets.HTML,
    ]  # fmt: skip
    assert panel.figures_drawn == 10 and not plt.get_fignums()  # 0.0 is where it stood


def test_sliders_draw_on_release_only():
    """WID-07."""
    panel = explore(say, rate=(0.0, 1.0, 0.1), n=(1, 6, 1))
    assert not any(control.continuous_update for control in panel.controls.values())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rate": 0.9}, "rate must be between 0.1 and 0.15, got 0.9"),
        ({"n": 99}, "n must be between 1 and 6, got 99"),
        ({"n": "many"}, "n cannot be 'many'"),
        ({"kind": "z"}, "kind cannot be 'z'"),
        ({"rats": 0.1}, "did you mean 'rate'"),
    ],
)
def test_values_out_of_range_are_refused_and_nothing_moves(values, said):
    """WID-12: nothing is bent to fit in silence."""
    panel = explore(say, rate=(0.1, 0.15, 0.01), kind=["a"], n=(1, 6, 1))
    with pytest.raises(ValueError, match=said.replace("?", r"\?")):
        panel.set(**values)
    assert panel.figures_drawn == 1


def test_config_without_widgets_refuses_the_same_value():
    with pytest.raises(ValueError, match="clip_ratio"):
        PPOConfig(clip_ratio=1.9)


@pytest.mark.parametrize(
    "wanted",
    [3, (1, 0, 0.1), (0, 1, 0), (0, 1, 0.1, 9), ("a", "b", "c"), [], {}, (0, 1), None],
    ids=str,
)
def test_an_unfit_control_is_refused_by_name(wanted):
    """WID-12: also a start outside the slider, which would be bent to fit in silence."""
    with pytest.raises(ValueError, match="control rate must be"):
        explore(say, rate=wanted)


def test_a_line_of_text_redraws_and_takes_only_text():
    panel = explore(lambda line: blank(f"read: {line}"), line="abc")
    assert panel.picture.sentence == "read: abc"
    assert panel.set(line="<b>").sentence == "read: <b>"
    with pytest.raises(ValueError, match="line cannot be 3"):
        panel.set(line=3)
    checks.final({}, panels=[panel])
    assert panel.picture.sentence == "read: <b>"  # as it was before the check moved it


@pytest.mark.parametrize("drawn", [None, "text"])
def test_a_function_that_draws_nothing_is_told_so(drawn):
    with pytest.raises(TypeError, match="draw must return a Picture or a Page"):
        explore(lambda rate: drawn, rate=(0, 1, 1))


def test_callback_error_is_shown_escaped_and_kept():
    def planted(rate):
        if rate:
            raise RuntimeError("<b>planted</b>")
        return blank("x")

    panel = explore(planted, rate=(0, 3, 1))
    panel.set(rate=1)
    assert widgets.ERRORS == ["RuntimeError: <b>planted</b>"]
    assert "This did not work" in panel.text.value and "<b>planted" not in panel.text.value
    panel.set(rate=0)  # it goes on working
    assert panel.figures_drawn == 2


def test_static_twin_stands_beside_every_widget(monkeypatch):
    """WID-09: without a front end the default picture is there, with alternative text."""
    shown = []
    monkeypatch.setattr(widgets, "display", lambda bundle, raw: shown.append(bundle))
    explore(say, rate=(0.0, 1.0, 0.1))._ipython_display_()
    (bundle,) = shown
    assert bundle["text/plain"] == "rate=0.0"
    assert '<img alt="rate=0.0" src="data:image/png;base64,' in bundle["text/html"]
    assert bundle[widgets.VIEW_MIME]["model_id"]


def test_pages_are_shown_as_they_are_and_pictures_escaped():
    assert figure_html(Page("<p>x</p>", "x")) == "<p>x</p>"
    assert 'alt="a &lt;b&gt; &quot;c&quot;"' in figure_html(blank('a <b> "c"'))
    panel = explore(lambda n: Page(f"<p>{n}</p>", str(n)), n=(1, 3, 1))
    assert panel.set(n=2).sentence == "2" and panel.text.value == "<p>2</p>"


def test_every_control_has_a_name_for_a_screen_reader():
    panel = explore(say, gae_lambda=(0.0, 1.0, 0.1), kind=["a", "b"], on=True)
    assert [c.description for c in panel.controls.values()] == ["gae lambda", "kind", "on"]


def test_options_of_a_choice_are_fixed_and_one_move_tells_once():
    """WID-10: nothing replaces options, so nothing is chosen that the reader did not choose."""
    drawn = []
    panel = explore(lambda kind: drawn.append(kind) or blank(kind), kind=["a", "b", "c"])
    panel.set(kind="c")
    panel.set(kind="c")
    assert drawn == ["a", "c"] and dict(panel.controls["kind"].options) == {x: x for x in "abc"}


@pytest.mark.parametrize(("count", "kind"), [(6, "ToggleButtons"), (7, "SelectionSlider")])
def test_choices_can_be_moved_with_the_keyboard(count, kind):
    panel = explore(say, n=list(range(count)))
    assert type(panel.controls["n"]).__name__ == kind
    assert panel.set(n=count - 1).sentence == f"n={count - 1}"


# Workers


def test_worker_runs_once_stops_when_asked_and_can_start_again():
    started, seen = threading.Event(), []

    def work(should_stop):
        seen.append("run")
        started.set()
        while not should_stop():
            threading.Event().wait(0.005)
        return "ended"

    worker = Worker(work)
    for _ in range(3):  # WID-04: one click or three, one run
        worker.start_button.click()
    assert started.wait(5) and worker.running and worker.start_button.disabled
    worker.stop_button.click()
    assert worker.wait(5) and seen == ["run"] and "ended" in worker.status.value
    assert worker.stop_button.disabled and not worker.start_button.disabled
    worker.start()
    worker.stop()
    assert worker.wait(5) and seen == ["run", "run"]


def test_worker_without_a_last_word_is_done_and_stop_before_start_says_nothing():
    worker = Worker(lambda should_stop: None)
    worker.stop()
    assert "not started" in worker.status.value
    worker.start()
    assert worker.wait(5) and "done" in worker.status.value and not widgets.ERRORS


def test_worker_error_is_shown_and_kept():
    worker = Worker(lambda should_stop: 1 / 0)
    worker.start()
    assert worker.wait(5) and "ZeroDivisionError" in worker.status.value
    assert widgets.ERRORS == ["ZeroDivisionError: division by zero"]
    assert not worker.start_button.disabled


# Predictions


def test_prediction_is_compared_with_what_came():
    guess = Prediction("How many?", [0, 1, 2])
    assert guess.reveal(1) == "How many? You made no prediction; it was 1."
    guess.choice.value = 2
    assert guess.reveal(1) == "How many? It was 1: you said 2."
    assert guess.reveal(2) == "How many? It was 2: as you said."


# The desk


@pytest.fixture
def desk() -> DeskPanel:
    return DeskPanel(lambda: TicketEnv("train", 0), tasks=[0, 1])


def test_desk_is_worked_by_buttons_as_by_calls(desk):
    other = DeskPanel(lambda: TicketEnv("train", 0), tasks=[0, 1])
    ticket = desk.env.task.ticket_id  # task 0: to be closed, and paid
    desk.fields["ticket_id"].value = ticket
    desk.fields["new_status"].value = "closed"
    desk.fields["content"].value = f"I have closed {ticket}."
    for tool in ("query_ticket", "update_ticket", "reply"):
        desk.tool.value = tool
        desk.go.click()
    other.act("query_ticket", ticket_id=ticket)
    other.act("update_ticket", ticket_id=ticket, new_status="closed")
    other.act("reply", content=f"I have closed {ticket}.")
    assert desk.rewards == other.rewards and sum(desk.rewards) == pytest.approx(1.08)
    assert desk.summary.startswith("1 tasks finished, 1 of them right, 0 with a claim")
    assert desk.go.disabled and desk.env.messages == other.env.messages


def test_desk_without_tasks_is_refused():
    with pytest.raises(ValueError, match="tasks must hold at least one"):
        DeskPanel(lambda: TicketEnv("train", 0), tasks=[])


def test_desk_panel_refuses_tools_that_its_buttons_do_not_have():
    renamed = EnvConfig(tools="new_words")
    with pytest.raises(ValueError, match="the buttons are for query_ticket"):
        DeskPanel(lambda: TicketEnv("train", 0, renamed), tasks=[0])


def test_desk_after_the_end_waits_for_the_next_task(desk):
    desk.act("reply", content="hello")
    with pytest.raises(ValueError, match="go on to the next one"):
        desk.act("reply", content="hello")
    desk.tool.value = "reply"
    desk.go.click()  # does nothing, and is no error
    assert desk.finished == 1 and not widgets.ERRORS
    desk.next.click()
    assert desk.at == 1 and not desk.rewards and not desk.go.disabled
    desk.next.click()
    assert desk.at == 0


def test_desk_counts_a_claim_of_what_did_not_happen(desk):
    desk.act("reply", content=f"I have closed {desk.env.task.ticket_id}.")
    assert desk.summary.endswith("1 with a claim of something that did not happen")


def test_desk_shows_text_of_the_reader_escaped(desk):
    desk.act("reply", content="<img src=x onerror=alert(1)>")
    assert "<img" not in desk.log.value and "&lt;img" in desk.log.value


def test_desk_takes_any_text_as_an_argument(desk):
    for text in ("", "S" * 5000, "\ud800", '"}</function>', "关闭工单"):
        desk.begin(0)
        desk.act("query_ticket", ticket_id=text)
    assert not widgets.ERRORS


def test_only_the_fields_of_the_chosen_tool_are_open(desk):
    desk.tool.value = "reply"
    assert [name for name, field in desk.fields.items() if not field.disabled] == ["content"]


def test_reward_picture_says_the_sum():
    assert reward_picture([], 6).sentence == "Reward after 0 of 6 turns: 0 in all."
    assert reward_picture([0.1, -0.5], 6).sentence == "Reward after 2 of 6 turns: -0.40 in all."


def test_desk_call_is_the_codecs_own_text(desk):
    desk.act("query_ticket", ticket_id="S1")
    assert desk.env.messages[-2].content == desk.env.codec.render(
        Call("query_ticket", {"ticket_id": "S1"})
    )
