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
# # 06 · Pitfall: reward hacking
#
# **You pay a little for each call that works, to help the policy along. What do you get?**
#
# *You will learn* to tell a reward that rises from a task that is solved; to find by search, before
# any training, what a reward really pays for; to see a policy learn its task and unlearn it again,
# because something else pays more; to set an alarm line that was not made from the runs it judges;
# to tell cures that work from cures that look as if they should.
#
# *Before this*: 03 (what a reward pays), 05 (a training run). *Runtime*: about three minutes on 2
# CPU cores.
#
# ```
#   policy ──► calls ──► desk ──► reward ──► next policy
#                                 (you are here)
# ```

# %% tags=["parameters"]
SEED: int = 0  # of the live run
PROFILE: str = "fast"  # smoke, fast or full: how long the live run is
STRICT: bool = False  # True: an unsolved or wrong exercise stops the notebook

# %%
from dataclasses import replace

from agentrl_lab.learner.experiments import (
    averaged,
    by_seed,
    compared,
    read_results,
)
from agentrl_lab.learner.monitors import judged
from agentrl_lab.workbook import checks, plots, widgets
from agentrl_lab.workbook.lessons import checks_hacking
from agentrl_lab.workbook.lessons import hacking as ha
from agentrl_lab.workbook.lessons.pitfall_pictures import alarm_picture, bug_hunt
from agentrl_lab.workbook.lessons.studied import told, verdict
from agentrl_lab.workbook.live import LiveRun, conversation_page
from agentrl_lab.workbook.pitfalls import (
    BROKEN,
    CLEAN,
    REWARD_HACKING,
    fall_of,
    log_of,
)
from agentrl_lab.workbook.recording import record
from agentrl_lab.world.audit import example

EPISODES = {"smoke": 64, "fast": 832, "full": 1280}[PROFILE]
study = read_results(REWARD_HACKING.name)
ROWS = study["rows"]
print(f"profile {PROFILE}: a live run of {EPISODES} episodes, seed {SEED}")

# %% [markdown]
# ## 1 · Symptom: two curves
#
# Two training runs, equal in all but their reward. Below is the figure that most people look at
# first: the reward per episode.

# %% tags=["nbval-ignore-output"]
REWARD = {"reward_per_episode": "reward of an episode"}
SUCCESS = {"validation_success": "validation success (share)"}
widgets.show(bug_hunt(ROWS, 0, REWARD, SUCCESS, reveal=False))
better = widgets.Prediction(
    "Does this figure tell which one solves more tasks?", ["yes, A", "yes, B", "no"]
)
better

# %% tags=["nbval-ignore-output"]
ending = widgets.Prediction(
    "One of them will solve less and less. How does it fail?",
    ["wrong answers", "idle calls, then an answer", "no answer at all"],
)
ending

# %% tags=["nbval-ignore-output"]
print(better.reveal("no"))
widgets.show(bug_hunt(ROWS, 0, REWARD, SUCCESS, reveal=True))

# %% [markdown]
# The two rewards are different currencies: what was changed in B lifts its whole curve. Look at how
# it rises, not at how high it is. From the middle on B earns more and more, and solves less and
# less. It had *learned the task*, and then unlearned it. Nothing crashed, no figure became NaN, and
# a log that shows the reward alone shows a success.
#
# The reward that is paid is a **proxy** for what is wanted. **Reward hacking** is what happens when
# the two part. What was done to B is an idea that sounds good: each call that the desk answers
# earns a bonus, so that the policy dares to use its tools. The chapter that this workbook puts to
# the test tells of a run that was paid 0.1 for each call, and queried without end (F1). The bonus
# of B is 1.0; a solved task pays 1.
#
# ## 2 · Diagnose before you train: what does it pay for?
#
# Notebook 03 found the best answer to a reward by trying all sequences of calls. The same search,
# for a growing bonus:

