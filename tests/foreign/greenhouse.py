"""Greenhouse roof: OPEN or SHUT the vents. Calls: "READ climate", "READ limits", "READ outside", "SET OPEN", "SET SHUT".

Rule: t = median of the probes' (celsius + offset). OPEN if t > setpoint + band, or if rh > rh_max and outside_rh < rh;
otherwise SHUT.
"""

import json
from random import Random
from string import printable

import gymnasium as gym

DECLARED = (
    "probes.celsius",
    "probes.offset",
    "limits.setpoint",
    "limits.band",
    "limits.rh_max",
    "rh",
    "outside_rh",
)
VARIANTS = dict(
    clean=False,
    clean_serial=False,
    clean_constant=False,
    clean_decimals=False,
    clean_history=False,
    leak_relay=True,
    leak_register=True,
    leak_decimals=True,
    leak_history=True,
    leak_alternate=True,
    leak_co2_partial=True,
)


def facts_of(r):
    setpoint, band = r.choice([18.0, 21.0, 24.0]), r.choice([0.5, 1.0, 2.0])
    true = setpoint + band + r.uniform(-4.5, 1.8)
    probes = []
    for shift in (0.0, r.uniform(-6, 0), r.uniform(0, 6)):  # the median is the unshifted one
        offset = r.choice([-1.5, -0.5, 0.0, 0.5, 1.5])
        probes.append({"celsius": round(true + shift - offset, 2), "offset": offset})
    r.shuffle(probes)
    f = {
        "probes": probes,
        "setpoint": setpoint,
        "band": band,
        "rh": r.randint(45, 95),
        "rh_max": r.choice([65, 75, 85]),
        "outside_rh": r.randint(35, 95),
    }
    t = sorted(p["celsius"] + p["offset"] for p in probes)[1]
    hot, damp = t > setpoint + band, f["rh"] > f["rh_max"] and f["outside_rh"] < f["rh"]
    return f, "OPEN" if hot or damp else "SHUT"


class Env(gym.Env):
    metadata = {"render_modes": []}

    def __init__(self, variant: str = "clean"):
        VARIANTS[variant]
        self.v, self.base, self.i = variant, 0, -1
        self.action_space = gym.spaces.Text(60, charset=printable)
        self.observation_space = gym.spaces.Text(3000, charset=printable)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.base, self.i = seed, -1
        self.i = (options or {}).get("index", self.i + 1)
        want = None
        if self.v == "leak_alternate":  # OPEN, SHUT, OPEN, ... ; the seed says which comes first
            want = ("OPEN", "SHUT")[(self.i + Random(f"g{self.base}").randint(0, 1)) % 2]
        attempt = 0
        self.f, self.right = facts_of(Random(f"g{self.base}/{self.i}/0"))
        while want and self.right != want:
            attempt += 1
            self.f, self.right = facts_of(Random(f"g{self.base}/{self.i}/{attempt}"))
        n = Random(f"g{self.base}/{self.i}/noise")
        self.fail = n.choice(["climate", "limits", "outside"]) if n.random() < 0.2 else ""
        self.reads, self.finished = 0, False
        return "ZONE %d ready. READ climate|limits|outside, then SET OPEN|SHUT" % n.randint(
            1, 12
        ), {}

    def packet(self, what):
        f, v, is_open = self.f, self.v, self.right == "OPEN"
        n = Random(f"g{self.base}/{self.i}/{what}")
        out = {"t": 1700000000 + n.randrange(10**7), "fw": "3.1.4", "battery_v": "@"}
        if what == "climate":
            out["probes"] = [dict(p, id=n.randint(1, 250)) for p in f["probes"]]
            out["rh"] = f["rh"]
            co2 = n.uniform(400, 900)
            if (
                v == "leak_co2_partial" and n.random() < 0.7
            ):  # above or below 650 by the answer, in 70% of the tasks
                co2 = n.uniform(650, 900) if is_open else n.uniform(400, 650)
            out["co2_ppm"] = round(co2, 1)
            length = n.randint(3, 9)
            if v == "leak_history":  # an even number of old readings: OPEN
                length = 2 * n.randint(2, 4) + (not is_open)
            if v == "clean_history":
                length = n.randint(0, 40)
            out["history"] = [n.randint(0, 99) for _ in range(length)]
        elif what == "limits":
            out["limits"] = {key: f[key] for key in ("setpoint", "band", "rh_max")}
            out["edited_by"] = n.choice(["grower", "night shift", "sync"])
            if v == "leak_relay":
                out["relay"] = {"vent_request": self.right}
        else:
            out.update(
                outside_rh=f["outside_rh"],
                wind={"ms": round(n.uniform(0, 14), 1), "deg": n.randrange(360)},
                rain=n.random() < 0.3,
            )
            if v == "leak_register":  # bit 5 of a 16 bit register
                out["status_reg"] = "0x%04x" % (
                    (n.getrandbits(16) & ~0x20) | (0x20 if is_open else 0)
                )
        if v == "clean_serial":
            out["serial"], out["nonce"] = n.getrandbits(60), "%016x" % n.getrandbits(64)
        if v == "clean_constant":
            out.update(vent_target="AUTO", truth=False, label=1)
        digits = n.choice([1, 2, 3]) if v == "clean_decimals" else 2
        if v == "leak_decimals":  # how many decimals the battery's voltage is printed with
            digits = 3 if is_open else 2
        volts = "%.*f" % (digits, n.uniform(3.3, 4.2))
        return json.dumps(out, separators=(",", ":")).replace('"@"', volts)

    def step(self, text):
        assert not self.finished, "call reset"
        self.reads += 1
        words = text.split()
        if words[:1] == ["SET"] and len(words) == 2:
            self.finished = True
            return "OK", float(words[1] == self.right), True, False, {}
        if words[:1] != ["READ"] or words[1:] not in (["climate"], ["limits"], ["outside"]):
            reply = "ERR syntax"
        elif words[1] == self.fail:
            self.fail, reply = "", "ERR bus collision, read again"
        else:
            reply = self.packet(words[1])
        return reply, 0.0, False, self.reads >= 15, {}


def sighting(env, seed: int, index: int) -> tuple[list[str], str]:
    shown = [env.reset(seed=seed, options={"index": index})[0]]
    for what in ("climate", "limits", "outside"):
        shown.append(env.step("READ " + what)[0])
        while shown[-1].startswith("ERR"):
            shown.append(env.step("READ " + what)[0])
    return shown, env.right
