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
# # 10 · When, and how
#
# **A program, demonstrations, your own successes, or RL: which one, at about the same price? And
# when should you do none of this?**
#
# *You will learn* to compare ways of learning by what they cost; what each needs, and where it
# stops; what temperature does to a finished policy; the careful path from a program to RL; to judge
# blindly, and to ask whether a reward judges like you.
#
# *Before this*: 05 (a training run); 06 to 09 help. *Runtime*: about 1 minute on 2 CPU cores.
#
# ```
#   program ──► prompt ──► demonstrations ──► own successes ──► RL ──► blind review ──► users
#                            (you are here: all of it)
# ```

# %% tags=["parameters"]
SEED: int = 0  # of the live run
PROFILE: str = "fast"  # smoke, fast or full: how long the live run is
STRICT: bool = False  # True: an unsolved or wrong exercise stops the notebook

# %%
from pathlib import Path

from agentrl_lab.learner.experiments import averaged, compared, read_results
from agentrl_lab.records import Split
from agentrl_lab.workbook import plots, widgets
from agentrl_lab.workbook.lessons import checks_ways as checks
from agentrl_lab.workbook.lessons import wasting, ways
from agentrl_lab.workbook.lessons.studied import in_words, success, told, verdict
from agentrl_lab.workbook.live import LiveRun, conversation_page
from agentrl_lab.workbook.recording import record

SIZES = {"smoke": (64, 8, 4), "fast": (320, 60, 12), "full": (640, 200, 24)}
EPISODES, TASKS, PAIRS = SIZES[PROFILE]
first, second = read_results("ways_to_learn"), read_results("ways_combined")
ROWS = first["rows"] + second["rows"]
print(f"profile {PROFILE}: a live run of {EPISODES} episodes, seed {SEED}")

# %% [markdown]
# ## 1 · Do you need any of this?
#
# Before a gradient, ask (the chapter's G1):
#
# 1. Are the steps fixed, the tools few, the states easy to tell apart? Then write a prompt with
#   examples, or a program.
# 2. Can each step be judged by itself, and can somebody show how it is done? Then *imitate*:
#   fine-tune on demonstrations (SFT).
# 3. Does the right step depend on what a tool said, and is only the end easy to judge? Then RL has
#   something to add.
#
# At our desk the steps are few enough for a program. This one looks, and then decides:

# %%
ASKS = [
    "status",
    "staus",
    "any news",
    "news?",
    "how ",
    "where",
    "tell me",
    "still open",
]


def decide(request, answer):
    """A new status or None, and a reply, from the request and the desk's answer."""
    if "status" not in answer:
        return None, "There is no ticket {id}."
    if any(words in request.lower() for words in ASKS):
        return None, f"The status of {{id}} is {answer['status']}."
    if answer["status"] == "closed":
        return None, "Ticket {id} was already closed."
    if not answer["paid"]:
        return None, "{id} is unpaid."
    return "closed", "Ticket {id} is closed."


print(f"success on 200 test tasks: {ways.by_program(decide, Split.TEST, 200):.2f}")

# %% [markdown]
# *Test* tasks have other tickets than training, and phrases of training in new combinations.
# *Unseen wordings* are twelve phrases that no policy was trained on, and that the program's list of
# words was not made for.

# %% tags=["nbval-ignore-output"]
SHARES = {0.3: "below 0.3", 0.6: "0.3 to 0.6", 0.9: "0.6 to 0.9", 2.0: "above 0.9"}
program_there = widgets.Prediction(
    "How often does the program succeed on unseen wordings?", list(SHARES.values())
)
program_there

# %% tags=["nbval-ignore-output"]
by_program = ways.by_program(decide, Split.UNSEEN, 200)
print(program_there.reveal(in_words(by_program, SHARES)))
untrained = {
    split: ways.seen_at("tiny-base", split, 200, temperature=0.0)["success"]
    for split in (Split.TEST, Split.UNSEEN)
}
print(f"unseen wordings: the program {by_program:.2f}, ", end="")
print(f"tiny-base untrained {untrained[Split.UNSEEN]:.2f}")
print(f"test tasks: tiny-base untrained {untrained[Split.TEST]:.2f}")

