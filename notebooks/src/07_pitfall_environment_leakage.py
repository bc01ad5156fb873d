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
# # 07 · Pitfall: environment leakage
#
# **Near perfect at its own desk, and not at another one. What did the environment tell, and which
# test finds it?**
#
# *You will learn* to tell a policy that solves the task from one that reads the answer; why the
# obvious test passes on exactly the policy that it should catch; to test field by field; to look
# for leaks in an environment before any training; to close them for good.
#
# *Before this*: 00 (the desk), 05 (a training run). *Runtime*: about 1 minute on 2 CPU cores.
#
# ```
#   call ──► desk ──► answer ──► policy ──► call
#                   (you are here)
# ```

# %% tags=["parameters"]
SEED: int = 0  # of the live run
PROFILE: str = "fast"  # smoke, fast or full: how long the live run is
STRICT: bool = False  # True: an unsolved or wrong exercise stops the notebook

# %%
import json
import random

from agentrl_lab.learner.experiments import averaged, compared, read_results
from agentrl_lab.learner.monitors import judged
from agentrl_lab.workbook import plots, widgets
from agentrl_lab.workbook.lessons import checks_leaking as checks
from agentrl_lab.workbook.lessons import leaking
from agentrl_lab.workbook.lessons.pitfall_pictures import bug_hunt
from agentrl_lab.workbook.lessons.studied import told, verdict
from agentrl_lab.workbook.live import LiveRun
from agentrl_lab.workbook.pitfalls import BROKEN, CLEAN, LEAKAGE
from agentrl_lab.workbook.recording import record
from agentrl_lab.world.habits import query
from agentrl_lab.world.leaks import Sighting, sightings_of_canary, tells

EPISODES, TASKS = {"smoke": (64, 20), "fast": (448, 100), "full": (512, 200)}[PROFILE]
study = read_results(LEAKAGE.name)
ROWS = study["rows"]
print(f"profile {PROFILE}: a live run of {EPISODES} episodes, seed {SEED}")

# %% [markdown]
# ## 1 · Symptom: which one would you ship?
#
# Two runs, the same tasks, the same reward, two desks that are not quite alike. Both are a little
# harder than before: a ticket shows two amounts, what is *due* and what was *paid*, and it may be
# closed if at least what is due was paid. Greedy success on the validation set:

# %% tags=["nbval-ignore-output"]
SUCCESS = {"validation_success": "validation success (share)"}
widgets.show(bug_hunt(ROWS, 0, SUCCESS, {}, reveal=False))
ship = widgets.Prediction(
    "Both now work at A's desk. Which one solves more, over ten seeds?",
    ["A", "B", "about the same"],
)
ship

# %% tags=["nbval-ignore-output"]
views = leaking.by_view(ROWS, [CLEAN, BROKEN], ["own", "without"])
ahead = compared(ROWS, CLEAN, BROKEN, leaking.success_in("without"))
better = "A" if ahead.mean > 0 else "B"
print(ship.reveal(better if ahead.p < 0.05 else "about the same"))
widgets.show(plots.ranges(views, "share of 100 test tasks, mean of ten seeds"))

# %% [markdown]
# *own* is the desk that a policy was trained at; *without* is A's desk for both. B solves 0.99 at
# home, and 0.72 at A's desk. A, whose desk it is, solves 0.79. (Intervals here are over seeds, on
# one set of 100 tasks. For other tasks add about 0.08 to either side.) **B's lead is not in B.** It
# is in something that B's desk shows and A's does not.
#
# Where does A fail? 21 of the 100 tasks ask to close a ticket on which too little was paid, and 21
# are what A misses, on every seed. It has not learned to compare the two amounts. B solves these at
# home.
#
# ## 2 · Reproduce: look at what it was told
#
# A tool answer of A's desk, and one of B's, shown a little longer than the policies see them:

# %% tags=["nbval-check-output"]
for settings in ({}, {"debug_field": "always"}):
    env = leaking.desk(payment="amounts", **settings)
    env.reset(options={"index": 0})
    print(env.step(env.codec.render(query(env.task)))[0].splitlines()[0])

