"""The leak detector: planted tells are found and named, silent environments stay silent."""

from __future__ import annotations

import base64
import json
import random

import pytest

from agentrl_lab.records import Call
from agentrl_lab.world import leaks
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.leaks import Sighting, sightings_of_canary, tells

ANSWERS = ("ship", "split", "refuse")
DECLARED = ("stock", "wanted")


def sighting(index: int, leak: str = "", seed: int = 0) -> Sighting:
    """A stock room: the answer follows from stock and wanted; a leak adds one thing more."""
    rng = random.Random(f"{seed}-{index}")
    answer = ANSWERS[index % 3] if leak == "place" else rng.choice(ANSWERS)
    wanted = rng.randint(2, 9)
    stock = {"ship": wanted + rng.randint(0, 3), "split": wanted - 1, "refuse": 0}[answer]
    number, known = ANSWERS.index(answer), rng.random() < 0.7
    result = {
        "stock": stock, "wanted": wanted, "code": rng.randint(0, 999), "shelf": rng.choice("ABCD"),
        "note": rng.choice(["fragile goods inside", "call before noon", "left at the gate"]),
    }  # fmt: skip
    text = f"Order {index}, please look."
    match leak:
        case "field":
            result["expected_action"] = answer
        case "coded":
            result["meta"] = {"flags": [7, number]}
        case "absent":
            result |= {} if answer == "refuse" else {"carrier": "north"}
        case "order of fields" if answer == "refuse":
            result = dict(reversed(result.items()))
        case "length":
            result["log"] = "".join(rng.choice("xyz") for _ in range(20 + 9 * number))
        case "word":
            result["note"] += " urgently" if answer == "ship" else " soon"
        case "blanks":
            text += " " * number
        case "partial":
            result["hint"] = answer if known else rng.choice(ANSWERS)
    return Sighting((text, json.dumps(result)), answer)


def seen(leak: str = "", n: int = 240, seed: int = 0) -> list[Sighting]:
    return [sighting(index, leak, seed) for index in range(n)]


@pytest.mark.parametrize("seed", range(20))
def test_a_silent_environment_has_no_tell(seed):
    assert tells(seen(seed=seed), DECLARED) == []


@pytest.mark.parametrize(
    ("leak", "feature"),
    [
        ("field", "1.expected_action"),
        ("coded", "1.meta.flags.1"),
        ("absent", "1.carrier"),
        ("order of fields", "1: order of fields"),
        ("length", "1.log: length"),
        ("word", "1.note: word 'urgently'"),
        ("blanks", "0: blanks"),
        ("partial", "1.hint"),
        ("place", "place modulo 3"),
    ],
)
def test_a_planted_tell_is_found_and_named(leak, feature):
    found = tells(seen(leak), DECLARED)
    assert feature in [tell.feature for tell in found]
    assert all(tell.p < leaks.MOST_CHANCE and tell.gain >= leaks.LEAST_GAIN for tell in found)


def test_what_is_declared_is_no_tell_and_what_is_not_is():
    found = {tell.feature for tell in tells(seen())}
    assert "1.stock" in found and "1.wanted" not in found
    assert tells(seen(), ["1.stock", "wanted"]) == []
    assert tells(seen("field"), ["1"]) == []


def test_gain_by_hand():
    """Of two answers, half each, one is marked always: every task is guessed."""
    shown = [Sighting((json.dumps({"x": at % 4 < 2}),), "ab"[at % 4 < 2]) for at in range(40)]
    tell = next(t for t in tells(shown) if t.feature == "0.x")
    assert (tell.accuracy, tell.baseline, tell.gain) == (1.0, 0.5, 1.0)


def test_tail_by_hand():
    assert leaks._tail(2, 3, 0.5) == pytest.approx(0.5)  # (3 + 1) / 8
    assert leaks._tail(3, 3, 0.1) == pytest.approx(0.001)
    assert leaks._tail(0, 5, 0.3) == pytest.approx(1.0)


def test_guesses_of_one_half_by_hand():
    """0 and 1 are known, 2 to 4 are asked: u was a; v and w are new and get the usual answer, a."""
    values, answers = ["u", "u", "u", "v", "w"], ["a", "a", "a", "b", "a"]
    assert leaks._hits(values, answers, [0, 1], [2, 3, 4]) == 2


def test_answers_that_take_turns_are_found_though_the_halves_might_too():
    found = tells([Sighting(("same",), at % 2) for at in range(40)])
    assert "place modulo 2" in [tell.feature for tell in found]


@pytest.mark.parametrize("n", [0, 19])
def test_too_few_sightings_are_refused(n):
    with pytest.raises(ValueError, match="at least 20 sightings"):
        tells(seen(n=n))


def test_one_answer_alone_is_refused():
    with pytest.raises(ValueError, match="with 1"):
        tells([Sighting(("x",), "same")] * 30)


