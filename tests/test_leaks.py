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
        (lambda yes, rng: f'{{"a": 1}}\n{{"expected": {1 + yes}}}', "0.1.expected"),
        (lambda yes, rng: f'note {{x}}: {{"expected": {1 + yes}}}', "0.expected"),
        (lambda yes, rng: ("请关闭" if yes else "请保留") + rng.choice("甲乙丙"), "0: word '闭'"),
        (lambda yes, rng: "yes no" if yes else "no yes", "0"),
        (lambda yes, rng: "closed now!" if yes else "closed now.", "0: last letter"),
        (lambda yes, rng: f"{'keep' if yes else 'keen'}-{rng.randint(100, 999)}", "0: word 'keep'"),
        (lambda yes, rng: prose(rng, "the Floor" if yes else "the floor"), "0: word 'Floor'"),
        (lambda yes, rng: prose(rng, "class A" if yes else "class B"), "0: word 'A'"),
        (lambda yes, rng: prose(rng, "ok 🙂" if yes else "ok 🙁"), "0: sign '🙂'"),
        (lambda yes, rng: prose(rng, "ok\u200b" if yes else "ok"), "0: sign '\\u200b'"),
        (lambda yes, rng: prose(rng, "a_b" if yes else "a-b"), "0: sign '_'"),
        (lambda yes, rng: prose(rng, "a  b" if yes else "a b"), "0: blanks"),
        (lambda yes, rng: prose(rng, f"trace {trace(rng)}{'0f'[yes]}"), "0: code 1: last letter"),
        (lambda yes, rng: prose(rng, f"trace {'af'[yes]}{trace(rng)}"), "0: code 1: first letter"),
        (lambda yes, rng: json.dumps({"a": float("nan") if yes else 1.5}), "0.a"),
        (lambda yes, rng: json.dumps([{"n": trace(rng)}, {"ok": yes}]), "0.1.ok"),
        (lambda yes, rng: json.dumps({"s": json.dumps({"ok": yes, "n": trace(rng)})}), "0.s.ok"),
        (lambda yes, rng: '{"a":' * 900 + f"{yes} {trace(rng)}", "0: word 'True'"),
    ],
)
def test_a_text_that_is_no_json_tells_too(leak, feature):
    found = tells(told(leak))
    assert feature in [tell.feature for tell in found]


def told(text, n=200):
    """Half yes and half no, by chance, and the text (or texts) that a function makes of it."""
    rng = random.Random(0)
    answers = [rng.random() < 0.5 for _ in range(n)]
    texts = [text(answer, rng) for answer in answers]
    return [
        Sighting(t if isinstance(t, tuple) else (t,), answer)
        for t, answer in zip(texts, answers, strict=True)
    ]


def prose(rng, said):
    words = " ".join(rng.choice(["box", "rain", "truck", "gate", "noon"]) for _ in range(4))
    return f"Order {rng.randint(1000, 9999)}, {said} and {words}."


def trace(rng):
    return f"{rng.getrandbits(28):07x}b7"


# What is declared


def page(yes, rng, **more):
    return {"status": "open" if yes else "shut", "n": rng.randint(0, 99), **more}


def dumped(yes, rng, **more):
    return json.dumps(page(yes, rng, **more))


@pytest.mark.parametrize(
    ("text", "declared", "feature"),
    [
        (lambda yes, rng: dumped(0, rng, debug={"status": yes}), ["status"], "0.debug.status"),
        (lambda yes, rng: dumped(0, rng, list=[{"status": yes}]), ["status"], "0.list.0.status"),
        (lambda yes, rng: (prose(rng, "so"), dumped(0, rng, hist=[yes])), ["0"], "1.hist.0"),
        (lambda yes, rng: (prose(rng, "so"), dumped(0, rng, **{"0": yes})), ["0"], "1.0"),
        (lambda yes, rng: (dumped(0, rng), dumped(yes, rng)), ["0.status"], "1.status"),
        (lambda yes, rng: dumped(0, rng, stat=yes, status_old=yes), ["stat"], "0.status_old"),
        (lambda yes, rng: f"{dumped(yes, rng)} {dumped(yes, rng)}", ["0.1.status"], "0.status"),
        (lambda yes, rng: f"status {yes} {dumped(yes, rng)}", ["status"], "0"),
    ],
)
def test_a_declared_name_covers_its_path_and_nothing_else(text, declared, feature):
    assert feature in [tell.feature for tell in tells(told(text), declared)]


