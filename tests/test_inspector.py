"""An episode token by token: numbers worked by hand, who wrote what, and a page nobody can break.

Axes: M action tokens of the episode.
"""

import copy
import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from itertools import groupby

import pytest
import torch

from agentrl_lab.config import EnvConfig, PPOConfig, SamplingConfig
from agentrl_lab.learner.policy import Policy, load_policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.tokenization import ChatTokenizer
from agentrl_lab.learner.trajectories import Stage, Trajectory
from agentrl_lab.records import Call, Message, Split
from agentrl_lab.workbook.inspector import Inspection, inspect_episode, tint
from agentrl_lab.workbook.token_table import COLUMNS, TokenRow, token_roles, token_rows, visible
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.parser import CODECS, one_call
from tests import tiny
from tests.tiny import EndingPolicy, ToyWorld, trajectory

TEMPERATURE = 0.7
PPO = PPOConfig()
SIGNS = {"▲", "▼", "·", "?"}
NUMBERS = [field.name for field in dataclasses.fields(TokenRow)][5:]
Rows = Callable[..., list[TokenRow]]


@pytest.fixture(scope="module")
def policy(tokenizer) -> EndingPolicy:
    model = tiny.llama(len(tokenizer.tokenizer), hidden=16)
    return EndingPolicy(model, tokenizer, push=3.0)


@pytest.fixture(scope="module")
def episodes(policy) -> list[Trajectory]:
    """Four sampled episodes of two turns in a toy world; only the last turn pays."""

    def make() -> ToyWorld:
        return ToyWorld(pay=lambda task, turn, text: float(turn) * (1 + task), turns=2)

    collector = Collector(policy, make, SamplingConfig(action_tokens=6, context_tokens=128))
    return collector.collect(range(4), temperature=TEMPERATURE, seed=[0])


@pytest.fixture(scope="module")
def base() -> Policy:
    return load_policy("tiny-base")


@pytest.fixture(scope="module")
def played(base) -> tuple[TicketEnv, Trajectory]:
    """A greedy episode of tiny-base at the real desk."""
    made: list[TicketEnv] = []

    def make() -> TicketEnv:
        made.append(TicketEnv(Split.TEST, 0, EnvConfig(), count_tokens=base.tokenizer.count))
        return made[-1]

    found = Collector(base, make, SamplingConfig()).collect([0], temperature=0.0, seed=[0])
    assert len(found[0].stages) == 2
    return made[-1], found[0]


def moved(policy: EndingPolicy, by: float = 0.05) -> EndingPolicy:
    other = copy.deepcopy(policy)
    torch.manual_seed(1)
    with torch.no_grad():
        for weights in other.parameters():
            weights.add_(by * torch.randn_like(weights))
    return other


def actions(rows: Sequence[TokenRow]) -> list[TokenRow]:
    return [row for row in rows if row.is_action]


def column(rows: Sequence[TokenRow], name: str) -> list:
    return [getattr(row, name) for row in actions(rows)]


# Numbers


def by_hand() -> Trajectory:
    """Two actions of two tokens and one: ids 2, 3 and 6."""
    return trajectory(
        [9, 9, 8, 7, 9, 9, 8], [(2, 4), (6, 7)], [0.5, 1.0],
        values=[0.2, 0.4, 0.6], logprobs=[-1.0, -2.0, -3.0],
    )  # fmt: skip


def test_advantages_and_returns_by_hand(policy):
    # gamma 0.9, lambda 0.5, both 1 inside a turn:
    # token 6: 1 - 0.6 = 0.4
    # token 3: 0.5 + 0.9*0.6 - 0.4 + 0.45*0.4 = 0.82
    # token 2: 0 + 0.4 - 0.2 + 0.82 = 1.02
    # mean 0.746667, deviation (n - 1) 0.316438
    config = PPOConfig(gamma=0.9, gae_lambda=0.5)
    rows = token_rows(by_hand(), policy, config, temperature=1.0)
    assert [row.position for row in actions(rows)] == [2, 3, 6]
    assert [row.turn for row in rows] == [1, 1, 1, 1, 2, 2, 2]  # what is read counts as well
    assert column(rows, "advantage") == pytest.approx([1.02, 0.82, 0.4])
    assert column(rows, "return_") == pytest.approx([1.22, 1.22, 1.0])
    assert column(rows, "reward") == [0.0, 0.5, 1.0]
    assert column(rows, "value_old") == [0.2, 0.4, 0.6]
    assert column(rows, "logprob_old") == [-1.0, -2.0, -3.0]
    assert column(rows, "advantage_whitened") == pytest.approx(
        [0.863779, 0.231746, -1.095525], abs=1e-4
    )


