# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 02 · Action encoding
#
# **An action is text. Who decides what it means, and does it still mean that tomorrow?**
#
# *You will learn* to write one call in three ways and to say what each costs; to read text from a
# policy strictly, and to answer a bad one with a hint instead of a crash; to see what an invalid
# action costs; to see what a change of the tools does to names, and what to numbers.
#
# *Before this*: 00 (what the task is). *Runtime*: about half a minute on 2 CPU cores.
#
# ```
#   policy ──► text ──► parser ──► desk ──► answer ──► next prompt
#                  (you are here)
# ```

# %% tags=["parameters"]
SEED: int = 0  # every random choice below follows from it
PROFILE: str = "fast"  # smoke, fast or full: how many tasks are played
STRICT: bool = False  # True: an unsolved or wrong exercise stops the notebook

# %%
import json
import re

from agentrl_lab.config import EnvConfig, SamplingConfig
from agentrl_lab.learner.evaluation import rate
from agentrl_lab.learner.experiments import read_results
from agentrl_lab.learner.policy import load_policy
from agentrl_lab.records import Call, Split
from agentrl_lab.workbook import checks, plots, widgets
from agentrl_lab.workbook.conversations import converse
from agentrl_lab.workbook.lessons import checks_encoding
from agentrl_lab.workbook.lessons import encoding as en
from agentrl_lab.workbook.live import conversation_page
from agentrl_lab.workbook.recording import record
from agentrl_lab.world.id_codec import codec_of
from agentrl_lab.world.tasks import make_task
from agentrl_lab.world.toolsets import with_tools

TASKS = range({"smoke": 8, "fast": 64, "full": 500}[PROFILE])
policy = load_policy("tiny-trained")
count = policy.tokenizer.count
print(f"profile {PROFILE}: {len(TASKS)} validation tasks with each set of tools")

# %% [markdown]
# ## 1 · One call, three ways to write it
#
# A classic reinforcement learner picks an action from a list: number 0, number 1, number 2. An
# agent could do the same. **id** does: the number is the tool's place in the list that the prompt
# shows, from 0, and the values stand in the order of the tool's arguments. **function** and
# **json** write the names out.

# %% tags=["nbval-check-output"]
for number, tool in enumerate(en.TOOLS):
    print(f"{number}  {tool.name}({', '.join(tool.schema['properties'])})")
call = Call("update_ticket", {"ticket_id": "S1001", "new_status": "closed"})
written = {name: codec_of(name, en.TOOLS).render(call) for name in en.ENCODINGS}
for name, text in written.items():
    print(f"{name:<9}{count(text):>3} tokens   {text}")

# %% [markdown]
# Numbers are short, and short is cheap: each token is written one after the other, in training and
# in service. So why would anybody write names?
#
# ## 2 · Who reads it?
#
# A **parser** turns the text into a call, or says why it cannot. Then the **desk** looks whether
# such a tool exists and the arguments fit. Neither may ever crash, whatever a policy writes: what
# it gets wrong is a *value*, a code with one sentence that goes back to it as a hint.
#
# Which of these five is a call in the *function* encoding?

# %% tags=["nbval-ignore-output"]
FIVE = {
    "A": '<function=query_ticket>{"ticket_id": "S1001"}</function>',
    "B": "<function=query_ticket>{'ticket_id': 'S1001'}</function>",
    "C": 'I will look. <function=query_ticket>{"ticket_id": "S1001"}</function>',
    "D": '<function=query_ticket>{"ticket_id": "S1001"}',
    "E": '```json\n{"tool": "query_ticket", "parameters": {"ticket_id": "S1001"}}\n```',
}
for name, text in FIVE.items():
    print(f"{name}   {text}")
calls = widgets.Prediction(
    "Which are calls?", ["only A", "A and C", "A, B and C", "all"]
)
calls

# %% tags=["nbval-ignore-output"]
good = [n for n, text in FIVE.items() if "function: ✔" in en.readings(text).sentence]
print(calls.reveal(" and ".join(good)))

# %% [markdown]
# Type into the line, then press Enter. All three parsers read it. Try to break them: a missing
# brace, `NaN`, two calls, a tool called `close_ticket`, `7 []`, Chinese quotes “ ”.

# %% tags=["nbval-ignore-output"]
playground = widgets.explore(en.readings, text=FIVE["A"])
playground

# %% tags=["nbval-check-output"]
for text in (
    FIVE["B"],
    FIVE["D"],
    FIVE["E"],
    '2 ["S1001", "closed"]',
    '2 ["closed", "S1001"]',
):
    print(text.replace("\n", " "))
    print("   " + playground.set(text=text).sentence.replace("; ", "\n   "))

