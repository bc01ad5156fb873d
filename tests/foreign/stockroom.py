"""Stock room: ship, split, backorder or refuse an order. Calls are JSON, e.g. {"tool": "get_stock", "id": "K-1"}.
Rule: refuse if open_balance + quantity * unit_price > credit_limit; else ship if the home site has enough on hand;
else split if all sites together have enough; else backorder."""

import json
import random
import re
import string
import gymnasium as gym

ANSWERS = ("ship", "split", "backorder", "refuse")
DECLARED = (
    "lines.quantity",
    "lines.unit_price",
    "account.open_balance",
    "account.credit_limit",
    "home_site",
    "bins.site",
    "bins.on_hand",
)
VARIANTS = {
    "clean": False,
    "clean_trace": False,
    "clean_keyorder": False,
    "clean_constant": False,
    "leak_field": True,
    "leak_code": True,
    "leak_check": True,
    "leak_keyorder": True,
    "leak_cycle": True,
    "leak_partial": True,
}
SITES = ("north", "dock", "annex")
NOTES = (
    "all on the shelf here",
    "two vans again",
    "wait for the supplier",
    "accounts will not like it",
)


def rng(*parts):
    return random.Random("stock|" + "|".join(map(str, parts)))


def rule(f):
    if f["open_balance"] + f["quantity"] * f["unit_price"] > f["credit_limit"]:
        return "refuse"
    if f["on_hand"][f["home_site"]] >= f["quantity"]:
        return "ship"
    return "split" if sum(f["on_hand"].values()) >= f["quantity"] else "backorder"


def draw(r):
    q, price, balance = r.randint(6, 60), r.randint(200, 3000) / 100, r.randint(0, 900)
    home = r.choice(SITES)
    stock = {s: int(q * r.uniform(0, 1.7 if s == home else 0.65)) for s in SITES}
    limit = int((balance + q * price) * r.uniform(0.8, 1.7))
    return dict(
        quantity=q,
        unit_price=price,
        open_balance=balance,
        credit_limit=limit,
        home_site=home,
        on_hand=stock,
    )


class Env(gym.Env):
    def __init__(self, variant="clean"):
        assert variant in VARIANTS, variant
        self.variant, self.seed_, self.index = variant, 0, -1
        self.observation_space = self.action_space = gym.spaces.Text(4000, charset=string.printable)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed_, last = (self.seed_, self.index) if seed is None else (seed, -1)
        self.index = (options or {}).get("index", last + 1)
        want = ANSWERS[(self.index + self.seed_) % 4] if self.variant == "leak_cycle" else None
        tries = (draw(rng(self.seed_, self.index, "facts", attempt)) for attempt in range(10000))
        self.facts, self.answer = next((f, rule(f)) for f in tries if want in (None, rule(f)))
        n = rng(self.seed_, self.index, "noise")
        self.ids = {
            "get_order": f"O-{n.randint(10000, 99999)}",
            "get_stock": f"K-{n.randint(100, 999)}",
            "get_customer": f"C{n.randint(1000, 9999)}",
        }
        self.busy, self.left, self.done = n.random() < 0.15, 12, False
        return (
            f'Order {self.ids["get_order"]} is waiting. Tools: get_order, get_stock, get_customer (each with "id"), '
            'and decide with "action" one of ship, split, backorder, refuse.'
        ), {}

    def page(self, tool):
        f, i, k = self.facts, self.ids, ANSWERS.index(self.answer)
        n = rng(self.seed_, self.index, "noise", tool)
        stamp = f"2024-0{n.randint(1, 9)}-{n.randint(10, 28)}T{n.randint(10, 23)}:{n.randint(10, 59)}:00Z"
        if tool == "get_order":
            line = {"sku": i["get_stock"], "quantity": f["quantity"], "unit_price": f["unit_price"]}
            page = {
                "order_id": i[tool],
                "placed": stamp,
                "customer_id": i["get_customer"],
                "home_site": f["home_site"],
                "lines": [line],
                "channel": n.choice(["web", "phone", "edi"]),
            }
            if self.variant == "leak_field":
                page["meta"] = {"recommended_action": self.answer}
            if self.variant == "leak_code":
                page["wave"] = f"W{(23, 17, 61, 48)[k]}"
            if self.variant == "leak_check":  # the digits' sum modulo 4 is the answer
                digits = [n.randint(0, 9) for _ in range(5)]
                page["pick_no"] = "".join(map(str, digits)) + str(
                    (k - sum(digits)) % 4 + 4 * n.randint(0, 1)
                )
            if self.variant == "leak_partial":  # true in 70% of the tasks, empty in the others
                page["picker_note"] = NOTES[k] if n.random() < 0.7 else ""
            if self.variant == "clean_constant":
                page.update(decision="pending", expected_action=None, answer_code=0)
        elif tool == "get_stock":
            bins = [
                {
                    "site": s,
                    "on_hand": f["on_hand"][s],
                    "counted_by": n.choice(["ida", "bo", "lin"]),
                }
                for s in SITES
            ]
            n.shuffle(bins)
            page = {"sku": i[tool], "bins": bins, "last_count": stamp}
        else:
            page = {
                "customer_id": i[tool],
                "region": n.choice(["east", "west"]),
                "since": n.randint(1998, 2023),
                "account": {"open_balance": f["open_balance"], "credit_limit": f["credit_limit"]},
                "checked": stamp,
            }
            if self.variant == "leak_keyorder":  # which key comes first and second
                page = {key: page[key] for key in (list(page) * 2)[k : k + len(page)]}
        if self.variant == "clean_trace":
            page["trace"] = f"{n.getrandbits(128):032x}"
            page["memo"] = " ".join(
                n.choice(["ok", "floor", "manager", "rain", "truck"])
                for _ in range(n.randint(0, 14))
            )
        if self.variant == "clean_keyorder":
            page = dict(n.sample(list(page.items()), len(page)))
        return page

    def step(self, text):
        assert not self.done
        self.left -= 1
        try:
            call = json.loads(text)
            tool, ident = call["tool"], call.get("id")
        except (ValueError, KeyError, TypeError, AttributeError):
            return json.dumps({"error": "not a tool call"}), 0.0, False, self.left <= 0, {}
        if tool == "decide":
            self.done = True
            return (
                json.dumps({"closed": True}),
                float(call.get("action") == self.answer),
                True,
                False,
                {},
            )
        page = {"error": "unknown tool or id"}
        if ident is not None and self.ids.get(str(tool)) == ident:
            page = self.page(tool)
            if tool == "get_stock" and self.busy:
                self.busy, page = False, {"error": {"code": 503, "message": "stock service busy"}}
        return json.dumps(page), 0.0, False, self.left <= 0, {}


def sighting(env, seed: int, index: int) -> tuple[list[str], str]:
    first, _ = env.reset(seed=seed, options={"index": index})
    texts = [
        first,
        env.step(json.dumps({"tool": "get_order", "id": re.search(r"O-\d+", first).group()}))[0],
    ]
    order = json.loads(texts[1])
    for tool, ident in (
        ("get_stock", order["lines"][0]["sku"]),
        ("get_customer", order["customer_id"]),
    ):
        texts.append(env.step(json.dumps({"tool": tool, "id": ident}))[0])
        if "error" in json.loads(texts[-1]):
            texts.append(env.step(json.dumps({"tool": tool, "id": ident}))[0])
    return texts, env.answer