# %% [markdown]
# `expected_action` is a debug field: somebody built it to test the desk, and forgot it. It holds
# the right next action. Half of the demonstrations that B began with had it, and so had every
# answer in B's training. That is **environment leakage**: the answer travels with the question.
#
# The same, live and a little shorter. The policy starts where B started. Leave the settings as they
# are at first: the text below speaks of them.

# %% tags=["long", "nbval-ignore-output"]
settings = {**LEAKAGE.common, **LEAKAGE.broken, "episodes": EPISODES}
run = LiveRun(settings | {"seed": SEED})
run.watch()

# %% tags=["nbval-ignore-output"]
widgets.show(run.picture())

# %% [markdown]
# Now look at it through five views. The first two are those from above, *own* and *without*. In the
# other three a part of each answer is swapped for that of another ticket, one that asks for another
# reply: all but the ticket's number (*everything*), what a policy is meant to decide by
# (*declared*: status, due, paid), or the rest (*undeclared*: the debug field, the channel, the
# history and more). The desk still judges by what is true of the ticket.

# %% tags=["nbval-ignore-output"]
falls = widgets.Prediction(
    "Which swap costs this policy more?",
    ["declared", "undeclared", "about the same"],
)
falls

# %% tags=["nbval-ignore-output"]
policy = run.last_policy()
seen = leaking.looked_at(policy, run.config.env, TASKS)
gap = seen["declared"].success.value - seen["undeclared"].success.value
more = "undeclared" if gap > 0 else "declared"
print(falls.reveal(more if abs(gap) > 0.05 else "about the same"))
widgets.show(
    plots.ranges(
        {"success": {view: found.success for view, found in seen.items()}},
        "share of test tasks, the policy of the live run",
    )
)
unpaid = {view: found.by_kind["close_unpaid"].value for view, found in seen.items()}
print(f"too little paid: own {unpaid['own']:.2f}, without {unpaid['without']:.2f}")

# %% [markdown]
# Most seeds give figures like these. On average over ten recorded runs: own 0.99, without 0.72,
# undeclared 0.47, declared 0.58, everything 0.19. Now and then *without* is far lower: one run of
# ten ends at 0.37. A's policy keeps its 0.79 under *undeclared*; this one loses half.
#
# One word of care. At A's desk *undeclared* swaps hardly anything but the channel (mail, phone,
# chat): the rest is cut off, or the same for every ticket.
#
# ## 3 · Diagnose: the test that passes, and the test that finds it
#
# The chapter's test swaps everything: "if the answers are tampered with, success must fall" (H6).
# So it does, for A's policy and for B's alike: **the leak travels inside the answer**. The test
# passes on exactly the policy that it should catch. Swapping a part of the fields can tell them
# apart, and swapping one says which it is.
#
# **Exercise 7.1 · one field at a time** (about 10 min). `swap(answers, field, rng)` returns the
# answers with one field's values shuffled among them, and everything else as it was.


# %% tags=["exercise"]
def swap(answers, field, rng):
    raise NotImplementedError("Exercise 7.1: one field's values in another order")


# %% tags=["nbval-ignore-output"]
checks.report(checks.check_swap, swap, strict=STRICT)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Collect the values of that field, shuffle the list with `rng.shuffle`, and build new dictionaries.
#
# </details>


# %% tags=["solution"]
def swap(answers, field, rng):
    values = [answer[field] for answer in answers]
    rng.shuffle(values)
    pairs = zip(answers, values, strict=True)
    return [answer | {field: value} for answer, value in pairs]


# %% [markdown]
# The same with the live policy at its desk, one field or one pair at a time. And how such a policy
# fails says even more. Where the swapped field names a wrong action, is that the first update or
# reply after the query? That share is the **follow rate**. Does it ever claim a change that no tool
# has made (**fabrication**, in our metrics)? The chapter calls that "claims before results", and
# takes it for a sign of this pitfall.

# %% tags=["nbval-ignore-output"]
fields = {"status": "status", "due, paid": "payment", "debug field": "debug"}
tampered = {name: {"tamper": part} for name, part in fields.items()}
single = leaking.looked_at(policy, run.config.env, TASKS, {"nothing": {}} | tampered)
widgets.show(
    plots.ranges(
        {"success": {name: found.success for name, found in single.items()}},
        "share of test tasks, by what was swapped",
    )
)
if obeys := single["debug field"].followed:
    print(f"follow rate {obeys.value:.2f} of {obeys.n} ", end="")
    print(f"(95%: {obeys.low:.2f} to {obeys.high:.2f})")
