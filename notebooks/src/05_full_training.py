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
# # 05 · Full training
#
# **A transformer learns a method it never had, while you watch every number that tells.**
#
# *You will learn* to follow one cycle of PPO from episodes to update; to read entropy and KL
# together; to guard a run with a validation set and roll it back; to judge a claim over ten seeds
# instead of one lucky run.
#
# *Before this*: 00 (what the task is). 04 opens the update itself. *Runtime*: about two minutes on
# 2 CPU cores; `PROFILE = "full"` trains on two and a half times the episodes.
#
# ```
#   policy ──► 64 episodes ──► rewards ──► advantages ──► 2 epochs of PPO ──► policy
#                                 (you are here: the whole circle)    │
#                       validation set, never trained on ◄────────────┘ keep, or roll back
# ```

# %% tags=["parameters"]
SEED: int = 0  # every random choice below follows from it
PROFILE: str = "fast"  # smoke, fast or full: how long the training is
STRICT: bool = False  # True: an unsolved or wrong exercise stops the notebook
LEARNING_RATE: float = 1e-4  # step size of Adam on the transformer

# %%
import torch

from agentrl_lab.config import SamplingConfig
from agentrl_lab.learner.experiments import episodes_to, paired, read_results
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.records import Split
from agentrl_lab.workbook import checks, plots, widgets
from agentrl_lab.workbook.inspector import inspect_episode
from agentrl_lab.workbook.live import Laboratory, LiveRun, conversation_page
from agentrl_lab.workbook.recording import record
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.tasks import make_task