# %% [markdown]
# - **Nothing is repaired** (B). A parser that guesses what was meant teaches the policy that
#   anything will do, and guesses differently in another system.
# - **A fence is prose** (E), and *function* and *json* read what is in it. *id* allows no prose at
#   all: a digit and a bracket may stand in any sentence, so its message must be the call alone.
# - **The last two lines** hold the same two values. Names say which is which. In the *id* encoding
#   only the place says it, and here the desk noticed: `S1001` is no status. With two arguments of
#   one kind nobody would.
#
# **Exercise 2.1 · your own parser** (about 15 min). `read(text)` returns `(tool, arguments)` if the
# message holds exactly one call `<function=NAME>{...}</function>`, prose around it allowed, and
# `None` for everything else. It never raises. The check attacks it. Two tools that help:
# `json.JSONDecoder(parse_constant=...)` and its `raw_decode(text, start)`, which says where the
# object ends.


# %% tags=["exercise"]
def read(text):
    raise NotImplementedError("Exercise 2.1: one call, or None")


# %% tags=["nbval-ignore-output"]
checks.report(checks_encoding.check_reader, read, strict=STRICT)

# %% [markdown]
# <details><summary>Hint</summary>
#
# A regular expression finds `<function=NAME>`. It cannot find the end of the object, since braces
# may stand in strings and objects in objects. Let `raw_decode` find it. What is left must begin
# with `</function>` and hold no other opener.
#
# </details>


# %% tags=["solution"]
def refuse(constant):
    raise ValueError(constant)


def read(text):
    opener = re.search(r"<function=([^<>\s]+)>", text)
    if not opener:
        return None
    try:
        decoder = json.JSONDecoder(parse_constant=refuse)
        arguments, end = decoder.raw_decode(text, opener.end())
    except (ValueError, RecursionError):
        return None
    rest = text[end:]
    if not isinstance(arguments, dict) or not rest.startswith("</function>"):
        return None
    return None if "<function=" in rest else (opener[1], arguments)


# %% [markdown]
# ## 3 · What does an invalid action cost?
#
# An invalid action takes one of six turns and changes nothing; three in a row end the episode
# ("three strikes"). What it costs beyond that is up to the reward. The workbook has four:
#
# | reward | pays |
# |---|---|
# | `printed` | 1 if the desk is right and a reply was sent; it never reads the reply |
# | `outcome` | 1 if the desk and the reply are right |
# | `process` | the same, and up to 0.35 for useful calls and a clear reply |
# | `shaped` | the same as `outcome`, and small sums for how it was done; training uses it |
#
# Below, a ticket is closed as it should be, after 0 to 3 invalid actions on the way.

# %% tags=["nbval-ignore-output"]
dearest = widgets.Prediction(
    "Under how many of the four does an invalid action lower the pay in the end?",
    options=[0, 1, 2, 3, 4],
)
dearest

# %% tags=["nbval-ignore-output"]
charged = [n for n in en.PRESETS if en.paid_after(2, n) < en.paid_after(0, n)]
print(dearest.reveal(len(charged)))
widgets.show(en.price_picture())

# %% tags=["nbval-check-output"]
for name in en.PRESETS:
    paid = ", ".join(
        f"{en.paid_after(n, name):+.2f}" for n in range(en.MOST_INVALID + 1)
    )
    print(f"{name:<9}{paid}   three strikes {en.paid_for_three_strikes(name):+.2f}")

# %% [markdown]
# Under `printed`, `outcome` and `process` a stammering success is worth as much as a clean one.
# (`process` is above 1 because of its bonuses.) Under `shaped` each invalid action lowers the
# **ceiling** of the episode, which is 1 without any, by a tenth: after three of them the best that
# can still be reached is 0.70, whatever follows. The first one costs more, since the 0.08 for a
# quick and clean success lie above the ceiling. The chapter (the practitioner's text on agentic RL
# that this workbook puts to the test) says that many invalid actions lower the highest reward.
# That is a choice, and one of the four rewards makes it. Three strikes cost more than any of this.
# Notebook 09 is about the case when they do not.
#
# ## 4 · And when the tools change?
#
# `tiny-trained` writes *function* calls and has seen one list of tools in all its life. Now it
# meets others:
#
# - **one more**: a tool `assign_ticket` stands first in the list;
# - **moved**: `update_ticket` takes the status first;
# - **new words**: `inspect_dossier`, `modify_dossier`, `respond` in place of the three.

# %% tags=["nbval-ignore-output"]
CHANGES = {"one more": "one_more", "moved": "moved", "new words": "new_words"}
hardest = widgets.Prediction(
    "Which change breaks a policy that writes names?", [*CHANGES, "none of them"]
)
hardest