@pytest.mark.parametrize("text", ["{", '{"a":' * 5000, "", "{} {}", '{"a": NaN}', "[1, 2]"])
def test_odd_texts_are_features_too(text):
    rng = random.Random(0)
    coins = [rng.random() < 0.5 for _ in range(60)]
    shown = [Sighting((text + " xx" * coin,), coin) for coin in coins]
    assert "0: blanks" in [tell.feature for tell in tells(shown)]


@pytest.mark.parametrize(
    ("leak", "feature"),
    [
        (lambda yes, rng: "close" if yes else "leave", "0"),
        (lambda yes, rng: json.dumps(["close" if yes else "leave"]), "0"),
        (lambda yes, rng: f"expected: {1 + yes}\nfoo: {rng.randint(0, 99)}", "0: number 1"),
        (lambda yes, rng: f"code A{1 + yes} of {rng.randint(0, 99)}", "0: number 1"),
        (lambda yes, rng: f'{{"a": 1}}\n{{"expected": {1 + yes}}}', "0"),
        (lambda yes, rng: f'note {{x}}: {{"expected": {1 + yes}}}', "0"),
        (lambda yes, rng: ("请关闭" if yes else "请保留") + rng.choice("甲乙丙"), "0: word '闭'"),
        (lambda yes, rng: "yes no" if yes else "no yes", "0"),
        (lambda yes, rng: "closed now!" if yes else "closed now.", "0: last letter"),
    ],
)
def test_a_text_that_is_no_json_tells_too(leak, feature):
    rng = random.Random(0)
    answers = [rng.random() < 0.5 for _ in range(200)]
    found = tells([Sighting((leak(answer, rng),), answer) for answer in answers])
    assert feature in [tell.feature for tell in found]


@pytest.mark.parametrize(("n", "kinds"), [(20, 2), (20, 3), (40, 3), (60, 4)])
def test_few_balanced_answers_raise_no_false_alarm(n, kinds):
    """Guessing one half from the other finds such answers less often than their frequency."""
    false = 0
    for seed in range(20):
        rng = random.Random(f"{n}/{kinds}/{seed}")
        answers = rng.sample([at % kinds for at in range(n)], n)
        false += bool(tells([Sighting((json.dumps({"x": rng.randint(0, 9), "y": rng.choice("abc")}),
                                       f"look at {rng.randint(0, 999)}"), a) for a in answers]))
    assert false <= 1


def test_the_ticket_desk_tells_nothing():
    """Request, status and payment decide; nothing else may."""
    shown, env = [], TicketEnv()
    for index in range(200):
        env.reset(options={"index": index})
        env.step(env.codec.render(Call("query_ticket", {"ticket_id": env.task.ticket_id})))
        texts = tuple(message.content for message in env.messages if message.role != "assistant")
        shown.append(Sighting(texts, str(env.task.expected)))
    assert tells(shown, ["1", "status", "paid", "error"]) == []


# Canaries

CANARY = "zebra-91c7"


@pytest.mark.parametrize(
    ("text", "how"),
    [
        (f'{{"goal": "{CANARY}"}}', "as it is"),
        ("ZEBRA_91C7", "as it is"),
        ("z e b r a 9 1 c 7", "as it is"),
        (CANARY[::-1], "backwards"),
        (CANARY.encode().hex(), "hex"),
        (base64.b64encode(CANARY.encode()).decode(), "base64"),
    ],
)
def test_a_canary_is_found_however_it_is_written(text, how):
    assert sightings_of_canary(CANARY, ["nothing", text]) == [(1, how)]


def test_no_canary_no_sighting():
    assert sightings_of_canary(CANARY, ["zebra", "91c7", "horse-91c7"]) == []


def test_a_short_canary_is_refused():
    for short in ("abc", "------", "a-----"):
        with pytest.raises(ValueError, match=f"at least 6 letters or digits, got '{short}'"):
            sightings_of_canary(short, [])


def test_a_canary_in_the_escapes_of_json_is_found():
    assert sightings_of_canary("café-91c7", [json.dumps("café-91c7")]) == [(0, "JSON")]


def test_one_text_in_place_of_several_is_refused():
    with pytest.raises(TypeError, match="shown must be a tuple of texts, got 'one'"):
        Sighting("one", "yes")
    with pytest.raises(TypeError, match=r"declared must be names, such as \['stock'\]"):
        tells(seen(), "stock")
    with pytest.raises(TypeError, match="shown must be texts"):
        sightings_of_canary(CANARY, f"it is {CANARY}")


def test_depth_is_no_trouble():
    deep = {"a": 1}
    for _ in range(3000):
        deep = {"a": deep}
    assert dict(leaks._flat(deep))["a" + ".a" * 3 + ".#"] == 1