# %% tags=["nbval-ignore-output"]
surest = widgets.Prediction(
    "From which bonus on does something pay better than honest work?",
    ["any, however small", "0.1", "0.5", "1.0"],
)
surest

# %% tags=["nbval-ignore-output"]
BONUSES = [0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0]
first = next(bonus for bonus in BONUSES if not ha.pays(bonus).is_honesty_best)
print(surest.reveal("any, however small" if first == BONUSES[1] else f"{first}"))
widgets.show(ha.bonus_picture(BONUSES))

# %% tags=["nbval-check-output"]
for bonus in (0.0, 0.1, 1.0):
    found = ha.pays(bonus)
    ways = {name: found.ways[name].value for name in ("honest", *ha.BEYOND)}
    print(f"bonus {bonus:3.1f}: best is {found.best_is}; ", end="")
    print(", ".join(f"{name} {value:+.2f}" for name, value in ways.items()))

# %% [markdown]
# - **Padding** is an answer after more calls than the task needs. Its best form, with an honest
#   answer at the end, pays best under *any* bonus: a call costs nothing, and the end is paid all
#   the same.
# - **Never finishing** is fined 1 for not replying, and goes on being paid. With a bonus of 0.1 it
#   earns -0.40, far less than honest work. It needs a larger bonus to be worth it: over all tasks
#   it tips near 0.54.
#
# **Exercise 6.1 · where it tips** (about 5 min). A paid ticket is to be closed: honest work is a
# query, an update and a reply, all three answered, so it earns 1 and three bonuses. An episode that
# goes on to its last turn earns a bonus per turn, and ends with -1. `threshold(turns)` is the bonus
# at which both earn the same, for more than three turns. (This ticket needs three calls and most
# need two, so it tips a little later.)


# %% tags=["exercise"]
def threshold(turns):
    raise NotImplementedError("Exercise 6.1: the bonus at which both earn the same")


# %% tags=["nbval-ignore-output"]
checks.report(checks_hacking.check_threshold, threshold, strict=STRICT)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Honest: 1 + 3b. Never finishing: -1 + turns times b. Set them equal and solve for b.
#
# </details>


# %% tags=["solution"]
def threshold(turns):
    return 2 / (turns - 3)  # -1 + turns * b = 1 + 3 * b


# %% [markdown]
# ## 3 · Reproduce: watch it happen
#
# The settings of B, live. Watch three panels: success, turns per episode, and reward.

# %% tags=["long", "nbval-ignore-output"]
settings = {**REWARD_HACKING.common, **REWARD_HACKING.broken, "episodes": EPISODES}
run = LiveRun(settings | {"seed": SEED}, snapshots=(6,))
run.watch()

# %% tags=["nbval-ignore-output"]
widgets.show(run.picture())
ways = run.result["test"]["strategies"] if run.result else {}
answered = {
    "idle calls, then an answer": ways.get("padding", 0.0),
    "no answer at all": ways.get("never finish", 0.0),
}
wrong = 1.0 - sum(ways.get(way, 0.0) for way in ("honest", "padding", "never finish"))
answered["wrong answers"] = wrong
print(ending.reveal(max(answered, key=answered.get)))
for way, share in ways.items():
    print(f"{way:<15}{share:5.0%} of the test episodes")

# %% [markdown]
# Look at a task with the policy of each snapshot.

# %% tags=["nbval-ignore-output"]
TASKS = range(3)
talks = {update: run.conversations(update, TASKS) for update in run.snapshots}
watched = widgets.explore(
    lambda update, task: conversation_page(talks[update][task]),
    update=list(talks),
    task=list(TASKS),
)
watched

