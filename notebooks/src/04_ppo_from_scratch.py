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
# # 04 · PPO from scratch
#
# **You take the update apart until nothing in it is hidden, hold it against the truth, and then
# break it in thirteen places.**
#
# *You will learn* to say which probabilities one step moves, and why; to compute advantage, ratio,
# clip, entropy and KL by hand; to know what gamma and lambda change, and what they do not; to find
# a fault in an update that no curve shows.
#
# *Before this*: 00 (what the task is). *Runtime*: about 60 seconds on 2 CPU cores.
#
# ```
#   episodes ──► rewards ──► advantages ──► ratio, clip ──► gradient ──► policy
#                            └──────── you are here: the whole middle ───────┘
# ```

# %% tags=["parameters"]
SEED: int = 0  # every random choice below follows from it
PROFILE: str = "fast"  # smoke, fast or full: how many episodes, how many seeds
STRICT: bool = False  # True: an unsolved or wrong exercise stops the notebook

# %%
import inspect

import torch
from torch.testing import assert_close

from agentrl_lab.config import PPOConfig
from agentrl_lab.learner import losses, ppo
from agentrl_lab.learner.advantages import gae
from agentrl_lab.learner.forward import score_actions
from agentrl_lab.learner.policy import load_policy
from agentrl_lab.learner.trajectories import TrajectoryBuffer, pack
from agentrl_lab.workbook import breakage, checks, checks_ppo, credit, widgets
from agentrl_lab.workbook import ppo_pictures as pictures
from agentrl_lab.workbook import toy_desk
from agentrl_lab.workbook.printed_update import printed_update
from agentrl_lab.workbook.recording import record
from agentrl_lab.world.information import evaluate
from agentrl_lab.world.rewards import preset

SIZES = {"smoke": (64, 1, 6), "fast": (400, 6, 40), "full": (2000, 20, 40)}
EPISODES, SEEDS, UPDATES = SIZES[PROFILE]
TEMPERATURE, SPEC, CONFIG = 0.7, preset("shaped"), PPOConfig()
policy = load_policy("tiny-base")
print(f"profile {PROFILE}: {EPISODES} episodes, {SEEDS} seeds of the toy desk")

# %% [markdown]
# ## 1 · Which way does a reward push?
#
# The policy writes text; nobody can differentiate the desk. But the *probability* of what was
# written can be differentiated. REINFORCE multiplies it by what the episode earned:
# `loss = -return * logprob`. First in three numbers: actions with probabilities 0.51, 0.31 and
# 0.19. Action 1 is right and earns 1, the others earn -0.8.

# %% tags=["nbval-check-output"]
logits = torch.tensor([1.0, 0.5, 0.0], requires_grad=True)
reward_A = torch.tensor([-0.8, 1.0, -0.8])
chance_A = logits.softmax(0).detach()
for action in (1, 0):
    gain = reward_A[action] * logits.log_softmax(0)[action]
    (push_A,) = torch.autograd.grad(gain, logits)
    print(f"action {action} earned {reward_A[action]:+.1f}, push on the logits:", end=" ")
    print([round(number, 2) for number in push_A.tolist()])

# %% [markdown]
# A success lifts the logit of what was done and lowers all others; a failure does the reverse. The
# push is `return * (1 - p)` on the action itself: what was unlikely moves most.
#
# Now the transformer. It plays, at temperature 0.7; we keep one episode that closed a paid ticket
# properly and one that claimed to and did not. Each is some fifty tokens of text, and both get
# *one* number. In both, the policy first looks the ticket up, with the same words.

# %% tags=["nbval-ignore-output"]
told = credit.collect_told(
    policy, range(EPISODES), temperature=TEMPERATURE, seed=SEED
)
to_close = [t for t in told if t.trajectory.outcome.kind == "close_paid"]
good = max(to_close, key=lambda t: t.trajectory.reward)
bad = next(t for t in to_close if t.trajectory.outcome.fabricated)
for name, episode in (("good", good), ("bad", bad)):
    print(f"{name}: return {episode.trajectory.reward:+.2f}", end=", ")
    print(" then ".join(action for _, action in episode.steps))
options = ["query_ticket", "the ticket number", "update or reply", "the end token"]
guess = widgets.Prediction("Which token's probability will change most?", options)
guess

# %% tags=["nbval-ignore-output"]
pair = pack([good.trajectory, bad.trajectory])
owner_M = pair.action_mask_BT.nonzero()[:, 0]