def test_the_collecting_policy_has_ratio_one_and_clips_nothing(policy, episodes):
    for episode in episodes:
        rows = token_rows(episode, policy, PPO, temperature=TEMPERATURE)
        assert column(rows, "ratio") == pytest.approx([1.0] * episode.num_action_tokens, abs=1e-5)
        assert not any(column(rows, "clipped"))
        assert column(rows, "logprob_new") == pytest.approx(episode.logprobs, abs=1e-5)
        assert column(rows, "entropy") == pytest.approx(episode.entropies, abs=1e-5)


def test_a_changed_policy_has_the_ratio_of_its_probabilities(policy, episodes):
    rows = token_rows(episodes[0], moved(policy), PPO, temperature=TEMPERATURE)
    found = column(rows, "ratio")
    pairs = zip(column(rows, "logprob_new"), column(rows, "logprob_old"), strict=True)
    assert found == pytest.approx([math.exp(new - old) for new, old in pairs], rel=1e-5)
    assert max(abs(ratio - 1) for ratio in found) > 0.01


def test_another_temperature_gives_other_probabilities(policy, episodes):
    rows = token_rows(episodes[0], policy, PPO, temperature=1.4)
    assert max(abs(ratio - 1) for ratio in column(rows, "ratio")) > 0.01


def test_temperature_zero_is_scored_like_a_greedy_rollout(base, played):
    rows = token_rows(played[1], base, PPO, temperature=0)
    assert column(rows, "logprob_new") == pytest.approx(played[1].logprobs, abs=1e-4)
    with pytest.raises(ValueError, match="temperature"):
        token_rows(played[1], base, PPO, temperature=-1.0)


def test_the_clip_holds_only_on_the_side_the_advantage_pulls_to(policy):
    # gamma 0: advantage = reward - value = 1, -1, 1, -1; mean 0, so whitening keeps the signs.
    ids, spans = [9, 8, 9, 8, 9, 8, 9, 8], [(1, 2), (3, 4), (5, 6), (7, 8)]
    config = PPOConfig(gamma=0.0, clip_ratio=0.2)
    rewards = [1.0, -1.0, 1.0, -1.0]
    plain = trajectory(ids, spans, rewards)
    new = column(token_rows(plain, policy, config, temperature=1.0), "logprob_new")
    ratios = [1.5, 1.5, 0.5, 0.5]
    old = [logprob - math.log(ratio) for logprob, ratio in zip(new, ratios, strict=True)]
    planted = trajectory(ids, spans, rewards, logprobs=old)
    rows = token_rows(planted, policy, config, temperature=1.0)
    assert column(rows, "ratio") == pytest.approx(ratios, rel=1e-5)
    assert column(rows, "clipped") == [True, False, False, True]


def test_whitening_runs_over_all_episodes_that_are_given(policy, episodes):
    alone = token_rows(episodes[0], policy, PPO, temperature=1.0)
    together = token_rows(episodes[0], policy, PPO, temperature=1.0, episodes=episodes)
    others = token_rows(episodes[0], policy, PPO, temperature=1.0, episodes=episodes[1:])
    name = "advantage_whitened"
    assert sum(column(alone, name)) == pytest.approx(0.0, abs=1e-6)
    assert column(together, name) != pytest.approx(column(alone, name), abs=0.01)
    assert column(together, name) == pytest.approx(column(others, name))  # itself counts once
    assert column(together, "advantage") == column(alone, "advantage")
    total = sum(
        sum(column(token_rows(t, policy, PPO, temperature=1.0, episodes=episodes), name))
        for t in episodes
    )
    assert total == pytest.approx(0.0, abs=1e-6)


# Who wrote what


def check_mask(rows_of: Rows, policy: Policy, episode: Trajectory) -> None:
    """Exactly the sampled tokens are action tokens, and they alone have numbers."""
    rows = rows_of(episode, policy, PPO, temperature=TEMPERATURE)
    assert [row.position for row in rows] == list(range(len(episode.ids)))
    assert [row.position for row in actions(rows)] == episode.action_positions()
    for row in rows:
        assert {getattr(row, name) is not None for name in NUMBERS} == {row.is_action}
        assert (row.role == "assistant") == row.is_action


def paints_a_tool_token(*args, **named):
    rows = token_rows(*args, **named)
    tool = next(row for row in rows if row.role == "tool")
    rows[tool.position] = dataclasses.replace(
        rows[tool.position - 3], position=tool.position, is_action=True
    )
    return rows