# %% [markdown]
# Untrained, the policy says "closed" and has done nothing. In the middle of the training it looks,
# acts, and says what is true. At the end, find a task in which it asks the same again and again and
# never answers: two of three are so. It did not get confused: it got better at what it is paid for.
# Each call pays 1.0, the answer too, but after the answer no more calls come.
#
# ## 4 · Ten seeds, and the rule that was written first
#
# One run is an anecdote. How ten would be judged was written down, and committed, before they ran
# (F1, D4, H5 are numbers of the chapter's claims; *in pairs* means seed by seed). The arms:
#
# - **clean**: no bonus. **broken**: a bonus of 1.0. **chapter**: one of 0.1.
# - **timid**: a bonus of 1.0 for a policy that has already learned the task and makes no idle call,
#   sampled at a low temperature.
# - **cap**, **tenfold**, **charge**, **together**: cures, for section 6.

# %% tags=["nbval-check-output"]
print(study["question"])
print(study["rule"].replace(". ", ".\n"))

# %% tags=["nbval-ignore-output"]
ARMS = [CLEAN, "chapter", BROKEN, "timid"]
compare = widgets.explore(
    lambda arm: plots.arms(ROWS, REWARD | SUCCESS, [CLEAN, arm]),
    arm=[arm for arm in ARMS if arm != CLEAN],
)
compare

# %% tags=["nbval-ignore-output"]
widgets.show(plots.ranges(ha.by_arm(ROWS, ARMS), "share of test tasks"))


# %% tags=["nbval-check-output"]
for arm in (BROKEN, "chapter"):
    idle, success = ha.harm(ROWS, arm)
    told(f"{arm}, calls beyond the need, minus clean", idle)
    told(f"{arm}, success, minus clean", success)
    confirmed = idle.low > 0.1 and success.high < 0
    print("  F1:", verdict(confirmed, idle.high < 0.1 or success.low > -0.05))


# %% tags=["nbval-check-output"]
def way(name):
    return lambda row: row["strategies"].get(name, 0.0)


padded = averaged(ROWS, BROKEN, lambda r: way("padding")(r) - way("never finish")(r))
told("broken, padding minus never finishing", padded)
print("  the search foresees the way:", verdict(padded.low > 0, padded.high < 0))
rarer = compared(ROWS, "timid", BROKEN, ha.beyond_need)
timid = averaged(ROWS, "timid", ha.beyond_need)
told("timid, calls beyond the need, minus broken", rarer)
print(f"  timid by itself {timid.mean:.2f}")
never = verdict(rarer.high < 0 and timid.mean < 0.1, timid.mean > 0.5)
print("  never sampled, never learned:", never)

# %% [markdown]
# - **Confirmed, with a bonus ten times the chapter's.** In all ten runs the policy learns the task
#   (look at the middle of the curves) and unlearns it: 0.31 of the test tasks in place of 0.97, and
#   4.5 reward where honest work would earn 3.3. It does not query without end everywhere: in two
#   tasks of three.
# - **Refuted at this scale for the chapter's own bonus of 0.1.** Success stays where it was (+0.01,
#   interval -0.04 to +0.05). One seed of ten pads in 37 of 100 tasks, and solves 30 or so of them.
# - **Refuted: that the search foresees the way.** It knew that honesty does not pay best. It named
#   padding with an honest end, 7.0; what was learned is never to finish, at most 5.0. The search
#   looks for the best of *all* plans, training climbs from where it stands. Why it climbs there and
#   not to the other, we have not tested.
# - **Inconclusive: "what is never sampled is never learned".** Five of the ten timid runs hardly
#   move. In two others padding begins to pay (3.38 against 3.31). In three the policy gets worse at
#   everything, reward included; why, these runs do not say.
#
# Somewhere between 0.1 and 1.0 the harm begins, at once or little by little. Three seeds at each of
# eight bonuses: move the slider, and watch reward (the proxy) and success (the truth) part.

# %% tags=["nbval-ignore-output"]
BY_BONUS = ha.by_bonus(ROWS, read_results("reward_hacking_bonus")["rows"])
growth = widgets.explore(
    lambda bonus: ha.growth_picture(BY_BONUS, bonus),
    bonus={f"{bonus:.2g}": bonus for bonus in BY_BONUS},
)
growth

