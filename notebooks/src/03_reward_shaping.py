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
# # 03 · Reward shaping
#
# **You set the prices, and an exact search tells you what they buy, before anything is trained.**
#
# *You will learn* to read a reward as a list of prices; to find the way to play that earns most,
# whoever thought of it; to tell a bonus that guides from one that misguides; to compare what
# training finds with what the search foresaw.
#
# *Before this*: 00 (what the task is). *Runtime*: about two minutes on 2 CPU cores.
#
# ```
#   action ──► desk ──► what happened ──► reward ──► update
#                                      (you are here)
# ```

# %% tags=["parameters"]
SEED: int = 0  # every random choice below follows from it
PROFILE: str = "fast"  # smoke, fast or full: how long the training is
STRICT: bool = False  # True: an unsolved or wrong exercise stops the notebook
REWARD: str = "process"  # of the live training: printed, outcome, process or shaped

# %%
import random

from agentrl_lab.workbook import plots, widgets
from agentrl_lab.workbook.lessons import checks_reward as checks
from agentrl_lab.workbook.lessons.rewarding import (
    TURNS,
    edited,
    lies,
    pay_picture,
    pays,
    strategies_picture,
    with_potential,
)  # fmt: skip
from agentrl_lab.workbook.live import LiveRun
from agentrl_lab.workbook.recording import record
from agentrl_lab.world.chapter import (
    HONEST,
    QUERY,
    PrintedTicketEnv,
    all_episodes,
    run_episode,
    until_done,
    until_reply,
)
from agentrl_lab.world.information import evaluate
from agentrl_lab.world.oracle import check_tenfold
from agentrl_lab.world.rewards import PRESETS, preset

EPISODES, BATCH = {"smoke": (32, 16), "fast": (640, 64), "full": (1920, 64)}[PROFILE]
print(f"profile {PROFILE}: one live training of {EPISODES} episodes")

# %% [markdown]
# ## 1 · Who is paid under the printed rule?
#
# The chapter that this workbook puts to the test prints a small environment. Its one ticket is
# open and paid, and its rule is: ticket not closed, -1.0; closed and answered, 1.0 plus a bonus
# for speed; closed and not answered, 0.5. An episode stops when the ticket is closed.
#
# What you want is: look, close, answer. With four calls (a query, an update to closed, one to
# pending, an answer) there are few sequences of up to six, so we can try them *all*. Predict first.

# %% tags=["nbval-ignore-output"]
first_guess = widgets.Prediction(
    "Which sequence earns the full 1.0 in the printed environment?",
    options=["look, close, answer", "answer, then close", "both", "none"],
)
first_guess


# %% tags=["nbval-check-output"]
def shortest_best(loop, per_call=0.0):
    found = list(all_episodes(loop, per_call))
    top = max(reward for _, reward in found)
    best = min((len(c), c) for c, reward in found if reward > top - 1e-9)[1]
    return len(found), top, [call.tool for call in best]


for loop in (until_done, until_reply):
    count, top, tools = shortest_best(loop)
    honest = max(r for calls, r in all_episodes(loop) if calls == HONEST[: len(calls)])
    print(f"stop {loop.__name__}: {count} sequences, honest {honest:+.1f}")
    print(f"  best {top:+.1f}: {', then '.join(tools)}")

# %% tags=["nbval-ignore-output"]
print(first_guess.reveal("answer, then close"))

# %% [markdown]
# With a stop at "closed", the honest way never comes to its answer: 0.5. The full 1.0 goes to the
# one who says "closed" *before* it is true. With a stop at the reply the same rule pays honesty.
# And the bonus for speed is paid below two steps, which nobody can do: it is a promise of nothing.
#
# **A reward is not what its author meant. It is what the best answer to it does.** You can search
# for that answer instead of guessing it.
#
# ## 2 · Four rewards, one search
#
# Our desk stops at `reply`, and it has many tickets: open, pending or closed, paid or not, or not
# there at all. The oracle tries every way to act on what was seen, in episodes of up to four
# turns. It gives the best return of *all* ways, and of some ways that have a name. Four rewards:
#
# - `printed`: the rule above, at our desk.
# - `outcome` (D1): +1.0 for a solved task, -0.8 for a wrong reply, -1.0 for none.
# - `process` (D2): that, and for each episode up to 0.10 for a useful query, 0.05 for a call that
#   serves the goal, 0.20 for a clear reply.
# - `shaped` (D3): the outcome, at most 0.08 for a solved task that was quick and clean, small
#   charges for repeats and invalid actions.