def forgets_the_end_token(*args, **named):
    rows = token_rows(*args, **named)
    last = actions(rows)[-1].position
    rows[last] = dataclasses.replace(
        rows[last], is_action=False, role="template", **dict.fromkeys(NUMBERS)
    )
    return rows


def test_exactly_the_sampled_tokens_are_action_tokens(policy, episodes):
    for episode in episodes:
        check_mask(token_rows, policy, episode)


@pytest.mark.parametrize("wrong", [paints_a_tool_token, forgets_the_end_token])
def test_mask_check_rejects(wrong, policy, episodes):
    with pytest.raises(AssertionError):
        check_mask(wrong, policy, episodes[0])


def test_random_episodes_with_tokens_after_the_last_action(policy):
    for episode in tiny.random_trajectories(200, 6):
        rows = token_rows(episode, policy, PPO, temperature=1.0)
        assert [row.position for row in actions(rows)] == episode.action_positions()
        assert {row.turn for row in rows} == set(range(1, len(episode.stages) + 1))
        assert inspect_episode(episode, policy, PPO, temperature=1.0).rows == tuple(rows)


def test_roles_of_a_real_episode(base, played):
    env, episode = played
    rows = token_rows(episode, base, PPO, temperature=0)
    assert [role for role, _ in groupby(row.role for row in rows)] == [
        "template", "system", "template", "system", "template", "user", "template", "assistant",
        "template", "tool", "template", "assistant",
    ]  # fmt: skip
    for role, number in (("user", 1), ("tool", 3)):
        ids = [episode.ids[row.position] for row in rows if row.role == role]
        assert base.tokenizer.action_text(ids) == env.messages[number].content
    assert [row.turn for row in rows if row.role == "tool"] == [2] * sum(
        row.role == "tool" for row in rows
    )


def test_roles_where_the_name_follows_the_mark_as_plain_text(tokenizer):
    inner = copy.deepcopy(tokenizer.tokenizer)
    inner.add_special_tokens({"extra_special_tokens": ["<|im_start|>"]})
    inner.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    chat = ChatTokenizer(inner)
    ids = chat.opening([Message("system", "work"), Message("user", "close it")], [])
    start = len(ids)
    ids += chat.encode_action("done")
    stop = len(ids)
    ids += chat.after_action(Message("tool", "ok"), ended=True)
    roles = token_roles(trajectory(ids, [(start, stop)]), chat)
    assert [role for role, _ in groupby(roles)] == [
        "template", "system", "template", "user", "template", "assistant", "template", "tool",
        "template",
    ]  # fmt: skip


def test_visible_text():
    assert visible(" a\nb\tc") == "␣a↵b⇥c"
    assert visible("\u202e") == "\\u202e"  # would turn the line around
    assert visible("工单") == "工单"


# The page