def logprobs(model, batch):
    scored = score_actions(model, batch)
    return losses.chosen_logprob(scored.logits_MV / TEMPERATURE, scored.token_M)


moved = load_policy("tiny-base")
optimizer = torch.optim.SGD(moved.parameters(), lr=0.1)
before_M = logprobs(moved, pair)
return_M = pair.reward_BT.sum(dim=1)[owner_M]
(-return_M * before_M).mean().backward()
optimizer.step()
after_M, before_M = logprobs(moved, pair).detach(), before_M.detach()
words = [policy.tokenizer.tokenizer.decode([t]) for t in pair.token_BT[pair.action_mask_BT]]
rows = []
for number, name in enumerate(("good", "bad")):
    own = (owner_M == number).nonzero().flatten().tolist()
    own_words = [words[m] for m in own]
    rows.append((name, own_words, before_M[own].exp().tolist(), after_M[own].exp().tolist()))
widgets.show(pictures.moved_tokens(rows))
furthest = words[int((after_M.exp() - before_M.exp()).abs().argmax())]
print("the token that moved most:", furthest)

# %% [markdown]
# READ1
#
# ## 2 · A baseline
#
# What if every reward were larger by 2? Nothing about the task changes, but now *every* action is
# pushed up, some more than others. Here mean and spread of the push are exact, over the three
# actions.


# %% tags=["nbval-check-output"]
def push(reward_A, baseline):
    push_AA = (reward_A - baseline)[:, None] * (torch.eye(3) - chance_A)
    mean_A = chance_A @ push_AA
    spread = (chance_A @ (push_AA - mean_A).square().sum(dim=1)).sqrt()
    return [round(number, 2) for number in mean_A.tolist()], round(float(spread), 2)


for shift in (0.0, 2.0):
    shifted_A = reward_A + shift
    for name, baseline in (("none", 0.0), ("mean reward", float(chance_A @ shifted_A))):
        mean, spread = push(shifted_A, baseline)
        print(f"shift {shift:+.0f}, baseline {name:<11} mean {mean}, spread {spread}")

# %% [markdown]
# The mean never moves: a number that does not depend on the action pushes nothing on average. Only
# the noise does. So subtract what was to be expected in this state, its **value**. What is left is
# the **advantage**: how much better than expected.
#
# Expected of *this* policy. For once we can know it exactly: the meaning of every episode above
# becomes a table (in this state, the model does that, so often), and the oracle solves the desk for
# that table. From its 400 episodes `tiny-base` mostly looks first, and then lies.

# %% tags=["nbval-ignore-output"]
question = "Asked to close a ticket: which first move has the higher advantage for this model?"
second_guess = widgets.Prediction(question, ["look it up", "close it blindly"])
second_guess

# %% tags=["nbval-ignore-output"]
table = credit.SemanticPolicy(told)
truth = evaluate(table, SPEC, gamma=CONFIG.gamma)
SEEN = "close > query: open, paid"
LOOK, BLIND = ("close", "query"), ("close", "update closed")
SHOWN = [LOOK, BLIND, (SEEN, "update closed"), (SEEN, "reply closed")]
SHOWN = [(s, a) for s, a in SHOWN if a in truth.advantages.get(s, {})]
for state, action in SHOWN:
    print(f"{state:<26} {action:<14} p {table[state][action]:.2f}", end="  ")
    print(f"A {truth.advantages[state][action]:+.2f}")
exact = {step: truth.advantages[step[0]][step[1]] for step in SHOWN}
blind_first = exact[BLIND] > exact[LOOK]
print(second_guess.reveal("close it blindly" if blind_first else "look it up"))
unseen = sum(share for s, share in truth.visits.items() if s not in table.table)
print(f"value of an episode {truth.value:+.2f}; states never sampled: {unseen:.3f} visits")

# %% [markdown]
# READ2
#
# ## 3 · One trajectory by hand
#
# The good episode, token by token. The *mask* says what the policy wrote; the answers of the desk
# are in the sequence, and are no actions. The critic says what the oracle says, and the reward lies
# on the last *policy* token. GAE walks backwards and jumps over everything else:
#
# `delta = r + gamma * V_next - V`, then `A = delta + gamma * lambda * A_next`
#
# Here gamma and lambda count turns: inside a turn both are 1. (Per token, an answer of forty words
# would pay for its length.)