# %% tags=["nbval-ignore-output"]
def play_all(tools):
    env = EnvConfig(tools=tools)
    return converse(policy, TASKS, env, SamplingConfig(), Split.VALIDATION)


told = {
    name: play_all(tools)
    for name, tools in {"as trained": "standard", **CHANGES}.items()
}
success, invalid = {}, {}
for name, talks in told.items():
    outcomes = [talk.trajectory.outcome for talk in talks]
    success[name] = rate(sum(o.success for o in outcomes), len(TASKS))
    invalid[name] = sum(o.invalid for o in outcomes) / sum(o.turns for o in outcomes)
    print(f"{name:<11} share of invalid actions {invalid[name]:.2f}")
print(hardest.reveal(min(CHANGES, key=lambda name: success[name].value)))
widgets.show(plots.ranges({"tiny-trained": success}, "success (share of tasks)"))

# %% [markdown]
# Look at one task with each set of tools.

# %% tags=["nbval-ignore-output"]
watched = widgets.explore(
    lambda tools: conversation_page(told[tools][2]), tools=list(told)
)
watched

# %% tags=["nbval-ignore-output"]
failed = [t.trajectory for t in told["one more"] if not t.trajectory.outcome.success]
asked = [(make_task(Split.VALIDATION, 0, t.index).ticket_id, t) for t in failed]
other = [(ticket, t) for ticket, t in asked if ticket not in t.stages[0].text]
print(f"one more: {len(failed)} failed, {len(other)} looked at another ticket at once")
for ticket, trajectory in other[:3]:
    print(f"asked for {ticket}: {trajectory.stages[0].text}")

# %% [markdown]
# - **Moved**: nothing happens. The names in its calls say which value is which.
# - **One more**: no call is misunderstood, and yet a fifth of the tasks fails. The policy copies
#   the number of the ticket wrongly (three of them stand above), and looks at a ticket that nobody
#   asked for. Everything behind the longer list stands some places further on than it ever did in
#   training. That this is the reason is our guess; it was not tested.
# - **New words**: it writes the old names, and gets `unknown_tool` three times, to the end (move
#   the panel to see it). The hint with the names of the tools does not fit into the 48 tokens of an
#   answer; with 200 it arrives, and in a trial of 48 tasks the policy still solved none (but 200
#   confuse it by themselves, see 01). And the new names stood in its prompt all along. A policy
#   that has seen one list has had no reason to look a name up in it.
#
# ## 5 · And a policy that writes numbers?
#
# `tiny-id` has imitated the same demonstrations as `tiny-base` (the fluent, wrong one of notebook
# 00), written in numbers. PPO has not trained it, so look at its first action only: it should look
# the ticket up. Then one more tool stands in front of the list.

# %% tags=["nbval-ignore-output"]
understood = widgets.Prediction(
    "What will its first message mean, with one more tool in the list?",
    ["the same query", "an invalid action", "a call of another tool"],
)
understood

# %% tags=["nbval-ignore-output"]
counting = load_policy("tiny-id")


def first_action(tools):
    env = EnvConfig(codec="id", tools=tools)
    found = converse(counting, [2], env, SamplingConfig(), Split.VALIDATION)[0]
    text = found.trajectory.stages[0].text
    task = with_tools(make_task(Split.VALIDATION, 0, 2), tools)
    return text, en.readings(text, task.tools).sentence.split("id: ")[1]


for name, tools in {"as trained": "standard", "one more": "one_more"}.items():
    text, meaning = first_action(tools)
    print(f"{name:<11} {text:<12} {meaning}")
shifted = "assign_ticket" in meaning
kinds = {"✘": "an invalid action", "✔ query": "the same query"}
kind = next((kind for mark, kind in kinds.items() if meaning.startswith(mark)), "")
print(understood.reveal(kind or "a call of another tool"))

# %% [markdown]
# The text is the same, and so is the policy. But the list has one more tool in front, and number 0
# now gives the ticket to a colleague. No parser and no schema can notice that: this call is valid.
# This is why the chapter calls numbers the worst encoding. But this is one example.
#
# ## 6 · Thirty runs
#
# Three encodings, ten seeds each: 640 episodes of PPO, from one starting policy for each encoding,
# made from the same demonstrations. Then 200 test tasks, greedy (the likeliest token each time),
# with the tools as they were and with changed ones. C1 is the chapter's claim that a number breaks
# when a tool comes or changes, C2 its two ways to write names. The rule was written before the
# runs; "in pairs" means that runs of one seed are compared with each other.

# %% tags=["nbval-check-output"]
study = read_results("encodings")
ROWS = study["rows"]
print(study["question"])
print(study["rule"].replace(". ", ".\n"))

