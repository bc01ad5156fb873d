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
# # 00 · Be the policy
#
# **You take the place of the language model, meet its task, and see why fluent words are not
# enough.**
#
# *You will learn* to read an agent's task as observations, actions and rewards; to tell a method
# from a habit; to spot a claim of something that never happened; to say when reinforcement
# learning is worth its price.
#
# *Before this*: nothing. *Runtime*: about half a minute on 2 CPU cores, plus the time you play.
#
# ```
#   request ──► YOU, the policy ──► action (text) ──► ticket desk
#                    ▲                                    │
#                    └──── observation, reward ◄──────────┘
# ```
#
# Run a cell with Shift + Enter. Nothing here needs a network.

# %% tags=["parameters"]
SEED: int = 0  # every random choice below follows from it
PROFILE: str = "fast"  # smoke, fast or full: how much is played
STRICT: bool = False  # True: an unsolved or wrong exercise stops the notebook

# %%
from agentrl_lab.config import EnvConfig, SamplingConfig
from agentrl_lab.learner.evaluation import evaluate
from agentrl_lab.learner.policy import load_policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.records import Split
from agentrl_lab.workbook import checks, widgets
from agentrl_lab.workbook.conversations import converse
from agentrl_lab.workbook.desk_panel import DeskPanel
from agentrl_lab.workbook.live import conversation_page
from agentrl_lab.workbook.recording import record
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.tasks import make_task

TASKS = {"smoke": 32, "fast": 200, "full": 1000}[PROFILE]
before = load_policy("tiny-base")
after = load_policy("tiny-trained")
print(f"profile {PROFILE}: {TASKS} tasks are played by each policy further down")

# %% [markdown]
# ## 1 · What does the agent see?
#
# A customer writes. The agent may use three tools: `query_ticket` looks a ticket up,
# `update_ticket` sets its status, `reply` answers the customer and ends the task. The rule of the
# desk: close a ticket only if that is asked for, it is not closed yet, and it is paid.
#
# Five kinds of tasks hide behind very similar words. Here is one request of each kind.

# %% tags=["nbval-check-output"]
shown = {}
for index in range(40):
    task = make_task(Split.TRAIN, 0, index)
    shown.setdefault(task.kind, task)
for kind, task in sorted(shown.items()):
    print(f"{kind.value:<15} {task.request}")

# %% [markdown]
# Read the first four again: *nothing in the words* tells them apart. Whether the ticket is paid,
# already closed, or not there at all, only the desk knows. That is what makes this a task of
# several decisions: **what is right depends on what a tool answers.**
#
# ## 2 · Your turn
#
# Choose a tool, fill in its arguments, make the call. The picture shows what each turn earned.
# Work through as many of the ten tasks as you like (the first five are one of each kind); at the
# end of each one you are told how it was scored. (With the keyboard: Tab moves on, Space presses
# a button.)
#
# How a reply is read: "S1234 is closed" counts as "I have closed it". For the rest say "the status
# of S1234 is closed", "it was already closed", "it is unpaid", "there is no such ticket".

# %% tags=["nbval-ignore-output"]
one_of_each = [task.index for task in shown.values()]
more = list(range(40 + SEED, 45 + SEED))
desk = DeskPanel(lambda: TicketEnv("train", 0, EnvConfig()), tasks=one_of_each + more)
desk

# %% [markdown]
# The same without a mouse: the first call of one task, and what the desk answers.

# %% tags=["nbval-ignore-output"]
env = TicketEnv("train", 0, EnvConfig())
env.reset(options={"index": 0})
print("customer:", env.messages[-1].content)
ticket = env.task.ticket_id
observation, reward, *_ = env.step(
    f'<function=query_ticket>{{"ticket_id": "{ticket}"}}</function>'
)
print("desk:    ", observation)
print("reward:  ", reward)