# %%
T = len(good.trajectory.ids)
mask = pair.action_mask_BT[0, :T].tolist()
turn, reward = pair.turn_BT[0, :T].tolist(), pair.reward_BT[0, :T].tolist()
value = [truth.values[good.steps[n][0]] if n >= 0 else 0.0 for n in turn]
by_hand = [0.0] * T
next_value, next_advantage, next_turn = 0.0, 0.0, None  # a true end: nothing follows
for t in reversed(range(T)):
    if not mask[t]:
        continue
    gamma, decay = (1.0, 1.0) if turn[t] == next_turn else (0.99, 0.99 * 0.95)
    delta = reward[t] + gamma * next_value - value[t]
    by_hand[t] = next_advantage = delta + decay * next_advantage
    next_value, next_turn = value[t], turn[t]

# %% tags=["nbval-ignore-output"]
log_old = pair.logprob_old_BT[0, :T].tolist()
ratio_T = torch.zeros(T)
ratio_T[pair.action_mask_BT[0, :T]] = (after_M - before_M)[owner_M == 0].exp()
first, second = good.trajectory.stages[:2]
print("token           mask turn  logprob   ratio  value  reward       A")
for t in [*range(first.stop - 3, first.stop + 2), *range(second.start, second.start + 4), T - 1]:
    token = policy.tokenizer.tokenizer.decode([good.trajectory.ids[t]])
    print(f"{token:<15} {mask[t]:>4} {turn[t]:>4} {log_old[t]:>8.3f} {ratio_T[t]:>7.3f}", end="")
    print(f" {value[t]:>6.2f} {reward[t]:>7.2f} {by_hand[t]:>+7.3f}")

# %% [markdown]
# ## 4 · Gamma and lambda, against the truth
#
# READ3

# %% tags=["nbval-ignore-output"]
played = credit.play(table, SPEC, 10 * EPISODES, SEED)
pairs = [(s, a) for s, a in SHOWN if any((s, a) in steps for steps in played.steps)]


def draw(gamma, gae_lambda, critic):
    solved = evaluate(table, SPEC, gamma=gamma)
    values = {"exact": solved.values, "none": {}}[critic]
    found = credit.estimates(played, values, gamma=gamma, gae_lambda=gae_lambda)
    exactly = {(s, a): solved.advantages[s][a] for s, a in pairs}
    return pictures.credit(exactly, credit.centred(found, table), pairs)


panel = widgets.explore(
    draw,
    gamma=(0.5, 1.0, 0.01, 0.99),
    gae_lambda=(0.0, 1.0, 0.05, 0.95),
    critic=["exact", "none"],
)
panel

# %% tags=["nbval-ignore-output"]
for critic in ("exact", "none"):
    for gae_lambda in (0.0, 0.5, 1.0):
        said = panel.set(critic=critic, gae_lambda=gae_lambda).sentence
        print(f"critic {critic:<5} lambda {gae_lambda:.1f}: {said}")
panel.set(critic="exact", gae_lambda=0.95)
many = credit.play(table, SPEC, 50 * EPISODES, SEED + 1)
found = credit.estimates(many, truth.values, gamma=CONFIG.gamma, gae_lambda=1.0)
STARTS = [step for step in (LOOK, BLIND) if step in found]
widgets.show(pictures.running_mean({step: found[step] for step in STARTS}, exact))

# %% [markdown]
# READ4
#
# **Exercise 4.1 · GAE with a mask** (about 15 min). One row, plain lists, gamma and lambda per
# action token. `is_action` is 1 where the policy wrote; `bootstrap` is the value after the last
# action (0 at a true end). Return one number per token, 0 where the policy did not write.
#
# <details><summary>Hint</summary>
#
# Walk backwards and carry two numbers: the next action's value and the next action's advantage.
# Which of the two does `bootstrap` start?
#
# </details>


# %% tags=["exercise"]
def my_gae(rewards, values, is_action, bootstrap, *, gamma, gae_lambda):
    raise NotImplementedError("Exercise 4.1: walk backwards, jump over tool tokens")


# %% tags=["nbval-ignore-output"]
checks.report(checks_ppo.check_gae, my_gae, strict=STRICT)


# %% tags=["solution"]
def my_gae(rewards, values, is_action, bootstrap, *, gamma, gae_lambda):
    found = [0.0] * len(rewards)
    next_value, next_advantage = bootstrap, 0.0
    for t in reversed(range(len(rewards))):
        if is_action[t]:
            delta = rewards[t] + gamma * next_value - values[t]
            next_advantage = delta + gamma * gae_lambda * next_advantage
            found[t], next_value = next_advantage, values[t]
    return found