class Page(HTMLParser):
    """Tags, attribute names, and the boxes: position -> (style, title, sign, text)."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.names: set[str] = set()
        self.boxes: dict[int, list[str]] = {}
        self.spoken: list[str] = []
        self._box: list[str] | None = None
        self._in_sign = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        given = dict(attrs)
        if number := re.match(r"token (\d+), ", given.get("title") or ""):
            self._box = self.boxes[int(number[1])] = [given["style"], given["title"], "", ""]
        self._in_sign = tag == "small"

    def handle_endtag(self, tag):
        self._in_sign = False
        if tag == "span":
            self._box = None

    def handle_data(self, data):
        self.spoken.append(data)
        if self._box is not None:
            self._box[2 if self._in_sign else 3] += data


def check_page(inspection: Inspection, episode: Trajectory) -> None:
    """Every token has its box; the sampled ones alone have a sign and a colour."""
    boxes = Page(inspection.html).boxes
    assert sorted(boxes) == list(range(len(episode.ids)))
    sampled = set(episode.action_positions())
    for position, (style, title, sign, text) in boxes.items():
        assert text == inspection.rows[position].text
        assert (sign in SIGNS) == (position in sampled)
        assert ("dashed" in style) == ("not written" in title) == (position not in sampled)
        assert ("background-color:#f1f1f1" in style) == (position not in sampled)


def test_page_paints_exactly_the_sampled_tokens(policy, episodes):
    for episode in episodes:
        check_page(inspect_episode(episode, policy, PPO, temperature=TEMPERATURE), episode)


def test_page_check_rejects_a_painted_tool_token(policy, episodes):
    good = inspect_episode(episodes[0], policy, PPO, temperature=TEMPERATURE)
    tool = next(row for row in good.rows if row.role == "tool")
    box = re.compile(rf'style="[^"]*" title="token {tool.position},')
    paint = f'style="background-color:#66aad1;color:#1a1a1a" title="token {tool.position},'
    bad = dataclasses.replace(good, html=box.sub(paint, good.html))
    assert bad.html != good.html
    with pytest.raises(AssertionError):
        check_page(bad, episodes[0])


def test_page_of_a_real_episode_says_call_answer_and_end(base, played):
    env, episode = played
    page = Page(inspect_episode(episode, base, PPO, temperature=0).html)
    text = " ".join("".join(page.spoken).split())
    assert 'Turn 1: query_ticket(ticket_id = "S9582")' in text
    assert " ".join(env.messages[3].content.split()) in text
    assert "The episode ended here: replied." in text


def test_sentence_of_a_real_episode(base, played):
    # The value head says 0, so each turn has one advantage: -0.8, and -0.8 * 0.99 * 0.95 before it.
    inspection = inspect_episode(played[1], base, PPO, temperature=0)
    assert inspection.sentence == (
        "2 turns, 33 action tokens; the rewards add up to -0.80; the advantage furthest from 0, "
        "-0.800, is on '<' in turn 2 (and on 17 more)."
    )
    assert inspection.sentence in "".join(Page(inspection.html).spoken)


def test_sentence_when_nothing_differs(policy, episodes):
    inspection = inspect_episode(
        episodes[0], policy, PPO, temperature=TEMPERATURE, colour_by="ratio"
    )
    assert inspection.sentence.endswith("every ratio is 1.")
    assert "here every box is white" in inspection.html


@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_colours_and_signs_alike(name, policy, episodes):
    other = moved(policy)
    inspection = inspect_episode(episodes[1], other, PPO, temperature=TEMPERATURE, colour_by=name)
    check_page(inspection, episodes[1])
    page, shown = Page(inspection.html), COLUMNS[name]
    assert name in inspection.sentence
    for row in actions(inspection.rows):
        style, title, sign, _ = page.boxes[row.position]
        away = float(format(getattr(row, shown.attribute), shown.form)) - shown.neutral
        assert sign == ("▲" if away > 0 else "▼" if away < 0 else "·")
        red, _, blue = bytes.fromhex(re.search("background-color:#(.{6})", style)[1])
        assert (blue > red) == (away > 0)
        assert f"{name} {format(getattr(row, shown.attribute), shown.form)}\n" in title


def test_the_issue_names_are_all_columns():
    wanted = {"advantage", "ratio", "logprob_new", "value", "entropy", "reward", "return"}
    assert wanted <= COLUMNS.keys()


def test_unknown_column_is_refused_with_the_nearest(policy, episodes):
    with pytest.raises(ValueError, match=r"colour_by 'advantge' .* did you mean 'advantage'"):
        inspect_episode(episodes[0], policy, PPO, temperature=1.0, colour_by="advantge")


def luminance(colour: str) -> float:
    parts = [byte / 255 for byte in bytes.fromhex(colour[1:])]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("share", [-math.inf, -1.0, -0.5, 0.0, 0.5, 1.0, 7.0])
def test_text_is_readable_on_every_tint(share):
    contrast = (luminance(tint(share)) + 0.05) / (luminance("#1a1a1a") + 0.05)
    assert contrast >= 4.5  # WCAG 2.2, AA
    assert (tint(share) == "#ffffff") == (share == 0)


def with_action(base: Policy, episode: Trajectory, text: str, invalid: str | None) -> Trajectory:
    """The episode with another first action, and nothing after it."""
    start = episode.stages[0].start
    action = base.tokenizer.tokenizer.encode(text, add_special_tokens=False)
    read = one_call(CODECS["json" if text.startswith("{") else "function"].parse(text))
    call = read if isinstance(read, Call) and not invalid else None
    stage = Stage(start, start + len(action), -0.05, text, invalid, call)
    numbers = (-0.5,) * len(action)
    return dataclasses.replace(
        episode, ids=(*episode.ids[:start], *action), stages=(stage,), logprobs=numbers,
        values=numbers, entropies=numbers,
    )  # fmt: skip


@pytest.mark.parametrize("invalid", ["no_call", None])
def test_text_of_the_policy_stays_text(base, played, invalid):
    evil = '</span></div><script>alert(1)</script><img src="x" onerror="y"> " onclick="z {{ 7*7 }}'
    episode = with_action(base, played[1], evil, invalid)
    plain = Page(inspect_episode(played[1], base, PPO, temperature=0).html)
    inspection = inspect_episode(episode, base, PPO, temperature=0)
    page = Page(inspection.html)
    assert page.tags == plain.tags and page.names == plain.names
    check_page(inspection, episode)
    written = "".join(page.boxes[at][3] for at in episode.action_positions())
    assert written == visible(evil)
    assert "<script" not in inspection.html


def test_one_token_of_markup_stays_text(base, played):
    """The worst case whole: as if a vocabulary held the tags as a single token."""
    bad = copy.copy(base)
    real = base.tokenizer.tokenizer.decode
    bad.tokenizer = copy.copy(base.tokenizer)
    bad.tokenizer.tokenizer = copy.copy(base.tokenizer.tokenizer)
    bad.tokenizer.tokenizer.decode = lambda ids, **named: (
        "</span><script>" if list(ids) == [played[1].ids[108]] else real(ids, **named)
    )
    inspection = inspect_episode(played[1], bad, PPO, temperature=0)
    assert Page(inspection.html).boxes[108][3] == "</span><script>"
    assert "&lt;/span&gt;&lt;script&gt;" in inspection.html


@pytest.mark.parametrize(
    ("text", "invalid", "heading"),
    [
        ("please wait", "no_call", "Turn 1: invalid action: no_call"),
        ('{"tool": "reply", "parameters": {"content": "关 it"}}', None,
         'Turn 1: reply(content = "关 it")'),
        # A call that quotes the other way to write one: the whole message is the call.
        ('{"tool": "reply", "parameters": {"content": "<function=x>{}</function>"}}', None,
         'Turn 1: reply(content = "<function=x>{}</function>")'),
        ("12 13", None, "Turn 1: 12␣13"),
    ],
)  # fmt: skip
def test_heading_of_a_turn(base, played, text, invalid, heading):
    episode = with_action(base, played[1], text, invalid)
    page = Page(inspect_episode(episode, base, PPO, temperature=0).html)
    assert heading in "".join(page.spoken)


def test_page_needs_nothing_from_outside_and_no_script(policy, episodes):
    for episode in episodes:
        html = inspect_episode(episode, policy, PPO, temperature=TEMPERATURE).html
        for forbidden in ("http", "<script", "onclick", "url(", "@import", "<link", "<img"):
            assert forbidden not in html


def test_page_sets_its_own_colours_so_that_a_dark_theme_keeps_it_readable(policy, episodes):
    html = inspect_episode(episodes[0], policy, PPO, temperature=TEMPERATURE).html
    root = re.search('<div class="token-inspector" style="([^"]*)"', html)[1]
    assert root == "background-color:#ffffff;color:#1a1a1a"
    for style, *_ in Page(html).boxes.values():
        assert "background-color:#" in style and ";color:#" in style


def test_tables_have_captions_and_scopes(policy, episodes):
    html = inspect_episode(episodes[0], policy, PPO, temperature=TEMPERATURE).html
    assert html.count("<caption>") == html.count("<table>") == len(episodes[0].stages)
    assert html.count('<th scope="row">') == episodes[0].num_action_tokens
    assert html.count("<th") == html.count("<th scope=") + html.count("<thead")


def test_page_of_250_tokens_stays_under_300_kb(policy):
    ids = [9 + number % 150 for number in range(250)]
    spans = [(20, 130), (140, 250)]
    episode = trajectory(ids, spans, [0.1, 1.0], values=[0.123] * 220, logprobs=[-1.5] * 220)
    html = inspect_episode(episode, policy, PPO, temperature=1.0).html
    assert len(html.encode()) < 300_000


def test_notebook_shows_the_page_and_stores_it_once(policy, episodes):
    inspection = inspect_episode(episodes[0], policy, PPO, temperature=TEMPERATURE)
    assert inspection._repr_html_() == inspection.html
    assert repr(inspection) == f"Inspection(sentence={inspection.sentence!r})"


def test_a_broken_policy_is_shown_not_hidden(policy, episodes):
    broken = copy.deepcopy(policy)
    with torch.no_grad():
        next(broken.parameters()).fill_(float("nan"))
    inspection = inspect_episode(
        episodes[0], broken, PPO, temperature=TEMPERATURE, colour_by="logprob_new"
    )
    assert "nan, is on" in inspection.sentence
    signs = {Page(inspection.html).boxes[at][2] for at in episodes[0].action_positions()}
    assert signs == {"?"}


def test_inspecting_leaves_the_policy_as_it_is(policy, episodes):
    before = {name: weights.clone() for name, weights in policy.state_dict().items()}
    policy.train()
    inspect_episode(episodes[0], policy, PPO, temperature=TEMPERATURE)
    assert policy.training
    policy.eval()
    assert all(torch.equal(before[name], w) for name, w in policy.state_dict().items())
    assert all(weights.grad is None for weights in policy.parameters())