EPISODES, BATCH = {"smoke": (8, 8), "fast": (768, 64), "full": (1920, 64)}[PROFILE]
SIZES = {"episodes_per_update": BATCH, "minibatch_episodes": BATCH // 2}
SIZES["validation_tasks"] = BATCH
SETTINGS = SIZES | {
    "seed": SEED,
    "episodes": EPISODES,
    "learning_rate": LEARNING_RATE,
    "test_tasks": {"smoke": 4, "fast": 100, "full": 1000}[PROFILE],
}
print(f"profile {PROFILE}: {EPISODES} episodes in updates of {BATCH}")

# %% [markdown]
# ## 1 · One cycle, in words
#
# 1. **Rollout.** The present policy plays 64 episodes. Each action is parsed and executed, its
#    result goes into the prompt of the next; up to `reply`, six turns, or three invalid actions in
#    a row ("three strikes").
# 2. **Score.** Each episode gets its reward from what *happened* at the desk.
# 3. **Update.** Tokens of actions that did better than the critic expected become likelier, the
#    others less likely; twice over the 64 episodes, each step clipped. Then they are thrown away:
#    old results describe a desk that this policy would no longer bring about.
# 4. **Validate.** The new policy plays 64 tasks that no gradient ever sees, greedily.
#
# And round again. A temperature schedule makes the first updates bolder: 1.0 for the first tenth
# of the run, then a straight fall to 0.7.

# %% tags=["nbval-ignore-output"]
guess = widgets.Prediction(
    "After how many episodes will half of the validation tasks succeed?",
    options=["under 150", "150 to 300", "300 to 600", "over 600", "never"],
)
guess

# %% [markdown]
# ## 2 · Watch it learn
#
# This cell trains. The picture is redrawn after each update. The square button in the toolbar
# (interrupt) ends the training after the present update; the notebook then goes on with
# what there is.

# %% tags=["nbval-ignore-output"]
SNAPSHOTS = [2, 4, 6, 8, 10, 15, 20, 25]
run = LiveRun(SETTINGS, snapshots=SNAPSHOTS)
run.watch()

# %% [markdown]
# The picture that stays:

# %% tags=["nbval-ignore-output"]
widgets.show(run.picture())


# %% tags=["nbval-ignore-output"]
def group(episodes):
    limits = (("under 150", 150), ("150 to 300", 300), ("300 to 600", 600))
    return next((name for name, limit in limits if episodes < limit), "over 600")


curve = [(row["episodes"], row["validation_success"]) for row in run.rows] or [(0, 0.0)]
half = next((episodes for episodes, success in curve if success >= 0.5), None)
print(guess.reveal("never" if half is None else group(half)))
best = max(success for _, success in curve)
print(f"untrained {curve[0][1]:.2f}, best {best:.2f}, last {curve[-1][1]:.2f}")

# %% [markdown]
# Read the panels together:
#
# - **Success, two curves.** Blue is greedy on the validation set, orange is sampled in training.
#   Greedy is higher at the end: sampling at 0.7 still takes an unlikely token now and then.
# - **Fabrication.** It falls because it is punished *at the end of the episode*, not because anyone
#   marked the sentence.
# - **Turns.** They hardly move, although the method is another one: an update now stands between
#   query and reply where it is due.
#
# ## 3 · The same task, as training went on
#
# Move back through the snapshots, from the last to the untrained policy at 0. At which update did
# the missing call appear? Then look at the other kinds of tasks.

# %% tags=["nbval-ignore-output"]
TASKS = [2, 0, 1, 3]
kinds = {n: make_task(Split.VALIDATION, 0, n).kind.value for n in TASKS}
told = {update: run.conversations(update, TASKS) for update in run.snapshots}
scrub = widgets.explore(
    lambda update, task: conversation_page(told[update][task]),
    update=run.snapshots[::-1],
    task={f"task {n}: {kinds[n]}": place for place, n in enumerate(TASKS)},
)
scrub

# %% [markdown]
# ## 4 · Entropy and KL, read together
#
# **Entropy** says how undecided the policy is, here in nats for a whole action. **KL** says how far
# one update moved it, in nats per token. Each alone misleads: falling entropy is what learning
# looks like, and it is also what collapse looks like.

# %% tags=["nbval-ignore-output"]
widgets.show(plots.entropy_and_kl(run.rows))

# %% [markdown]
# In a healthy run entropy falls *while success rises*, and goes on falling a little when success
# has reached the top; the KL of an update stays far below 0.2, where this trainer stops one. The
# chapter that this workbook puts to the test (a practitioner's text on agentic RL) tells of an
# alarm: entropy from 1.8 to 0.6, and success falling under 20%. Its policy had settled on one tool
# and "done". Those numbers belong to another model; their unit is not given. So do not copy the
# limit. Copy the question: **is entropy falling while success falls, or stays low?** Notebook 08
# measures which warning comes first.
#
# ## 5 · Token by token
#
# One episode that succeeded and one that failed, sampled from an early snapshot. Blue boxes did
# better than the critic expected, orange ones worse; grey text was not written by the policy and
# carries no gradient.

# %% tags=["nbval-ignore-output"]
early = run.policy_at(run.snapshots[min(2, len(run.snapshots) - 1)])


def make():
    return TicketEnv(
        Split.TRAIN, SEED, run.config.env, count_tokens=early.tokenizer.count
    )


sampled = Collector(early, make, run.config.sampling).collect(
    range(5000, 5032), temperature=1.0, seed=[SEED]
)
good = max(sampled, key=lambda t: t.reward)
bad = min(sampled, key=lambda t: t.reward)
print(f"rewards of the two: {good.reward:+.2f} and {bad.reward:+.2f}")

# %% tags=["nbval-ignore-output"]
inspect_episode(good, early, run.config.ppo, temperature=1.0, episodes=sampled)

# %% tags=["nbval-ignore-output"]
inspect_episode(bad, early, run.config.ppo, temperature=1.0, episodes=sampled)

# %% [markdown]
# All tokens of one action have advantages of one sign or nearly so: the reward came at the end of
# the episode, and the critic of so short a run can hardly tell one decision from the next.
# **Credit is spread, not aimed.** It works all the same because the same decisions recur in
# hundreds of episodes, with and without luck.
#
# Every ratio here is 1 and nothing is clipped, since no update lies between sampling and this
# look; that is also how the first step of every update begins. Where an episode ends with
# `three_strikes`, three actions in a row were invalid.
#
# ## 6 · When an update goes wrong
#
# A validation set pays off when something breaks. Here the weights are sabotaged on purpose after
# the first update: noise on every matrix. Watch the success and the counter of rollbacks.


# %% tags=["nbval-ignore-output"]
def sabotage(trainer, row):
    if row["update"] == 1:
        noise = torch.Generator().manual_seed(SEED)
        with torch.no_grad():
            for weights in trainer.policy.model.parameters():
                weights.add_(0.04 * torch.randn(weights.shape, generator=noise))


small = {"episodes_per_update": 8, "minibatch_episodes": 8, "episodes": 24}
small |= {"validation_tasks": 8, "test_tasks": 4, "policy": "tiny-trained"}
broken = LiveRun(small, after_update=sabotage).train()
for row in broken.rows:
    print(
        f"update {row['update']}: validation {row['validation_success']:.2f}, "
        f"rollbacks so far {row.get('rollbacks', 0)}, "
        f"learning rate times {row.get('rate_factor', 1.0):g}"
    )
rolled_back = broken.rows[-1]["rollbacks"]

# %% [markdown]
# Update 2 was measured on ruined weights, fell by more than 0.3 from the best, and the guard put
# the best checkpoint back (weights *and* optimizer) with half the learning rate. Update 3 is
# healthy again. Without a validation set the run would have gone on from the ruins.
#
# ## 7 · One run proves nothing
#
# Did the hot start help? The chapter says that it saved about 30% of the steps (its claim E2). Ten
# runs of 1,920 episodes with the schedule and ten with 0.7 all along, in pairs of equal seeds. How
# it would be decided was written down before they ran:

# %% tags=["nbval-check-output"]
study = read_results("temperature_schedule")
print(study["question"])
print(study["rule"])

# %% tags=["nbval-ignore-output"]
widgets.show(
    plots.arms(study["rows"], {"validation_success": "validation success (share)"})
)

# %% tags=["nbval-check-output"]
needed = {
    arm: [episodes_to(row, 0.9) for row in study["rows"] if row["arm"] == arm]
    for arm in ("schedule", "constant")
}
difference = paired(needed["schedule"], needed["constant"])
means = {arm: sum(episodes) / len(episodes) for arm, episodes in needed.items()}
saved = -difference.mean / means["constant"]
for arm, mean in means.items():
    print(f"{arm:<9} {mean:6.0f} episodes to 0.9 on average")
print(f"schedule minus constant: {difference.mean:+.0f} episodes ({saved:+.0%} saved)")
print(f"95% interval {difference.low:+.0f} to {difference.high:+.0f}")
print(f"sign-flip p = {difference.p:.3f}")
tenth = -0.1 * means["constant"]
confirmed = difference.high < 0 and saved >= 0.1
refuted = difference.low > tenth
otherwise = "refuted" if refuted else "inconclusive"
print("verdict:", "confirmed" if confirmed else otherwise)

# %% [markdown]
# By the rule that was written first: **inconclusive at this scale**. The interval still allows a
# saving of a tenth, and a loss of a tenth as well. It does *not* allow the chapter's 30%: with
# this policy and this desk such a saving would have shown. Perhaps because the starting policy
# tries enough at 0.7 already; nobody has measured that here. A claim that does not
# reproduce is a finding too. Write it down, with its interval, and go on.
#
# ## 8 · Your own run
#
# Choose, then press Train. It runs beside the notebook; Stop ends it after the present update.
# Suggestion: predict first, then try a learning rate of 3e-3.

# %% tags=["nbval-ignore-output"]
laboratory = Laboratory(SIZES | {"episodes": 6 * BATCH, "test_tasks": 32})
laboratory

# %% [markdown]
# ## 9 · Exercises
#
# **Exercise 5.1 · the schedule** (about 10 min). `progress` is 0 at the first update and 1 at the
# last. Return the temperature: 1.0 up to progress 0.1, then a straight fall over the next half
# of the run to 0.7, then 0.7.


# %% tags=["exercise"]
def temperature(progress):
    raise NotImplementedError("Exercise 5.1: hot, then cooling, then constant")


# %% tags=["nbval-ignore-output"]
checks.report(checks.check_temperature, temperature, strict=STRICT)


# %% tags=["solution"]
def temperature(progress):
    cooled = min(1.0, max(0.0, (progress - 0.1) / 0.5))
    return 1.0 + cooled * (0.7 - 1.0)


# %% [markdown]
# **Exercise 5.2 · the guard** (about 10 min). `history` holds the validation success after each
# update so far, `drop` the fall that is allowed. Return the number of the update to go back to
# (0 is the first), or None when nothing is wrong. Of equally good updates take the newest.


# %% tags=["exercise"]
def go_back_to(history, drop):
    raise NotImplementedError("Exercise 5.2: compare with the best, not with the last")


# %% tags=["nbval-ignore-output"]
checks.report(checks.check_rollback, go_back_to, strict=STRICT)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Two small steps down can be a fall as well. What do you compare the newest success with?
#
# </details>


# %% tags=["solution"]
def go_back_to(history, drop):
    best = max(history)
    if history[-1] >= best - drop:
        return None
    return max(update for update, success in enumerate(history) if success == best)


# %% [markdown]
# ## What to take along
#
# PPO turned a number at the end of each episode into a method, in minutes, on a laptop. Entropy
# and KL are read together with success, never alone. A validation set that no gradient sees is the
# one thing that can tell a bad update from a good one while there is still something to go back to.
#
# **The number to watch**: validation success. **Next**: 06, what happens when the reward
# can be had without the work.

# %% tags=["nbval-ignore-output"]
reached = next((e for e, s in curve if s >= 0.9), EPISODES + BATCH)
record(
    validation_success=run.last("validation_success"),
    best_validation=best,
    sampled_success=run.last("success_rate"),
    fabrication=run.last("fabrication_rate"),
    entropy_per_decision=run.last("entropy_per_decision"),
    kl_largest=max((row["kl_old_max"] for row in run.rows[1:]), default=0.0),
    episodes_to_90=reached,
    rollbacks=run.last("rollbacks"),
)
trained = PROFILE != "smoke" and run.result is not None
checks.final(
    {
        "the run went to its end, or you stopped it": run.ended,
        "success rose by at least 0.4": not trained or best >= curve[0][1] + 0.4,
        "the sabotage was rolled back": rolled_back >= 1,
        "and the run recovered": broken.rows[-1]["validation_success"] >= 0.7,
        "the schedule ends at 0.7": SamplingConfig().temperature_at(1.0) == 0.7,
    },
    panels=[scrub],
)
