"""Repair hotline: send a van, a letter or nobody. What decides is JSON, dressed in other text.

Rule: nobody if warranty is over; else a van if the fault is heavy (weight 20 or more); else a
letter. Every call also brings prose with a unique number, random words and signs.
"""

import json
import random

ANSWERS = ("van", "letter", "nobody")
DECLARED = ("0", "device.weight", "device.warranty")
VARIANTS = {
    "clean": False,
    "clean_wrapped": False,
    "clean_lines": False,
    "clean_string": False,
    "clean_fence": False,
    "clean_optional": False,
    "clean_list": False,
    "leak_same_name": True,
    "leak_position": True,
    "leak_case": True,
    "leak_emoji": True,
    "leak_letter": True,
    "leak_trace": True,
    "leak_second_object": True,
    "leak_string": True,
    "leak_inner_order": True,
}
WORDS = "Please the caller Called again Floor floor box North of a I left kitchen today".split(" ")


def declared(variant):
    """The names, with the path to the string that the device is in."""
    return [name.replace("dev", "body.dev" if "string" in variant else "dev") for name in DECLARED]


def prose(r, said=""):
    words = [r.choice(WORDS) for _ in range(r.randint(3, 12))]
    marks = "".join(r.choice("!.;🙂") for _ in range(2))
    return f"Call {r.randint(10**5, 10**6)} from {r.choice('ABCD')}: {' '.join(words)}{said}{marks}"


def sighting(variant, seed, index):
    r = random.Random(f"hotline {seed} {index}")
    device = {"weight": r.randint(1, 40), "warranty": r.random() < 0.67}
    device |= {"colour": r.choice("rgb"), "model": r.randint(1, 9)}
    k = 2 if not device["warranty"] else 0 if device["weight"] >= 20 else 1
    page = {"call": r.randint(0, 999), "device": device, "shift": r.choice(["early", "late"])}
    said = {
        "leak_case": ("", " Urgent", " urgent")[k],
        "leak_emoji": (" 🚚", " ✉", "")[k],
        "leak_letter": f" class {'XYZ'[k]}",
        "leak_trace": f" trace {r.getrandbits(32):08x}b{'05a'[k]}",
    }.get(variant, "")
    if variant == "leak_same_name":
        page["debug"] = {"weight": ANSWERS[k], "warranty": r.random() < 0.5}
    if variant == "leak_position":
        page["hist"] = [ANSWERS[k], r.choice(WORDS)]
    if variant == "clean_optional" and not device["warranty"]:
        del device["warranty"]
    if variant == "clean_list":  # how much of it there is decides, and it is declared
        device["warranty"] = [r.randint(0, 9) for _ in range(9 * device["warranty"])]
    if variant == "leak_inner_order" and k == 1:
        page["device"] = dict(reversed(device.items()))
    text = json.dumps(page, indent=2 if variant in ("clean_list", "clean_optional") else None)
    match variant:
        case "clean_wrapped":
            text = f"Use {{tool}} calls, not {{}} or {{x. Result: {text} End."
        case "clean_lines":
            text = f'{{"ok": true, "took": {r.randint(1, 99)}}}\n{text}'
        case "clean_string" | "leak_string":
            told = {"shelf": r.choice(WORDS)} | ({"box": 7 * k} if variant == "leak_string" else {})
            text = json.dumps({"role": "tool", "body": f"Result: {text}", "raw": json.dumps(told)})
        case "clean_fence":
            text = f"```json\n{text}\n```\nAs of {r.randint(0, 99)} minutes ago."
        case "leak_second_object":
            text = f'{text}\n{{"trace": {r.randint(0, 99)}, "code": "{"pqr"[k]}"}}'
    return (f"Fault {index}: see device.", prose(r, said), text), ANSWERS[k]