# %% [markdown]
# Three things to notice:
#
# - The **action is text**: a tool's name and its arguments, written out. Nobody hands the policy a
#   list of buttons. A new tool needs no new policy.
# - The **answer is cut**: the real ticket is ten times as long. What matters comes first, the names
#   of the rest stay. Notebook 01 is about that.
# - The **reward is late**: looking the ticket up earned nothing by itself. Only the end tells
#   whether it was right, and all decisions before share in it. Notebook 03 is about that.
#
# ## 3 · A fluent agent without a method
#
# `tiny-base` is a small language model that was trained to imitate conversations at this desk.
# Most of those it saw were bad ones. It writes flawless calls. Let it do five tasks, taking the
# likeliest word each time.

# %% tags=["nbval-ignore-output"]
question = "How many of five tasks will the fluent agent get right?"
guess = widgets.Prediction(question, options=[0, 1, 2, 3, 4, 5])
guess

# %% tags=["nbval-ignore-output"]
FIVE = [0, 1, 2, 3, 4]


def play(policy):
    return converse(policy, FIVE, EnvConfig(), SamplingConfig(), Split.VALIDATION)


played = play(before)
right = sum(c.trajectory.outcome.success for c in played)
lies = sum(c.trajectory.outcome.fabricated for c in played)
print(guess.reveal(right))
print(f"{lies} of 5 replies claim a change that did not happen")

# %% [markdown]
# Look at the conversations one by one. What does it do with the answer of the desk?

# %% tags=["nbval-ignore-output"]
watched = widgets.explore(
    lambda task: conversation_page(played[task]), task={f"task {n}": n for n in FIVE}
)
watched

# %% [markdown]
# It looks the ticket up, as a careful agent would. Then, in most cases, it writes *"Ticket
# ... is closed."* whatever the desk said, and has closed nothing. That is a **fabrication**.
# It is not a slip of grammar, so no amount of better grammar cures it. The agent knows *how* to
# call a tool. It does not know *when*.
#
# Is that only five tasks? Here are many, with a 95% interval.


# %% tags=["nbval-ignore-output"]
def measure(policy):
    def make():
        return TicketEnv("validation", count_tokens=policy.tokenizer.count)

    seen = evaluate(Collector(policy, make, SamplingConfig()), range(TASKS))
    for name, share in (("right", seen.success), ("fabricated", seen.fabrication)):
        print(
            f"{name:<11} {share.value:.2f}   (95%: {share.low:.2f} to {share.high:.2f})"
        )
    return seen


base = measure(before)

# %% [markdown]
# ## 4 · The same model after training
#
# `tiny-trained` has the same size and started from the same weights. It then played 1,920
# episodes, and PPO raised the probability of what it had written on episodes that ended well.
# No demonstration was shown to it.

# %% tags=["nbval-ignore-output"]
question = "And how many of the same five tasks will the trained agent get right?"
second_guess = widgets.Prediction(question, options=[0, 1, 2, 3, 4, 5])
second_guess

# %% tags=["nbval-ignore-output"]
replayed = play(after)
print(second_guess.reveal(sum(c.trajectory.outcome.success for c in replayed)))
compared = widgets.explore(
    lambda task, policy: conversation_page(policy[task]),
    task={f"task {n}": n for n in FIVE},
    policy={"after": replayed, "before": played},
)
compared

# %% tags=["nbval-ignore-output"]
trained = measure(after)
record(
    base_success=base.success.value,
    base_fabrication=base.fabrication.value,
    trained_success=trained.success.value,
    trained_fabrication=trained.fabrication.value,
)

# %% [markdown]
# The sentences are the same as before. What changed is *when* they are said: after an update that
# was accepted, or not at all.
#
# Why could imitation not do this? It scores each token by itself: "is this what a
# demonstration would say next?" The claim "is closed" scores well there, since demonstrations say
# it. Whether it was true is decided by the **whole** episode, and only a
# score for the whole episode can teach it. Classic reinforcement learning would want a list of all
# possible actions; an agent's action is free text. PPO needs no list. It needs texts that were
# written, their probabilities, and how it ended.
#
# ## 5 · Exercises
#
# **Exercise 0.1 · an agent in plain Python** (about 15 min). Write the method down.
# `agent` gets all messages so far and returns the text of an action, such as
# `<function=query_ticket>{"ticket_id": "S1234"}</function>`; `update_ticket` takes `ticket_id` and
# `new_status`, `reply` takes `content`. A message has a `message.role` (`system`, `user` for the
# customer, `assistant` for the agent, `tool` for the desk) and a `message.content`; the request is
# `messages[1].content`. What it asks for is told by `checks.wants_to_close(request)`.