def with_coupon(yes, rng, inside=False):
    coupon = {"coupon": rng.randint(0, 9)} if yes else {}
    return json.dumps({"in": {"a": 1} | coupon, "n": 1} if inside else {"n": 1} | coupon)


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        (lambda yes, rng: f"Use {{tool}} calls. Result: {dumped(yes, rng)}", ["status"]),
        (lambda yes, rng: f'{{"ok": true}}\n{dumped(yes, rng)}', ["status"]),
        (lambda yes, rng: f"{{{dumped(yes, rng)}}} {{x", ["status"]),
        (lambda yes, rng: f"```json\n{json.dumps(page(yes, rng), indent=2)}\n```", ["status"]),
        (lambda yes, rng: json.dumps([page(yes, rng), page(yes, rng)]), ["status"]),
        (lambda yes, rng: json.dumps({"body": dumped(yes, rng)}), ["body.status"]),
        (lambda yes, rng: json.dumps({"body": dumped(yes, rng)}), ["body"]),
        (lambda yes, rng: json.dumps({"body": f"It says {dumped(yes, rng)}."}), ["0.body.status"]),
        (lambda yes, rng: json.dumps({"rows": [page(yes, rng)]}), ["rows.status"]),
        (lambda yes, rng: json.dumps({"rows": [page(yes, rng)]}), ["rows.0.status"]),
        (lambda yes, rng: json.dumps({"rows": [page(yes, rng)]}), ["rows"]),
        (lambda yes, rng: json.dumps({"rows": [0] * (9 * yes), "n": 1}), ["rows"]),
        (lambda yes, rng: json.dumps({"rows": [0] * (9 * yes), "n": 1}, indent=1), ["rows"]),
        (lambda yes, rng: json.dumps({"note": "not paid yet" if yes else "paid"}), ["note"]),
        (lambda yes, rng: (prose(rng, str(yes)), dumped(yes, rng)), ["0", "1.status"]),
        (lambda yes, rng: ("same", *["extra"] * yes), ["1"]),
        (with_coupon, ["coupon"]),
        (lambda yes, rng: with_coupon(yes, rng, inside=True), ["in.coupon"]),
        (dumped, ["status", "absent", "0.absent.too"]),
    ],
)
def test_what_is_declared_tells_nothing_wherever_it_stands(text, declared):
    assert tells(told(text), declared) == []


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (["stat", "n"], None),  # one may be absent
        (["status", "ok"], "no text has the declared 'ok'; full paths are: 0.debug.ok, debug.ok"),
        (["status", "1"], "no text has the declared '1'"),
        (["status", "7.status"], "no text has the declared '7.status'"),
        (["stat", "state"], "no text has the declared 'stat'; full paths are: .*, status"),
        ([""], "no text has the declared ''"),
    ],
)
def test_a_declared_name_that_covers_nothing_is_refused_where_it_must_be_wrong(declared, said):
    shown = told(lambda yes, rng: dumped(yes, rng, debug={"ok": rng.random()}))
    if said is None:
        assert "0.status" in [tell.feature for tell in tells(shown, declared)]
        return
    with pytest.raises(ValueError, match=said):
        tells(shown, declared)


def test_a_number_in_place_of_a_name_is_refused():
    with pytest.raises(TypeError, match=r"declared must be names, such as \['0'\], got \[0\]"):
        tells(seen(), [0])


def test_names_may_come_from_a_generator():
    assert tells(seen(), (name for name in DECLARED)) == []


@pytest.mark.parametrize("text", ["{" * 50_000, '{"a":' * 5000, '{"a": "' * 9000])
def test_braces_that_open_nothing_take_no_time(text):
    assert leaks._decoded(text) == ([], text)


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
        ("z%65bra%2D91c7", "as it is"),
        ("".join(f"&#{byte};" for byte in CANARY.encode()), "as it is"),
    ],
)
def test_a_canary_is_found_however_it_is_written(text, how):
    assert sightings_of_canary(CANARY, ["nothing", text]) == [(1, how)]


@pytest.mark.parametrize("coded", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("after", ["", "x", "xy", '"}', "??>~"])
@pytest.mark.parametrize("before", ["", "x", "xy", '{"expected": "', "??>~~"])
@pytest.mark.parametrize("canary", [CANARY, "zebra9", "zebra91", "zebra-café"])
def test_a_canary_amid_others_is_found_in_base64(canary, before, after, coded):
    text = coded(f"{before}{canary}{after}".encode()).decode()
    assert sightings_of_canary(canary, [text, text.rstrip("=")]) == [(0, "base64"), (1, "base64")]


@pytest.mark.parametrize("canary", [CANARY, "zebra-café"])
def test_a_canary_in_json_in_base64_is_found(canary):
    text = base64.b64encode(json.dumps({"expected": canary}).encode()).decode()
    assert sightings_of_canary(canary, [text]) == [(0, "base64")]


def test_no_canary_no_sighting():
    rng = random.Random(0)
    noise = base64.b64encode(rng.randbytes(100_000)).decode()
    texts = ["zebra", "91c7", "horse-91c7", "zebra%2091", noise, rng.randbytes(100_000).hex()]
    assert sightings_of_canary(CANARY, texts) == []


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
    with pytest.raises(TypeError, match="shown must be texts"):
        sightings_of_canary(CANARY, [{"goal": CANARY}])


def test_depth_is_no_trouble():
    deep = '{"a":' * 400 + "1" + "}" * 400
    fields = dict(leaks._flat("0", deep, leaks._Declared(frozenset())))
    assert fields["0" + ".a" * 3 + ".#"] == fields["0" + ".a" * 400] == 1