print(f"claims without the field: {seen['without'].fabrication.value:.2f}")

# %% [markdown]
# The debug field alone costs this policy all that *undeclared* cost. It does look at the status.
# The two amounts can be swapped at will: it hardly reads them. And it obeys a lying field in about
# half of the cases. That is where the field alone lies; where the status lies as well, recorded
# runs obey in 0.99.
#
# ## 4 · Ten seeds, and the rule that was written first
#
# F2 is the chapter's story of this field. H6 is the objection that its test, which swaps
# everything, cannot see the leak. The arms: **clean** is A, **broken** is B, **rl_alone** has the
# field in RL and not in the demonstrations. **removed** and **half** are for section 6.

# %% tags=["nbval-check-output"]
print(study["question"])
print(study["rule"].replace(". ", ".\n"))

# %% tags=["nbval-ignore-output"]
arms_panel = widgets.explore(
    lambda arm: plots.ranges(
        leaking.by_view(ROWS, list(dict.fromkeys([CLEAN, arm])), list(leaking.VIEWS)),
        "share of test tasks, after training",
    ),
    arm=[BROKEN, "rl_alone"],
)
arms_panel


# %% tags=["nbval-check-output"]
def claims(row):
    return row["elsewhere"]["without"]["fabrication"]


for arm in (BROKEN, "rl_alone"):
    lost = averaged(ROWS, arm, leaking.lost_in("without"))
    told(f"{arm}, success lost without the field", lost)
    print("  F2:", verdict(lost.low > 0.1, lost.high < 0.1))

whole = averaged(ROWS, BROKEN, leaking.lost_in("everything"))
apart = averaged(ROWS, BROKEN, leaking.lost_in("undeclared"))
calm = averaged(ROWS, CLEAN, leaking.lost_in("undeclared"))
told("broken, success lost when everything is swapped", whole)
told("clean, the same", averaged(ROWS, CLEAN, leaking.lost_in("everything")))
told("broken, when only what is not declared is swapped", apart)
told("clean, the same", calm)
told_apart = min(whole.low, apart.low) > 0.2 and calm.high < 0.1
print("  H6:", verdict(told_apart, apart.high < 0.1))
obeyed = averaged(ROWS, BROKEN, lambda r: r["elsewhere"]["undeclared"]["followed"])
told("broken, first decisions that obey a swapped field", obeyed)

early = compared(ROWS, BROKEN, CLEAN, claims)
print(
    f"claims before results, without the field, minus clean: {early.mean:+.3f} ", end=""
)
print(f"(95%: {early.low:+.3f} to {early.high:+.3f})")
print(f"  the sign of F2: above 0 {early.low > 0}, below 0.05 {early.high < 0.05}")
told("rl_alone, the same", compared(ROWS, "rl_alone", CLEAN, claims))
for view in ("own", "without", "undeclared"):
    told(f"rl_alone, {view}", averaged(ROWS, "rl_alone", leaking.success_in(view)))

# %% [markdown]
# - **F2 is confirmed for broken**: at its own desk it solves 0.27 more than without the field (0.19
#   to 0.35). It is refuted for **rl_alone**: no demonstration had the field, and this run does not
#   profit from it. It ends at 0.57, and solves *more* without the field, 0.68. It is not blind to
#   it: swapping the undeclared costs another 0.17.
# - **H6 is confirmed**: swapping everything costs broken 0.80 and clean 0.41. Both fall; as a test
#   to pass or fail, it cannot tell them apart. Swapping the undeclared costs broken 0.51, clean
#   0.00.
# - **follow rate** 0.52: where the field alone lies, half of the first decisions obey it.
# - **Claims before results**, the chapter's sign: our rule says confirmed (above 0) and refuted
#   (below 0.05) at once, and the rule is at fault. The figure is 0.006 (0.001 to 0.011): half an
#   episode in a hundred, too little to be seen in one run. In rl_alone, without the field, it is
#   one in ten, and that run gains nothing from the field.
#
# What does the leak cost? At A's desk broken solves less than clean on every seed: 0.03 to 0.05
# less on nine, 0.42 on one. But **removed** (section 6) is 0.04 below clean as well, and never met
# the field in RL. So most of that is the warm start. The leak took little from B, but for one run
# in ten. **It took the meaning from B's figures**: 0.99 belonged to the desk.
#
# <details><summary>Settings that were tried before</summary>
#
# Other seeds, one run each, not recorded: a warm start from the habits of tiny-base (notebook 05),
# where most demonstrations are wrong, ends at 0.80 at its own desk, 0.73 without, 0.63 with the
# undeclared swapped. The effect is there and smaller.
#
# </details>
#
# ## 5 · Diagnose before you train: what does an environment give away?
#
# A policy is a slow way to find a leak. `world/leaks.py` looks at the environment itself: from what
# a policy was shown before its decision, and the right answer, it names the single features, of
# those that it knows, that tell much of the answer: a *tell*. What a policy is meant to decide by
# is declared, and left out.
#
# Four more desks, W to Z. Three of them leak, and none by a field called `expected_action`.