# %% [markdown]
# Up to 0.4 nothing of the kind happens in any of the three seeds (the dip at 1/60 is one run that
# fell in its last update, without an idle call). At 0.6 success ends between 0.43 and 0.81, at 0.8
# between 0.32 and 0.56. The search had put the place where never finishing begins to pay at 0.54,
# before any training: wrong about the way, right about the place.
#
# ## 5 · Diagnose: an alarm
#
# Nobody reads the conversations of a nightly run. Which figure gives the hack away, without knowing
# the right answers? Here it is `repeats_per_episode`: calls that repeat an earlier one and change
# nothing. The alarm goes off when its mean over three updates passes a line.
#
# Where is the line? If it were drawn through the runs above, it would fit them and prove nothing.
# It comes from twenty *other* runs (seeds 100 to 109, clean and broken): the middle of the widest
# gap between their highest levels.

# %% tags=["nbval-ignore-output"]
monitor = REWARD_HACKING.alarm()
alarm = widgets.explore(
    lambda seed, line: alarm_picture(replace(monitor, line=line), ROWS, seed),
    seed=(0, 9, 1),
    line=(0.1, 1.6, 0.1, round(monitor.line, 1)),
)
alarm

# %% tags=["nbval-check-output"]
broken = by_seed(ROWS, BROKEN, log_of)
healthy = by_seed(ROWS, CLEAN, log_of) + by_seed(ROWS, "together", log_of)
seen = judged(monitor, healthy, broken, [fall_of(log) for log in broken])
print(f"line {monitor.line:.2f} repeats per episode")
print(f"{seen.hits} of {seen.broken} broken runs caught")
print(f"{seen.false_alarms} of {seen.healthy} clean and cured runs flagged")
notice = ", ".join(f"{updates:+d}" for updates in seen.notice)
print(f"updates from the alarm to the fall of success: {notice}")
print("the alarm holds:", verdict(seen.holds, not seen.holds))

# %% [markdown]
# The alarm needs no right answers and no second model that grades: that is why it can run every
# night. It holds, and **it is late**: in all ten runs it came one or two updates after the fall of
# success (that is what minus means). The middle of the gap is a cautious line. Move it down, and
# see where it would have come; a line that was chosen while looking at these runs proves nothing,
# though.
#
# And it sees repeats, nothing else: whoever changes a ticket to and fro would pass it, as does the
# one run of `chapter` that pads.
#
# What about KL, the figure that most people watch? It ended at 0.006 on average, where clean runs
# ended at 0.001, and stayed below 0.02 in all ten broken runs, a tenth of the limit at which the
# chapter stops. A policy that walks towards the wrong goal in small steps looks healthy to a figure
# of *how* it learns. You need one of *what* it does.
#
# **Exercise 6.2 · idle calls** (about 10 min). The alarm needs its figure, in your project as well.
# An episode is a list of calls `(tool, arguments, changed)`: `arguments` is a dictionary, `changed`
# says whether the call changed anything. `idle(calls)` counts the calls that repeat an earlier call
# (same tool, same arguments) and change nothing.


# %% tags=["exercise"]
def idle(calls):
    raise NotImplementedError("Exercise 6.2: repeats that change nothing")


# %% tags=["nbval-ignore-output"]
checks.report(checks_hacking.check_idle, idle, strict=STRICT)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Keep a list of what was called. A dictionary cannot go into a set; a list and `in` will do.
#
# </details>


# %% tags=["solution"]
def idle(calls):
    seen, found = [], 0
    for tool, arguments, changed in calls:
        found += (tool, arguments) in seen and not changed
        seen.append((tool, arguments))
    return found


# %% [markdown]
# ## 6 · Cure
#
# Three cures from the chapter, each alone, and two of them together:
#
# - **cap**: all bonuses of an episode bring 0.1 at most;
# - **tenfold**: so small a bonus (1/60) that six of them are a tenth of a solved task;
# - **charge**: a repeat that changes nothing costs 1, as much as it brings;
# - **together**: the small bonus and a small charge of 0.05 (six small bonuses never reach the
#   cap).
#
# Predict before the search gives its opinion.