# %% tags=["nbval-ignore-output"]
second_guess = widgets.Prediction(
    "Under which of the four does honesty NOT pay best?", options=list(PRESETS)
)
second_guess

# %% tags=["nbval-ignore-output"]
audits = {name: pays(preset(name)) for name in PRESETS}
presets = widgets.explore(
    lambda reward: pay_picture(audits[reward]), reward=list(PRESETS)
)
presets

# %% tags=["nbval-check-output"]
for name, found in audits.items():
    ten = check_tenfold(preset(name), max_turns=TURNS)
    print(f"{name:<8} honest {found.ways['honest'].value:+.3f}", end=", ")
    print(f"best {found.best.value:+.3f} solves {found.best.success:.0%}", end=", ")
    print(f"finish over process {ten.ratio:.1f}")

# %% tags=["nbval-ignore-output"]
dishonest = [name for name, found in audits.items() if not found.is_honesty_best]
print(second_guess.reveal(dishonest[0]))

# %% [markdown]
# - **`printed`** never reads the reply. Whoever only asks for a status gets any answer at all, in
#   one turn, and the bonus for speed on top. Nearly a fifth of the tasks stay unsolved, and that
#   pays better than solving them. Look at the last bar: a way that lies in *every* task earns as
#   much as the best.
# - **`process`** breaks a rule of its own chapter (D4): a finished task should be worth at least
#   *ten times* all that can be earned on the way. Here it is less than three times. And honesty
#   still pays best. Each of its bonuses is paid once at most, and the honest way earns all of them.
# - **`shaped`** obeys the rule, with 12.5.
#
# So the tenfold rule is a margin of safety and not a proof. The proof is the search.
#
# ## 3 · Set the prices yourself
#
# Start from the outcome and add. Below, every slider recomputes the best return of each strategy:
#
# - `per call`: for each call that the desk answered, up to `call cap` in an episode (2 is no cap);
# - `repeat cost`: charged for a repeated call that changed nothing;
# - `pleasing`: for a last reply that says "closed". Customers like to hear it;
# - `wrong reply` and `strikes`: what these ends earn in place of the +1.0.
#
# The chapter tells of a run that was paid 0.1 for each call and "queried without end".

# %% tags=["nbval-ignore-output"]
third_guess = widgets.Prediction(
    "With 0.1 for each call, which way earns most?",
    options=["the honest one", "extra queries, then the task", "queries without end"],
)
third_guess

# %% tags=["nbval-ignore-output"]
editor = widgets.explore(
    lambda **settings: pay_picture(pays(edited(**settings))),
    per_call=(0.0, 0.5, 0.02, 0.0),
    call_cap=(0.05, 2.0, 0.05, 2.0),
    repeat_cost=(0.0, 0.5, 0.02, 0.0),
    pleasing=(0.0, 2.0, 0.1, 0.0),
    wrong_reply=(-1.0, 0.0, 0.05, -0.8),
    strikes=(-1.5, 0.0, 0.05, -1.0),
)
editor

# %% tags=["nbval-check-output"]
MOVES = {
    "0.1 for each call": {"per_call": 0.1},
    "and at most 0.3 in all": {"per_call": 0.1, "call_cap": 0.3},
    "a repeat costs 0.12": {"per_call": 0.1, "repeat_cost": 0.12},
}
for name, settings in MOVES.items():
    print(f"{name}:")
    print("  " + pay_picture(pays(edited(**settings))).sentence)
padded = pays(edited(per_call=0.1))
print(f"never finish: {padded.ways['never finish'].value:+.2f}", end=", ")
endless = run_episode(PrintedTicketEnv(), [QUERY] * 6, until_reply, per_call=0.1)
print(f"printed desk, six queries: {endless:+.2f}")
weak = pays(edited(strikes=-0.2)).ways
for name in ("fail fast", "reply first", "change blindly"):
    print(f"strikes at -0.2, {name}: {weak[name].value:+.2f}")