# %% tags=["nbval-ignore-output"]
guess = widgets.Prediction(
    "What leaks at desk W?",
    [leak for *_, leak in leaking.DESKS.values()],
)
guess

# %% tags=["nbval-ignore-output"]
print(guess.reveal(leaking.DESKS["W"][2]))
desks = widgets.explore(leaking.tells_picture, desk=list(leaking.DESKS))
desks

# %% [markdown]
# - **W**: no text gives anything away. The *list* does: tasks of one kind come one after the other,
#   so the last task's answer is mostly this one's too. It leaks only if somebody shows or remembers
#   the order.
# - **X**: the hint after an invalid action is worded differently where a change is needed. That is
#   half an answer: 0.54 right, where frequency alone gives 0.33.
# - **Y** is clean, and nothing is found. A detector that always finds something is useless.
# - **Z**: tickets that must not be closed have a longer history. Several names, one cause: whatever
#   depends on how long the history is.
#
# **A canary** asks another question: does what the environment must not show come through
# *anywhere*: plain, backwards, in hexadecimal or base64? Put a word that occurs nowhere else where
# the right answer is kept, play an episode, and search all that was shown for it.

# %% tags=["nbval-check-output"]
CANARY = "canary-7731"
for often in ("never", "always"):
    shown = leaking.shown_with_canary(CANARY, debug_field=often)
    print(f"debug field {often}: {sightings_of_canary(CANARY, shown) or 'nothing'}")

# %% [markdown]
# **Your own environment.** Change the one below, or put yours in its place: anything with a text
# that is shown and an answer that is right. As delivered it leaks. Where?


# %%
class Warehouse:
    """A parcel is to be sent, kept or returned. Paid and in stock: sent."""

    def __init__(self, number):
        rng = random.Random(number)
        self.paid, self.stock = rng.random() < 0.6, rng.randrange(4)
        self.answer = "send" if self.paid and self.stock else "keep"
        if not self.paid and not self.stock:
            self.answer = "return"

    def texts(self):
        note = {"send": "ok", "keep": "see file", "return": "see file"}[self.answer]
        shown = {"paid": self.paid, "stock": self.stock, "note": note}
        return (json.dumps(shown),)


# %% tags=["nbval-check-output"]
parcels = [Warehouse(number) for number in range(240)]
sightings = [Sighting(parcel.texts(), parcel.answer) for parcel in parcels]
warehouse = tells(sightings, declared=["paid", "stock"])
print(len(warehouse), "tells")
for tell in warehouse[:3]:
    print(f"{tell.feature:<12} guesses {tell.accuracy:.2f}, ", end="")
    print(f"by frequency {tell.baseline:.2f}")

# %% [markdown]
# The note is "ok" for parcels to be sent, and "see file" for all others. Its length and the blank
# in it tell as much.  Mend the note, and run both cells again.
#
# ## 6 · Cure
#
# - **removed**: the field is gone from the desk; the demonstrations had it;
# - **half**: the field is in half of the tasks, so that the policy must do without it, too.
#
# Both go on from the policy that broken begins with.

# %% tags=["nbval-ignore-output"]
flagged = widgets.Prediction(
    "In how many of the ten runs of half does the alarm fire?",
    ["none", "one to three", "four to eight", "nine or ten"],
)
flagged