# %% [markdown]
# ## 5 · Ratio and clip
#
# Sampling is dear, so an update uses its episodes more than once (here twice, four times at most:
# then they tell of a desk that this policy would no longer bring about). From the second step on,
# the policy is no longer the one that sampled. The **ratio** new / old probability corrects for
# that, and the **clip** takes the gradient away where going further is all that a token asks for.
# Here are 32 episodes after two epochs with a step size ten times too large.

# %% tags=["nbval-ignore-output"]
BATCH = [t.trajectory for t in told[:32]]
buffer = TrajectoryBuffer(BATCH)
batch, targets = buffer.batch, ppo.make_targets(buffer.batch, CONFIG)
far = load_policy("tiny-base")
hot = PPOConfig(learning_rate=1e-3, minibatch_episodes=16)
done = ppo.update(
    far, ppo.make_optimizer(far, hot), buffer, hot,
    temperature=TEMPERATURE, generator=torch.Generator().manual_seed(SEED),
)  # fmt: skip
mask_BT = batch.action_mask_BT
old_M, advantage_M = batch.logprob_old_BT[mask_BT], targets.advantage_BT[mask_BT]
new_M = logprobs(far, batch).detach()
ratio_M = (new_M - old_M).exp()
widgets.show(pictures.clipped_gain(ratio_M, advantage_M, CONFIG.clip_ratio))
print(f"largest ratio {ratio_M.max():.2f}, smallest {ratio_M.min():.2f}")

# %% [markdown]
# READ5
#
# **Exercise 4.2 · the clipped loss** (about 10 min). All arguments are tensors of one shape, `mask`
# is true on action tokens. Return the loss as a scalar tensor.
#
# <details><summary>Hint</summary>
#
# Two gains: one with the ratio, one with the ratio kept inside 1 ± epsilon. Which of the two is the
# more cautious?
#
# </details>


# %% tags=["exercise"]
def my_loss(logprob, logprob_old, advantage, mask, clip_ratio):
    raise NotImplementedError("Exercise 4.2: the smaller of two gains, over action tokens")


# %% tags=["nbval-ignore-output"]
checks.report(checks_ppo.check_clipped_loss, my_loss, strict=STRICT)


# %% tags=["solution"]
def my_loss(logprob, logprob_old, advantage, mask, clip_ratio):
    ratio = (logprob - logprob_old).exp()
    clipped = ratio.clamp(1 - clip_ratio, 1 + clip_ratio)
    gain = torch.minimum(ratio * advantage, clipped * advantage)
    return -gain[mask].mean()


# %% [markdown]
# ## 6 · Entropy, and three estimators of one KL
#
# The clip does not say how far the policy went. **KL** does: the mean of `logprob_old - logprob`
# over what the *old* policy would write. Exactly, it is a sum over the vocabulary. From samples
# there are three ways, with `d = logprob - logprob_old`: k1 is `-d`, k2 is `d² / 2`, k3 is
# `exp(d) - 1 - d`. The truth beside all three, on the real logits of these episodes, each batch
# drawn anew.

# %% tags=["nbval-ignore-output"]
with torch.no_grad():
    old_MV = (score_actions(policy, batch).logits_MV / TEMPERATURE).log_softmax(-1)
    new_MV = (score_actions(far, batch).logits_MV / TEMPERATURE).log_softmax(-1)
entropy_M = losses.token_entropy(old_MV)
share = float((entropy_M > 0.1).float().mean())
print(f"entropy {entropy_M.mean():.3f} nats per token; above 0.1 on {share:.0%} of them")
exact_kl = float((old_MV.exp() * (old_MV - new_MV)).sum(-1).mean())
noise = torch.Generator().manual_seed(SEED)
token_MK = torch.multinomial(old_MV.exp(), 300, replacement=True, generator=noise)
d_MK = new_MV.gather(1, token_MK) - old_MV.gather(1, token_MK)
estimators = {"k1": -d_MK, "k2": d_MK.square() / 2, "k3": d_MK.expm1() - d_MK}
averages = {name: k_MK.mean(dim=0).numpy() for name, k_MK in estimators.items()}
widgets.show(pictures.kl_estimators(exact_kl, averages))

# %% [markdown]
# READ6
#
# ## 7 · The same through the package
#
# Everything by hand, in one piece and without shortcuts, against the functions that training uses.
# They share a prompt prefix, work in micro-batches and never make logits where none are needed;
# the numbers must be the same.