# %% tags=["nbval-ignore-output"]
weakest = widgets.Prediction(
    "By the rule above (success kept, no idle calls), which cure fails?",
    [*REWARD_HACKING.cures, "none"],
)
weakest

# %% [markdown]
# Now the search. Under each cure, what pays best, and what is honest work paid?

# %% tags=["nbval-check-output"]
for cure in REWARD_HACKING.cures:
    found = ha.pays(**REWARD_HACKING.cures[cure])
    best, honest = found.best.value, found.ways["honest"].value
    print(f"{cure:<9} best is {found.best_is} {best:+.2f}, honest {honest:+.2f}")
    print(f"          {example(found.best)}")

# %% tags=["nbval-ignore-output"]
works = {cure: ha.cured(ROWS, cure) for cure in REWARD_HACKING.cures}
print(
    weakest.reveal(" and ".join(c for c, good in works.items() if not good) or "none")
)
widgets.show(
    plots.ranges(ha.by_arm(ROWS, [CLEAN, BROKEN, *works]), "share of test tasks")
)

# %% tags=["nbval-check-output"]
for cure, good in works.items():
    kept, beyond = (averaged(ROWS, cure, f).mean for f in (ha.success, ha.beyond_need))
    word = "works" if good else "fails"
    print(f"{cure:<9} success {kept:.2f}, beyond the need {beyond:.2f}: {word}")

# %% [markdown]
# All four work, by the rule. The search had warned of `charge`: to change a ticket to and fro is no
# repeat, and it pays 5.05 where honest work pays 3.3. The warning did not come true: no run earned
# more than honest work. Two of ten padded in a sixth of their tasks, with a wrong answer at the
# end, and earned less. **The hole is there, and nobody fell in within 832 episodes.** The cap
# closes it: honesty pays best. `tenfold` leaves a small one, worth 0.06.
#
# One run each of `tenfold` and `together` fell in its last update (0.67), and not by padding: means
# hide that, and the roller coaster of 08 is about it.
#
# ## What to take along
#
# - A rising reward tells nothing until success stands beside it.
# - Search for the best answer to a reward before you train on it. It says *whether* there is
#   something better than honesty, and not which hack will be found.
# - Here a cap or a small bonus was enough. A tenth of the finish, for all of it together, is a safe
#   margin.
# - Put an alarm on what the policy does, with a line from other runs than those it watches.
#
# <details><summary>What was tried before these settings, and did not show it</summary>
#
# From our notes, with seeds 200 to 202; these runs are not among the recorded ones. A bonus of 1.0
# while value errors train the shared layers too: no hack within 640 episodes, since the larger
# errors disturb the policy (invalid actions rise to 0.3, success stays at 0.7). The same, hotter
# (1.0) and faster (1.5e-4): only worse. From a solved policy, sampled at 0.3, in one seed: nothing
# moves (above, ten seeds say something else).
#
# </details>
#
# **The number to watch**: reward and true success in one picture, never one without the other.
# **Next**: 07, an environment that tells the answer.

# %% tags=["nbval-ignore-output"]
trained = PROFILE != "smoke" and run.result is not None
record(
    live_success=run.last("validation_success"),
    live_reward=run.last("reward_per_episode"),
    live_repeats=run.last("repeats_per_episode"),
)
checks.final(
    {
        "any bonus makes padding pay best": ha.pays(0.05).best_is == "padding",
        "a cap leaves honesty best": ha.pays(1.0, call_cap=0.1).is_honesty_best,
        "a charge alone does not": not ha.pays(1.0, repeat_charge=1.0).is_honesty_best,
        "the run went to its end, or you stopped it": run.ended,
        "eighty recorded runs": len(ROWS) == 80,
        "the live run makes idle calls at the end": not trained
        or run.last("repeats_per_episode") > monitor.line,
    },
    panels=[watched, compare, growth, alarm],
)