# %% tags=["nbval-ignore-output"]
kept = widgets.Prediction(
    "With one more tool, how much success does a policy with numbers keep?",
    ["nearly all", "about half", "hardly any"],
)
kept

# %% tags=["nbval-ignore-output"]
means = en.by_encoding(ROWS)
share = means["id"]["one more"].value / means["id"]["as trained"].value
words = {0.75: "nearly all", 0.25: "about half", 0.0: "hardly any"}
print(kept.reveal(next(word for least, word in words.items() if share >= least)))
widgets.show(plots.ranges(means, "test success (share, mean of ten seeds)"))


# %% tags=["nbval-check-output"]
def verdict(confirmed, refuted):
    return "confirmed" if confirmed else "refuted" if refuted else "inconclusive"


def told_as(what, found):
    print(f"{what}: {found.value:+.2f} (95%: {found.low:+.2f} to {found.high:+.2f})")


rose = all(means[arm]["as trained"].value >= 0.8 for arm in ("function", "id"))
for change in ("one more", "moved"):
    gap = en.more_lost(ROWS, "id", "function", change)
    told_as(f"{change}, id loses more than function by", gap)
    print("  C1:", verdict(rose and gap.low > 0.1, rose and gap.high < 0.1))
halves = [en.above_half(ROWS, arm, "new words") for arm in ("function", "json")]
for arm, half in zip(("function", "json"), halves, strict=True):
    told_as(f"new words, {arm}, success minus half of that as trained", half)
carried = all(half.low > 0 for half in halves)
print("names carry over:", verdict(carried, any(half.high < 0 for half in halves)))

# %% [markdown]
# - **One more tool: numbers break.** On every seed the policy that writes numbers solved 0.88 or
#   more of the tasks, and then none: its 0 is another tool now. C1 is confirmed. Names lose 0.04
#   and 0.05; at what, these rows do not say (in section 4 it was miscopied numbers of tickets).
# - **Moved arguments: C1 is confirmed as well.** Numbers lose three tasks in ten, about as many as
#   need an update. A query and a reply have one value each, and one value has no order.
# - **New words: nobody.** That names *carry over* is refuted: 0.00 on every seed. For a policy that
#   never had to read a name it is a fixed string, as a number is. (The numbers fail here because
#   the new words stand in another order of the alphabet; new words in the old order were not
#   tried.) In a pilot of one seed, which is not recorded, a start that had met names drawn anew for
#   each task solved 0.67 with drawn names, and again 0.00 with new words.
#
# The intervals say how far another seed of *training* may lie. Another start or other test tasks
# would add to them.
#
# **Exercise 2.2 · what a change breaks** (about 10 min). Before you add a tool to a running system:
# which old numbered messages change their meaning? `before` and `after` map each tool's name to the
# list of its arguments; numbers go by the names in order of the alphabet, values by place.
# `still_means(tool, before, after)` is True if a message that called `tool` before still does, with
# every value where it was. A tool with an argument more or less counts as changed.


# %% tags=["exercise"]
def still_means(tool, before, after):
    raise NotImplementedError("Exercise 2.2: same number, same places")


# %% tags=["nbval-ignore-output"]
checks.report(checks_encoding.check_numbers, still_means, strict=STRICT)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `sorted(before)` is the list that the numbers count through. Is the tool in `after` at all?
#
# </details>


# %% tags=["solution"]
def still_means(tool, before, after):
    if tool not in after:
        return False
    same_number = sorted(before).index(tool) == sorted(after).index(tool)
    return same_number and list(before[tool]) == list(after[tool])


# %% [markdown]
# ## What to take along
#
# Text costs tokens, and buys a meaning that does not hang on a list. Parse strictly, repair
# nothing, answer with a code and a hint. Charge for invalid actions, or a policy will stammer for
# free. And a policy that has seen one list of tools all its life has had no reason to read it.
#
# **The number to watch**: the share of invalid actions. **Next**: 03, what the reward buys.

# %% tags=["nbval-ignore-output"]
record(
    success_one_more=success["one more"].value,
    success_moved=success["moved"].value,
    success_new_words=success["new words"].value,
    invalid_new_words=invalid["new words"],
)
enough = PROFILE != "smoke"
checks.final(
    {
        "numbers are shorter than names": count(written["id"])
        < count(written["function"]),
        "A and C are calls, the others are not": good == ["A", "C"],
        "only shaped charges for invalid actions": charged == ["shaped"],
        "moved arguments do not hurt names": not enough or success["moved"].low > 0.8,
        "new words do": not enough or success["new words"].high < 0.2,
        "one more tool changed the meaning of a number": shifted,
        "thirty recorded runs": len(ROWS) == 30,
    },
    panels=[playground, watched],
)