# %% [markdown]
# The program is perfect until somebody says it in other words. What it does then is a guess: it
# takes what it does not know for a wish to close, and is right in 0.76. Were its guess "a
# question", it would be right in 0.38.
#
# ## 2 · Five ways to learn, one of them live
#
# Each is ten updates of 64 episodes, from tiny-base, fluent and mostly wrong.
#
# - **rl**: PPO as in 05; an action becomes likelier by how much better it was than expected.
# - **rejection**: the policy imitates its own successes, and throws its failures away (*rejection
#   sampling*).
# - **perfect**: it imitates demonstrations that are always right.
# - **mixed**: demonstrations as people leave them. Half are careful; three in ten name what sounds
#   good and do nothing; two in ten close without a look. Three in five end well.
# - **happy_path**: perfect demonstrations, but only of paid tickets to close and of questions about
#   a status. Nothing stands in the way there; in the other half of the tasks something does.
#
# Imitation weighs every token alike: no value, no advantage.

# %% tags=["nbval-ignore-output"]
WAYS = list(first["arms"])
lowest = widgets.Prediction("Which one ends lowest on unseen wordings?", WAYS)
lowest

# %% tags=["nbval-ignore-output"]
CLIMBS = {0.1: "hardly at all", 0.3: "by 0.1 to 0.3", 0.6: "by 0.3 to 0.6", 2.0: "more"}
climb = widgets.Prediction(
    "By how much will greedy success rise on the way of rejection?",
    list(CLIMBS.values()),
)
climb