# %% tags=["nbval-ignore-output"]
print(third_guess.reveal("extra queries, then the task"))

# %% [markdown]
# - **The best answer to 0.1 a call is to pad, and then to finish.** Queries without end are *not*
#   best, and never were: they miss the +1.0. They are a trap for a policy that cannot finish yet
#   and is paid for something it can do. Notebook 06 looks at who falls in.
# - **A cap alone does not cure it.** Up to the cap, padding still pays where a task needs fewer
#   calls. A charge larger than the bonus does.
# - **Three strikes at -0.2** leave honesty on top, for whoever can be honest. For a policy that
#   knows only the three ways printed last, failing fast is now the best one. "What is best?" and
#   "what is best for someone who is still bad at it?" are two questions. Ask both.
#
# **Exercise 3.1 · Pay for lying** (about 10 min). Find settings under which the best way of all
# claims closures that did not happen. Return them by name, such as `{"per_call": 0.1}`.
#
# <details><summary>Hint</summary>
#
# For an unpaid ticket, write down what the truth earns and what the lie earns. Which two sliders
# bring these numbers together?
#
# </details>


# %% tags=["exercise"]
def lying_pays():
    raise NotImplementedError("Exercise 3.1: make the lie the best answer")


# %% tags=["nbval-ignore-output"]
checks.report(checks.check_lying_pays, lying_pays, strict=STRICT)


# %% tags=["solution"]
def lying_pays():
    # Unpaid, the truth earns 1. The lie earns -0.1 + 1.2: a wrong reply that pleases.
    return {"wrong_reply": -0.1, "pleasing": 1.2}


# %% [markdown]
# **Exercise 3.2 · Ten times** (about 10 min). Pay something for each call, and keep rule D4: the
# finish is worth ten times all that an episode of four turns can earn on the way, a repeated call
# is charged, and honesty pays best.


# %% tags=["exercise"]
def tenfold():
    raise NotImplementedError(
        "Exercise 3.2: pay for calls, ten times less than the finish"
    )


# %% tags=["nbval-ignore-output"]
checks.report(checks.check_tenfold_kept, tenfold, strict=STRICT)


# %% tags=["solution"]
def tenfold():
    # Four calls fit into an episode: 4 * 0.02 = 0.08.
    # A repeat brings 0.02 and costs 0.04.
    return {"per_call": 0.02, "repeat_cost": 0.04}


# %% [markdown]
# ## 4 · A bonus that is given back
#
# There is a kind of bonus that can never change which way is best, whatever its size. Give each
# situation a **potential**, "how promising is this?", and pay the *difference* each turn:
# `gamma * potential(after) - potential(before)`. At the end the potential is 0, so all that was
# paid is taken back. Over an episode the differences cancel (Ng, Harada and Russell 1999).
#
# Here are twenty potentials drawn at random, large ones, on top of `outcome`. Does the best plan
# change? For comparison: the same bonuses, when the last one is kept.


# %% tags=["nbval-check-output"]
def random_potential(number):
    def potential(seen):
        facts = (number, seen.turns, seen.queries, seen.goal_calls, seen.invalid)
        return random.Random(repr(facts)).uniform(-0.5, 0.5)

    return potential


plain = audits["outcome"].best
for given_back in (True, False):
    changed = 0
    for number in range(20):
        spec = with_potential(
            preset("outcome"), random_potential(number), given_back=given_back
        )
        changed += pays(spec).best.policy != plain.policy
    print(f"given back {given_back}: {changed} of 20 best plans are others")

# %% [markdown]
# None against all twenty. And what does a given-back bonus change? Take a policy that tosses a
# coin between looking, closing and claiming, and solve it exactly, with and without a potential
# of 0.5 for having looked.


# %% tags=["nbval-check-output"]
class Coin(dict):
    def get(self, state, default=None):
        return {"query": 0.4, "update closed": 0.3, "reply closed": 0.3}