# %% tags=["nbval-ignore-output"]
own_T = torch.tensor([by_hand])
how = {"gamma": 0.99, "gae_lambda": 0.95, "turn_BT": torch.tensor([turn])}
rows = (torch.tensor([reward]), torch.tensor([value]), torch.tensor([mask]))
assert_close(gae(*rows, torch.zeros(1), **how), own_T, atol=1e-6, rtol=0)
d_M = new_M - old_M
clipped_M = d_M.exp().clamp(0.85, 1.15)
loss = -torch.minimum(d_M.exp() * advantage_M, clipped_M * advantage_M).mean()
error = (far.value(torch.zeros(1, far.value_head.in_features)) * 0).sum()
scored = score_actions(far, batch)
error = (scored.value_M - targets.return_BT[mask_BT]).square().mean()
entropy = losses.token_entropy(scored.logits_MV / TEMPERATURE).mean()
wanted = {"policy_loss": loss, "value_loss": error, "entropy": entropy}
wanted["kl_old"] = (d_M.expm1() - d_M).mean()
ALL = torch.arange(len(BATCH))
with_package = ppo.minibatch_gradient(
    far, ppo.make_optimizer(far, CONFIG), batch, targets, ALL, CONFIG, temperature=TEMPERATURE
)
for name, number in wanted.items():
    assert_close(torch.tensor(with_package[name]), number.detach(), atol=1e-6, rtol=1e-4)
    print(f"{name:<12} by hand {float(number):+.6f}, package {with_package[name]:+.6f}")

# %% [markdown]
# Now a question that fills forums: *the loss of the first step is almost 0; is something broken?*
# Look at the first minibatch of the untouched policy, and at its gradient.

# %% tags=["nbval-ignore-output"]
fresh = load_policy("tiny-base")
start = ppo.minibatch_gradient(
    fresh, ppo.make_optimizer(fresh, CONFIG), batch, targets, ALL, CONFIG, temperature=TEMPERATURE
)
norm = torch.nn.utils.get_total_norm([p.grad for p in fresh.parameters()])
print(f"policy loss {start['policy_loss']:+.6f}, KL {start['kl_old']:.6f}", end=", ")
print(f"ratio off 1 by {start['ratio_error']:.6f}, gradient {float(norm):.2f}")
uses = [len(TrajectoryBuffer(BATCH, max_uses=4).epoch(32, noise)) for _ in range(4)]

# %% [markdown]
# READ7
#
# ## 8 · The board of faults
#
# Thirteen switches, each breaks one law. They sit in a toy that trains in a fraction of a second: a
# language model of ten words that should look before it answers, with real tokens, masks, tool
# answers and padding, updated by the package's own functions. Each law fixes a number. Which faults
# will a learning curve show?

# %% tags=["nbval-ignore-output"]
third_guess = widgets.Prediction(
    "Of 13 faults, how many still end within 0.05 of the right update's success?",
    ["0 or 1", "2 or 3", "4 to 6", "7 or more"],
)
third_guess

# %% tags=["nbval-check-output"]
RIGHT = toy_desk.Recipe()
numbers = {s.name: (s.measure(RIGHT), s.measure(s.recipe)) for s in breakage.SWITCHES}
for switch in breakage.SWITCHES:
    right, broken = numbers[switch.name]
    print(f"law {switch.law:>2} {switch.name:<28} {right:>6.3f} -> {broken:>6.3f}  {switch.number}")

# %% tags=["nbval-ignore-output"]
curves = {
    switch.name: toy_desk.mean_curves(switch.recipe, range(SEEDS), UPDATES)
    for switch in breakage.SWITCHES
}
right_curves = toy_desk.mean_curves(RIGHT, range(SEEDS), UPDATES)


def board(fault):
    return pictures.broken_curves(fault.name, right_curves, curves[fault.name])


switches = widgets.explore(board, fault={s.name: s for s in breakage.SWITCHES})
switches

# %% tags=["nbval-ignore-output"]
end = {name: curve["success"][-10:].mean() for name, curve in curves.items()}
healthy = right_curves["success"][-10:].mean()
hidden = [name for name, success in end.items() if success > healthy - 0.05]
limits = (("0 or 1", 1), ("2 or 3", 3), ("4 to 6", 6), ("7 or more", 13))
print(third_guess.reveal(next(name for name, most in limits if len(hidden) <= most)))
print(f"right update {healthy:.2f}")
for switch in breakage.SWITCHES:
    print(f"{end[switch.name]:.2f} {switch.name}: {switch.sees} ({switch.test})")