# %% tags=["nbval-check-output"]
reference = averaged(ROWS, CLEAN, leaking.success_in("without")).mean
for arm in (BROKEN, *LEAKAGE.cures):
    kept = averaged(ROWS, arm, leaking.success_in("without"))
    told(f"{arm}, success without the field", kept)
    told(
        "  lost, undeclared swapped", averaged(ROWS, arm, leaking.lost_in("undeclared"))
    )
    if arm in LEAKAGE.cures:
        print("  works" if kept.mean >= 0.9 * reference else "  fails")

# %% tags=["nbval-check-output"]
monitor = LEAKAGE.alarm()
logs = {
    arm: [LEAKAGE.log(row) for row in ROWS if row["arm"] == arm]
    for arm in study["arms"]
}
judged_on = judged(monitor, logs[CLEAN] + logs["removed"], logs[BROKEN], [None] * 10)
print(f"alarm: more than {monitor.line:.2f} lost when the undeclared is swapped")
print(f"{judged_on.hits} of {judged_on.broken} broken runs caught")
print(f"{judged_on.false_alarms} of {judged_on.healthy} clean and removed runs flagged")
print("the alarm holds:", verdict(judged_on.holds, not judged_on.holds))

# %% tags=["nbval-ignore-output"]
fired = sum(monitor.alarm(log) is not None for log in logs["half"])
words = {0: "none", 3: "one to three", 8: "four to eight", 10: "nine or ten"}
print(flagged.reveal(next(word for most, word in words.items() if fired <= most)))
lost = {
    arm: averaged(ROWS, arm, leaking.lost_in("undeclared"))
    for arm in (BROKEN, *LEAKAGE.cures)
}
widgets.show(
    plots.ranges({"lost": lost}, "share of test tasks lost, undeclared swapped")
)
print(f"{fired} of 10 runs of half flagged")

# %% [markdown]
# By the rule both cures work. But look at **broken**, printed with them: 0.72 is more than nine
# tenths of 0.79, so by that measure the mistake would be its own cure. Our rule asked the wrong
# question. The number to watch gives a better answer: **half** loses 0.28, and the alarm fires in
# nine of its ten runs. It still goes by the field where it is there. Remove the field.
#
# By its rule the alarm holds. But at the desks of clean and removed there is hardly anything
# undeclared to swap. It was not tried on a policy that sees such a field and ignores it; and
# whether **removed** would still obey the field was not looked at.
#
# **Exercise 7.2 · close it for good** (about 5 min). `only_declared(answer, declared)` lets through
# what is declared, and nothing else.


# %% tags=["exercise"]
def only_declared(answer, declared):
    raise NotImplementedError("Exercise 7.2: what is declared, and nothing else")


# %% tags=["nbval-ignore-output"]
checks.report(checks.check_only_declared, only_declared, strict=STRICT)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Do not name what must not pass: nobody knows what the next debug field will be called.
#
# </details>


# %% tags=["solution"]
def only_declared(answer, declared):
    return {name: value for name, value in answer.items() if name in declared}


# %% [markdown]
# ## What to take along
#
# - A policy leans on an answer that stands in the observation if its start can read it already
#   (broken), and not merely because it is there (rl_alone).
# - A test that swaps everything cannot tell reading from cheating. Swap by field: first all that
#   nobody should decide by, then one at a time.
# - A leak need not be a field. Order, length, wording of errors: search for what tells the answer,
#   before any training.
# - Let through what is declared, and nothing else.
#
# **The number to watch**: success lost when only the undeclared fields are swapped. **Next**: 08, a
# policy that climbs and falls.

# %% tags=["nbval-ignore-output"]
record(
    live_own=seen["own"].success.value,
    live_without=seen["without"].success.value,
    live_undeclared=seen["undeclared"].success.value,
)
as_given = run.result is not None and run.config.env.debug_field == "always"
as_given = as_given and PROFILE != "smoke"
checks.final(
    {
        "fifty recorded runs": len(ROWS) == 50,
        "the run went to its end, or you stopped it": run.ended,
        "the field is found by its canary": bool(sightings_of_canary(CANARY, shown)),
        "the live policy leans on the field": not as_given
        or seen["own"].success.value - seen["undeclared"].success.value > monitor.line,
    },
    panels=[arms_panel, desks],
)