# %% tags=["exercise"]
import json
import re


def agent(messages):
    raise NotImplementedError("Exercise 0.1: look first, then decide")


# %% tags=["nbval-ignore-output"]
checks.report(checks.check_agent, agent, strict=STRICT)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The last message with role `tool` starts with one line of JSON. If there is none yet, query. If
# it has the field `error`, the ticket does not exist. After an accepted update the last answer is
# `{"result": "accepted"}`.
#
# </details>

# %% tags=["solution"]
import json
import re


def write(tool, **arguments):
    return f"<function={tool}>{json.dumps(arguments)}</function>"


def agent(messages):
    request = messages[1].content
    ticket = re.search(r"S\d{4}", request).group()
    lines = [m.content.split("\n")[0] for m in messages if m.role == "tool"]
    answers = [json.loads(line) for line in lines]
    if not answers:
        return write("query_ticket", ticket_id=ticket)
    if answers[-1].get("result") == "accepted":
        return write("reply", content=f"I have closed {ticket}.")
    seen = answers[0]
    if "error" in seen:
        return write("reply", content=f"There is no ticket {ticket}.")
    if not checks.wants_to_close(request):
        return write("reply", content=f"The status of {ticket} is {seen['status']}.")
    if seen["status"] == "closed":
        return write("reply", content=f"Ticket {ticket} was already closed.")
    if not seen["paid"]:
        return write("reply", content=f"Ticket {ticket} is unpaid.")
    return write("update_ticket", ticket_id=ticket, new_status="closed")


# %% [markdown]
# That is the policy which the transformer has to *find*, from nothing but a number at the end of
# each episode. And here is the honest question: if twenty lines do it, why train? **You should
# not**, for a desk like this one. Where the steps are fixed, the tools few and the states simple,
# rules or a prompt do. Training pays when there are too many cases to write down (the list of
# words breaks at the first customer who puts it in a new way), when the right step depends on the
# whole course, and when you can score the end. Our desk is small so that you can see every part
# of the machine.
#
# **Exercise 0.2 · spot the lie** (about 5 min). `said` is the conclusion of a reply, such as
# `"closed"` (it has been closed now) or `"unpaid"`. `answers` lists (tool, answer) in order, for
# example `("update_ticket", "accepted")`. Is the claim a fabrication?


# %% tags=["exercise"]
def fabricated(said, answers):
    raise NotImplementedError("Exercise 0.2: hold the claim against the answers")


# %% tags=["nbval-ignore-output"]
checks.report(checks.check_fabricated, fabricated, strict=STRICT)


# %% tags=["solution"]
def fabricated(said, answers):
    return said == "closed" and ("update_ticket", "accepted") not in answers


# %% [markdown]
# ## What to take along
#
# An agent's task is a chain of decisions, and the right one depends on what tools answer. A fluent
# model can be wrong in method while every sentence is well formed; count claims against what
# happened, never against how they sound. Use reinforcement learning when the whole course decides
# and rules no longer fit on a page.
#
# **The number to watch**: fabrication. **Next**: 01, what the agent is allowed to see; or go
# to 05 to see the training itself.

# %% tags=["nbval-ignore-output"]
checks.final(
    {
        "before training, less than 35% is right": base.success.value < 0.35,
        "before training, more than 20% is fabricated": base.fabrication.value > 0.2,
        "after training, at least 90% is right": trained.success.value >= 0.9,
        "after training, at most 5% is fabricated": trained.fabrication.value <= 0.05,
        "the trained agent beats the fluent one on the five tasks": right
        < sum(c.trajectory.outcome.success for c in replayed),
    },
    panels=[watched, compared],
)