# %% [markdown]
# READ8
#
# ## 9 · An update as it is printed
#
# This update looks complete. It has six faults, all of them seen in print.

# %% tags=["nbval-ignore-output"]
print(inspect.getsource(printed_update))
model, toy_batch = toy_desk.fixed()
adam = torch.optim.Adam(model.parameters(), lr=toy_desk.RATE)
try:
    printed_update(model, adam, toy_batch)
except RuntimeError as error:
    print(f"it stopped in the second epoch: {str(error).split(' (')[0]}")

# %% [markdown]
# **Exercise 4.3 · find and mend** (about 30 min). Same arguments, same result. Use `gae` (with
# `turn_BT=batch.turn_BT`, gamma and lambda as in `toy_desk`), whiten over action tokens, take the
# old numbers from the batch, and let every mean run over action tokens. KL is k1, as printed, in the
# last epoch before its step. Mend one fault at a time and run the check after each: it names the
# next.
#
# <details><summary>Hint</summary>
#
# Ask of each tensor: does a gradient flow through it, should one, and over which tokens is it
# averaged? Then ask what is left in `.grad` from the step before.
#
# </details>


# %% tags=["exercise"]
def my_update(model, optimizer, batch, epochs=2):
    raise NotImplementedError("Exercise 4.3: copy the printed update, then mend it")


# %% tags=["nbval-ignore-output"]
checks.report(checks_ppo.check_update, my_update, strict=STRICT)

# %% tags=["solution"]
from agentrl_lab.learner.advantages import whiten


def my_update(model, optimizer, batch, epochs=2):
    mask, old = batch.action_mask_BT, batch.value_old_BT
    raw = gae(
        batch.reward_BT, old, mask, batch.bootstrap_B, gamma=toy_desk.GAMMA,
        gae_lambda=toy_desk.GAE_LAMBDA, turn_BT=batch.turn_BT,
    )  # fmt: skip
    advantage, target = whiten(raw, mask), raw + old
    for _ in range(epochs):
        optimizer.zero_grad()
        logits, logprob, value = model.score(batch.token_BT, toy_desk.TEMPERATURE)
        gain = losses.policy_loss(
            logprob, batch.logprob_old_BT, advantage, mask, clip_ratio=toy_desk.CLIP
        )
        entropy = losses.token_entropy(logits)[mask].mean()
        kl = (batch.logprob_old_BT - logprob)[mask].mean()
        error = (value - target)[mask].square().mean()
        (gain + 0.5 * error - toy_desk.ENTROPY * entropy).backward()
        optimizer.step()
    return {"kl": float(kl.detach()), "entropy": float(entropy.detach())}


# %% [markdown]
# ## What to take along
#
# A step raises the probability of what went better than expected, token by token, over the policy's
# own tokens only. Gamma changes the question; lambda changes how much you trust the critic for the
# answer. Loss and success curves miss half of all faults, so fix numbers by law and test them.
#
# **The number to watch**: the ratio error of the first minibatch; it must be 0. **Next**: 05, the
# whole training.

# %% tags=["nbval-ignore-output"]
silent = ("entropy over all tokens", "means over padding", "end taken for a cut")
enough = PROFILE != "smoke"
z = [
    abs(float(found[s].mean()) - exact[s]) / float(found[s].std()) * len(found[s]) ** 0.5
    for s in STARTS
]
record(
    exact_blind=exact[BLIND], exact_look=exact[LOOK], value_of_base=truth.value,
    kl_exact=exact_kl, kl_k3=float(averages["k3"].mean()), faults_hidden=len(hidden),
    right_success=float(healthy), first_policy_loss=start["policy_loss"],
)  # fmt: skip
checks.final(
    {
        "GAE at lambda 1 meets the exact advantage": max(z) < 4,
        "by hand and package agree": abs(with_package["policy_loss"] - float(loss)) < 1e-5,
        "the first ratio is 1 and the first loss 0": start["ratio_error"] < 1e-4
        and abs(start["policy_loss"]) < 1e-3,
        "its gradient is not 0": float(norm) > 0.01,
        "k3 is never negative": float(averages["k3"].min()) >= 0,
        "every switch breaks its law, the right update none": all(
            s.holds(numbers[s.name][0]) and not s.holds(numbers[s.name][1])
            for s in breakage.SWITCHES
        ),
        "three faults do not show in the success": not enough
        or set(silent) <= set(hidden),
        "a critic without end is seen in the value": not enough
        or curves["end taken for a cut"]["value"].max() > 1.2,
    },
    panels=[panel, switches],
)