looked = with_potential(preset("outcome"), lambda seen: 0.5 * min(1, seen.queries))
bare, shaped = (
    evaluate(Coin(), spec, max_turns=TURNS) for spec in (preset("outcome"), looked)
)
for state in ("close", "close > query: open, paid", "close > query: open, unpaid"):
    print(
        f"{state}: value {bare.values[state]:+.2f}, shaped {shaped.values[state]:+.2f}"
    )
    for action, advantage in bare.advantages[state].items():
        with_bonus = shaped.advantages[state][action]
        print(f"  {action:<13} advantage {advantage:+.2f}, shaped {with_bonus:+.2f}")

# %% [markdown]
# The values move by the potential. **The advantages do not move at all**, and advantages are what
# the update multiplies. What changes is *when* the reward arrives: after the query instead of two
# turns later. With an exact critic that helps nobody. With a critic that has learned little, the
# early payment is news.
#
# **Exercise 3.3 · Give it back** (about 5 min). What is paid on top in a turn? `before` and
# `after` are the potentials of the situations, `over` is True after the last turn.


# %% tags=["exercise"]
def shaping(before, after, over, gamma):
    raise NotImplementedError("Exercise 3.3: the discounted difference; mind the end")


# %% tags=["nbval-ignore-output"]
checks.report(checks.check_shaping, shaping, strict=STRICT)


# %% tags=["solution"]
def shaping(before, after, over, gamma):
    return gamma * (0.0 if over else after) - before


# %% [markdown]
# ## 5 · Now train on it
#
# `REWARD` in the parameters cell says which of the four; run from there to try another. Nothing
# guards this run: a rollback would look at success, and success is what the reward may not pay.
# You have seen the audit. How will most test episodes be played after the training?

# %% tags=["nbval-ignore-output"]
last_guess = widgets.Prediction(
    "After training, the most frequent strategy on the test tasks is:",
    options=[*audits[REWARD].ways, "unnamed"],
)
last_guess

# %% tags=["nbval-ignore-output"]
SETTINGS = {
    "seed": SEED,
    "reward": REWARD,
    "episodes": EPISODES,
    "episodes_per_update": BATCH,
    "minibatch_episodes": BATCH // 2,
    "validation_tasks": BATCH,
    "max_rollbacks": 0,
    "test_tasks": {"smoke": 16, "fast": 100, "full": 1000}[PROFILE],
}
run = LiveRun(SETTINGS)
run.watch()

# %% tags=["nbval-ignore-output"]
widgets.show(run.picture())
done = run.result["test"]["strategies"] if run.result else {"unnamed": 0.0}
found = next(iter(done))
print(last_guess.reveal(found))
print(f"the audit said: {audits[REWARD].best_is}")
if run.result:
    before = {
        "arm": "untrained",
        "strategies": run.result["untrained_test"]["strategies"],
    }
    widgets.show(strategies_picture([before, {"arm": REWARD, "strategies": done}]))

# %% [markdown]
# A name is given by what was *done*: "honest" needs the look, the change where one is due, a true
# answer and no turn too many. "Unnamed" is what no strategy on the list describes; here, mostly a
# look and then a wrong answer. One run is an anecdote: another `SEED` gives you another one.
#
# ## 6 · Forty runs
#
# Each of the four rewards, ten seeds, 960 episodes, no rollback (05 shows one), equal seeds in
# pairs. What would count as what was written down before the first run:

# %% tags=["nbval-check-output"]
from collections import Counter

from agentrl_lab.learner.experiments import by_seed, compared, episodes_to, read_results

study = read_results("reward_presets")
ROWS = study["rows"]
print(study["question"])
print(study["rule"].replace(". ", ".\n"))

# %% tags=["nbval-ignore-output"]
widgets.show(plots.arms(ROWS, {"validation_success": "validation success (share)"}))

# %% tags=["nbval-ignore-output"]
widgets.show(strategies_picture(ROWS))


# %% tags=["nbval-check-output"]
def compare(what, first, second, figure):
    found = compared(ROWS, first, second, figure)
    interval = f"95%: {found.low:+.2f} to {found.high:+.2f}"
    print(f"{what}, {first} minus {second}: {found.mean:+.2f} ({interval})")
    return found