# %% tags=["long", "nbval-ignore-output"]
settings = {"episodes": EPISODES, "validation_tasks": 32, "test_tasks": 8}
imitation = {"imitated_updates": EPISODES // 64}
run = LiveRun(settings | imitation | {"seed": SEED, "max_rollbacks": 0})
run.watch()

# %% tags=["nbval-ignore-output"]
widgets.show(run.picture())
heights = [row["validation_success"] for row in run.rows] or [0.0]
print(climb.reveal(in_words(max(heights) - heights[0], CLIMBS)))
print(f"validation success: {heights[0]:.2f} at first, {heights[-1]:.2f} at the end")

# %% [markdown]
# One update is one round: 64 tasks tried, the successes kept and imitated for two epochs. With seed
# 0 there are 20 successes to keep in the first round and 50 in the fifth: the better the policy,
# the more it has to learn from. Greedy success goes from 0.28 to 0.94. The panel with KL stays
# empty: imitation knows no ratio.
#
# Later, try `imitation["demonstrations"] = "mixed"` (or `"perfect"`, `"filtered"`, `"happy_path"`),
# then only validation success is drawn; `imitation = {}` is PPO.
#
# **Exercise 10.1 · what to keep** (about 10 min). An attempt is `(task, success, reward)`.
# `keep(attempts, per_task)` returns the first successes of each task, at most `per_task` of them,
# in the order given.


# %% tags=["exercise"]
def keep(attempts, per_task):
    raise NotImplementedError("Exercise 10.1: successes, and not too many of one task")


# %% tags=["nbval-ignore-output"]
checks.report(checks.check_keep, keep, strict=STRICT)

# %% [markdown]
# <details><summary>Hint</summary>
#
# A failure can have a positive reward. And without a limit, what would most of the kept episodes be
# about?
#
# </details>


# %% tags=["solution"]
def keep(attempts, per_task):
    kept = []
    for task, success_, reward in attempts:
        count = sum(other == task for other, *_ in kept)
        if success_ and count < per_task:
            kept.append((task, success_, reward))
    return kept


# %% [markdown]
# ## 3 · Ten seeds, and the rules that were written first
#
# Three claims of the chapter are put to the test. **A4**: fine-tuning looks at each token and never
# sees the end of the episode, so it does not learn what only shows there. **G2**: begin with
# demonstrations, then RL. **E2**: at 0.3 a policy turns timid on unfamiliar wordings ("please
# wait"), at 1.0 and above wild. The first rule was written for the five ways. Their rows raised two
# questions, so a second rule has two more arms: *filtered*, mixed without its failures, and
# *then_rl*, three updates of mixed and seven of PPO.

# %% tags=["nbval-check-output"]
for study in (first, second):
    print(study["question"])
    print(study["rule"].replace(". ", ".\n"), end="\n\n")

# %% tags=["nbval-ignore-output"]
ends = ways.seen_and_unseen(ROWS)
print(lowest.reveal(min(WAYS, key=lambda arm: ends["unseen wordings"][arm].mean)))
widgets.show(plots.ranges(ends, "success, after training"))

# %% tags=["nbval-check-output"]
gains = {arm: compared(ROWS, "rl", arm, success) for arm in ("mixed", "happy_path")}
for arm, gain in gains.items():
    told(f"test success, rl minus {arm}", gain)
above = all(gain.low > 0 for gain in gains.values())
below = all(gain.high < 0.05 for gain in gains.values())
print("  A4:", verdict(above, below))
lead = compared(ROWS, "perfect", "rl", success)
told("test success, perfect minus rl", lead)
print("  RL needless beside perfect:", verdict(lead.low > -0.05, lead.high < -0.05))
further = compared(ROWS, "rl", "perfect", lambda row: ways.unseen(row) - success(row))
told("unseen minus test, rl minus perfect", further)
print("  RL carries further:", verdict(further.low > 0, further.high < 0.05))
# of the second rule
mended = compared(ROWS, "filtered", "mixed", success)
told("test success, filtered minus mixed", mended)
print("  a filter mends imitation:", verdict(mended.low > 0, mended.high < 0.05))
whole = compared(ROWS, "filtered", "rl", success)
told("test success, filtered minus rl", whole)
print("  it mends all of it:", verdict(whole.low > -0.05, whole.high < -0.05))

# %% [markdown]
# By its rule **A4 is confirmed**: rl ends above mixed by 0.48 (0.37 to 0.60), above happy_path by
# 0.49. But is it imitation that fails?
#
# - *rejection* and *perfect* imitate as well, and end at 0.99 like rl. Perfect demonstrations make
#   RL needless here: **confirmed** (+0.01; -0.01 to 0.02).
# - *happy_path* finishes its own kinds, half of the test tasks. It could do no more, so this half
#   of the rule was decided before it ran. On unseen wordings it ends at 0.29, below the 0.32 that
#   it began with: what is not shown is unlearned.
# - *mixed* ends at 0.50 although three in five of its demonstrations are right. Throw the failures
#   away, and *filtered* ends 0.48 higher (0.37 to 0.60): **a filter at the end mends imitation, and
#   mends all of it**, 0.00 beside rl (-0.02 to 0.02).
#
# **That RL carries further is refuted.** On unseen wordings rl stands at 0.55, perfect at 0.62
# (0.06 more; 0.03 to 0.10), rejection between them. All three gain on their start, and all three
# stay below the program's guess of 0.76. With other phrases than these twelve, it may be otherwise.
#
# **Exercise 10.2 · at the same price** (about 5 min). Two ways are compared fairly at one budget.
# `tokens` and `success` hold a run's tokens so far and its success after each update, the untrained
# policy first. `at_budget(tokens, success, budget)` is the success at the last update that the
# budget pays for.


# %% tags=["exercise"]
def at_budget(tokens, success, budget):
    raise NotImplementedError("Exercise 10.2: the last update that was paid for")


# %% tags=["nbval-ignore-output"]
checks.report(checks.check_at_budget, at_budget, strict=STRICT)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Go through both lists side by side, and keep the success as long as the tokens are within the
# budget. A run may fall: the last one counts.
#
# </details>


# %% tags=["solution"]
def at_budget(tokens, success, budget):
    return [s for t, s in zip(tokens, success, strict=True) if t <= budget][-1]


# %% [markdown]
# Now the bill. *Tokens* are those that the policy or its demonstrator wrote; prompts, validation
# and gradient steps are not in it.

# %% tags=["nbval-ignore-output"]
RATIOS = {
    0.67: "fewer by a third or more",
    1.5: "about as many",
    99.0: "more by half or more",
}
price = widgets.Prediction(
    "How many tokens does rejection need to reach 0.8, measured by rl's?",
    list(RATIOS.values()),
)
price

# %% tags=["nbval-check-output"]
ARMS = list(ends["test"])
for arm in ARMS:
    rows = [row for row in ROWS if row["arm"] == arm]
    never = wasting.never_learned(ROWS, arm)
    until = averaged(rows, arm, wasting.tokens_to_learn).mean
    learned = f"{never} of 10 never reach 0.8" if never else f"0.8 after {until:,.0f}"
    spent = averaged(rows, arm, lambda row: row["policy_tokens"]).mean
    there = [averaged(rows, arm, ways.bought(b)).mean for b in (5_000, 10_000, 20_000)]
    print(f"{arm:<10} {spent:7,.0f} tokens in all; {learned:<24}; validation ", end="")
    print("after 5,000, 10,000, 20,000:", *(f"{share:.2f}" for share in there))

# %% tags=["nbval-ignore-output"]
needs = {
    arm: averaged(ROWS, arm, wasting.tokens_to_learn).mean
    for arm in ("rejection", "rl")
}
print(price.reveal(in_words(needs["rejection"] / needs["rl"], RATIOS)))
for arm in ("rejection", "then_rl"):
    saving = compared(ROWS, arm, "rl", wasting.tokens_to_learn)
    told(f"tokens to 0.8, {arm} minus rl", saving, places=0)
print("  G2, cheaper:", verdict(saving.high < 0, saving.low > -0.1 * needs["rl"]))
lost = compared(ROWS, "then_rl", "rl", success)
told("test success, then_rl minus rl", lost)
print("  G2, at no cost:", verdict(lost.low > -0.05, lost.high < -0.05))
bills = widgets.explore(
    lambda one, other: wasting.cost_picture(ROWS, [one, other]),
    one=["rl", "rejection", "then_rl"],
    other=["perfect", "mixed", "filtered", "happy_path"],
)
bills

# %% [markdown]
# rejection needs 5,900 tokens to 0.8, rl 12,700: **less than half** (6,800 fewer; 5,700 to 8,000).
# Before you quote that: imitation makes steps of 3e-4 and PPO of 1e-4, their defaults, and neither
# was tuned against the other. tiny-base succeeds in three of ten episodes; a policy that never does
# has nothing to imitate. And demonstrations are tokens that somebody else had to write.
#
# **G2 is confirmed** for the price: with three updates of mixed first, RL needs 3,200 tokens fewer
# (1,500 to 5,000). That it costs nothing in the end is *inconclusive*: -0.03 (-0.11 to 0.04), since
# one of ten runs fell to 0.67.
#
# In the panel, look at *mixed* too.
#
# ## 4 · Timid and wild
#
# Training ends with a policy, and somebody must choose the temperature that it runs at.

# %% tags=["nbval-ignore-output"]
hot = widgets.Prediction(
    "At which temperature do the ten policies of rl succeed most on unseen wordings?",
    ways.TEMPERATURES,
)
hot

# %% tags=["nbval-ignore-output"]
heat = {arm: ways.mean_unseen_at(ROWS, arm) for arm in ("rl", "rejection", "perfect")}
print(hot.reveal(max(ways.TEMPERATURES, key=lambda t: heat["rl"][t]["success"])))
widgets.show(ways.temperature_picture(heat))

# %% tags=["nbval-check-output"]
timid = averaged(ROWS, "rl", ways.shift("evasive_rate", 0.3, 0.7))
wild = averaged(ROWS, "rl", ways.shift("invalid_rate", 1.0, 0.7))
told("rl, evasive replies at 0.3 minus at 0.7", timid, places=3)
print("  E2, timid:", verdict(timid.low > 0, timid.high < 0.02))
told("rl, invalid actions at 1.0 minus at 0.7", wild, places=3)
print("  E2, wild:", verdict(wild.low > 0, wild.high < 0.02))
for hotter, cooler in ((0.7, 0.3), (1.0, 0.7), (1.3, 1.0)):
    for arm in ("rl", "rejection"):
        shift = averaged(ROWS, arm, ways.shift("success", hotter, cooler))
        told(f"{arm}, success at {hotter} minus at {cooler}", shift)

# %% [markdown]
# **E2, timid: refuted.** At 0.3 not one of 2,000 episodes ends evasively, and success is *higher*
# than at 0.7. But hardly any policy here says "please wait" below 1.0 (grey), so this test could
# hardly find what the chapter saw. **E2, wild: confirmed**, and small at 1.0: 0.03 more of the
# actions are invalid (0.02 to 0.03). Success falls earlier than that: rl loses 0.05 from 0.3 to
# 0.7, 0.08 more to 1.0. The policies of rejection and perfect lose less than half of that. They are
# surer: on the test tasks at 0.7, rl succeeds in 0.87, rejection in 0.99.
#
# That "about 0.7 is right" does not hold for finished policies here. In training a policy has to
# *explore*; ours begin at 1.0 and cool to 0.7.
#
# Now live: where all begin, and tiny-trained, after 1,920 episodes of rl against the 640 of the
# rows.

# %% tags=["long", "nbval-ignore-output"]
by_name = {
    name: {t: ways.seen_at(name, Split.UNSEEN, TASKS, t) for t in ways.TEMPERATURES}
    for name in ("tiny-base", "tiny-trained")
}
widgets.show(ways.temperature_picture(by_name))
print(
    f"{TASKS} tasks each: by chance alone, a share may be off by {1 / TASKS**0.5:.2f}"
)

# %% [markdown]
# ## 5 · The careful path, and a blind review
#
# The chapter's path (G2, G3), with what this workbook adds:
#
# - [ ] a program or a prompt was tried, and its failures were read;
# - [ ] the environment was searched for leaks (07), the reward for what it really pays (03, 06);
# - [ ] a warm start makes most actions valid (09), and its failures are filtered out;
# - [ ] a validation set is kept that no gradient sees; a rollback is on (05, 08);
# - [ ] RL runs with small steps, and KL is watched (08);
# - [ ] **every 100 episodes a person reads samples, blind**;
# - [ ] the reward's helping terms are relaxed step by step;
# - [ ] the test set is looked at once.
#
# The one in bold is yours now. Two conversations about the same task, nobody says whose. Which
# agent would you want at your desk? Tab moves between the buttons, Enter presses. Each choice is
# kept at once in a file; close the browser if you like, and come back.

# %% tags=["nbval-ignore-output"]
REVIEW = Path("my-reviews") / "notebook-10.jsonl"
review = ways.blind_review(PAIRS, REVIEW)
review

# %% [markdown]
# When you have chosen in a few pairs, run the next cell. It asks two rewards: ours, and the one
# that the chapter prints (03).

# %% tags=["nbval-ignore-output"]
print(f"{len(review.choices)} of {PAIRS} pairs chosen, ", end="")
print(f"{len(review.decisions())} with a preference")
for name in ("shaped", "printed"):
    found = review.judged_by(ways.priced(name))
    print(f"{name}: sides with you in {len(found.shared)}, ", end="")
    print(f"against you in {len(found.opposed)}, pays both alike in {len(found.alike)}")
for decision in review.judged_by().opposed:
    print(f"- {decision.name}: you preferred", decision.chosen.verdict)

# %% [markdown]
# Where a reward is against you, ask first which of you looked closer: a reply that flatters and
# does nothing is easy to like. Where it pays both alike, it cannot teach what you see. Here is such
# a pair, with names: first tiny-base, then tiny-trained.

# %% tags=["nbval-ignore-output"]
both = ways.played(range(48))
shaped, printed = (ways.priced(name) for name in ("shaped", "printed"))
flattering, useful = next(
    (one, other)
    for one, other in both
    if shaped(one) < shaped(other) and printed(one) == printed(other)
)
widgets.show(conversation_page(flattering))
widgets.show(conversation_page(useful))
blind = sum(
    printed(one) == printed(other) for one, other in both if shaped(one) < shaped(other)
)
print(f"printed pays {printed(flattering):+.2f} and {printed(useful):+.2f}")
print(f"of {len(both)} tasks it is blind to this difference in {blind}")

# %% [markdown]
# tiny-base says "closed" of a ticket that must stay open. So the desk is as it should be, and the
# printed reward, which never reads a reply, pays in full.
#
# ## 6 · Where each way wins, and where to go from here
#
# | you have | take | here |
# |---|---|---|
# | steps you can write down | a program, or a prompt | 1.00, and 0.76 on unseen wordings |
# | right examples of every kind of case | imitation | 0.8 after 3,800 tokens, 0.99 in the end |
# | right examples of the easy cases | more examples, of the others | 0.50: the easy half |
# | logs of all sorts | a judge of the end, then imitation | 0.50 without, 0.99 with the filter |
# | a judge, and some successes | rejection sampling | 0.8 after 5,900 tokens, 0.99 in the end |
# | a judge, and failures that tell | RL, after the ways above | 0.8 after 9,500, or 12,700 |
#
# In this study RL was never the cheapest way. It is the only one that learns from failures too;
# whether that pays at a harder desk, these rows do not say.
#
# **With a large model** the parts keep their names: an environment with `reset` and `step`, a
# rollout over turns, a mask over what the model did not write, a ratio, a clip, KL. What changes is
# the price. The chapter counts 30,000 tokens for ten trajectories of a real system, so memory comes
# first: results cut to 200 tokens, eight episodes an update, steps of 2e-6. Often the mean reward
# of a group of episodes of one task replaces the value head (GRPO), and small added matrices are
# trained in place of all weights (LoRA). Libraries such as TRL and verifiers hold these parts. Your
# first three steps need none of them: count where tokens go (09), swap parts of an answer (07),
# search what your reward pays best (03).
#
# ## What to take along
#
# - First a program; then examples, filtered by their ends; then your own successes; then RL.
# - What is imitated decided here: cover the cases, and look at the end.
# - Compare at one price, and say whose tokens they are.
# - Choose the temperature of a finished policy by measuring, on validation tasks.
# - A reward that nobody checked against a person is a guess.
#
# **The number to watch**: success on wordings that nobody trained on. **Next**: your own desk.

# %% tags=["nbval-ignore-output"]
record(
    live_first=heights[0],
    live_last=heights[-1],
    trained_at_07=by_name["tiny-trained"][0.7]["success"],
    trained_at_13=by_name["tiny-trained"][1.3]["success"],
)
checks.final(
    {
        "seventy recorded runs": len(ROWS) == 70,
        "the run went to its end, or you stopped it": run.ended,
        "the review holds its pairs": len(review.open) + len(review.choices) == PAIRS,
    },
    panels=[bills],
)