needed = compare(
    "episodes to 0.9", "shaped", "outcome", lambda row: episodes_to(row, 0.9)
)
gained = compare("test success", "shaped", "process", lambda row: row["test_success"])
alone = sum(by_seed(ROWS, "outcome", lambda row: episodes_to(row, 0.9))) / 10
print(f"outcome alone needs {alone:.0f} episodes on average")
honest = {}
for arm in PRESETS:
    most = Counter(by_seed(ROWS, arm, lambda row: next(iter(row["strategies"]))))
    honest[arm] = most["honest"]
    told = ", ".join(f"{name} {seeds}" for name, seeds in most.most_common())
    paid = (
        sum(by_seed(ROWS, arm, lambda row: row["curve"]["reward_per_episode"][-1])) / 10
    )
    print(f"{arm:<8} reward at the end {paid:.2f}; most frequent, by seeds: {told}")


# %% tags=["nbval-check-output"]
def verdict(confirmed, refuted):
    return "confirmed" if confirmed else "refuted" if refuted else "inconclusive"


tenth = alone / 10
print("D1:", verdict(needed.high < 0 and -needed.mean >= tenth, needed.low > -tenth))
print("D2 against D4:", verdict(gained.low > 0, gained.high < 0.05))
paying = min(honest[arm] for arm in ("outcome", "process", "shaped"))
foreseen = paying >= 8 and 10 - honest["printed"] >= 8
print("the audit foresees:", verdict(foreseen, not foreseen))

# %% [markdown]
# Three claims, and by the rule that was written first none of them stands:
#
# - **D1, the outcome alone gives hardly any signal: refuted here.** The outcome alone gets there as
#   fast as the shaped reward: in the same update of 64 episodes, on every seed. (A saving of less
#   than one update cannot be seen.) Our guess: the episodes are short, and the untrained policy
#   solves a quarter of them by itself (notebook 00), so the end is signal enough. Longer tasks may
#   differ; this does not say so.
# - **Process rewards spoil the policy: refuted.** They break the tenfold rule, and success at the
#   end is as high. Section 2 said why: honesty is still their best answer.
# - **The audit foresees what training finds: refuted, by `printed`.** Under the three others,
#   honesty is the most frequent way, on all seeds. Under `printed` the search had found a way that
#   pays 0.025 more than honesty. There the most frequent way is honest on seven seeds, in about
#   half of the episodes; on three it is "unnamed", all that no strategy on the list describes. We
#   looked into one such run: the policy looks, changes what is due, and then says "Ticket S9989
#   is.", for nobody reads the reply. The reward rises to 0.91; success stops at a half, and on two
#   seeds it falls back to a fifth.
#
# So the audit (the search of section 2) tells what *pays*, not what is *learned*. Its use is the
# other direction: where nothing paid better than honesty, honesty was the most frequent way
# here.
#
# ## What to take along
#
# A reward is a list of prices, and the policy reads the list, not your mind. Search for the best
# answer to it *before* you train; ask also what is best for a policy that is still weak. Pay for
# what happened, never for what was said. A bonus that is given back cannot mislead.
#
# **The number to watch**: the best return of all ways minus that of the honest one. **Next**: 04,
# how a reward at the end becomes a push on each token.

# %% tags=["nbval-ignore-output"]
trained = PROFILE != "smoke" and run.result is not None
record(
    gap_printed=audits["printed"].gap,
    tenfold_shaped=check_tenfold(preset("shaped"), max_turns=TURNS).ratio,
    padding_gain=padded.gap,
    live_validation=run.last("validation_success"),
    live_reward=run.last("reward_per_episode"),
    live_queries=run.last("queries_per_episode"),
)
checks.final(
    {
        "honesty pays best under shaped": audits["shaped"].is_honesty_best,
        "and not under printed": not audits["printed"].is_honesty_best,
        "0.1 a call pays for padding": padded.best_is == "padding",
        "some reward pays for lying": lies(
            pays(edited(wrong_reply=-0.1, pleasing=1.2)).best
        )
        > 0,
        "the run went to its end, or you stopped it": run.ended,
        "forty recorded runs": len(ROWS) == 40,
        "the most frequent strategy is the one of the audit": not trained
        or found == audits[REWARD].best_is
        or REWARD == "printed",
    },
    panels=[presets, editor],
)
