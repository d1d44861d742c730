"""Shell lines for the worlds of one generator: a small action vocabulary for a tiny policy, and clerks who play it.

A large model writes its own programs; a policy of half a million parameters cannot. The environment here is that of
`worldfirst/environment.py` with the same bash tool, the same budget rule and the same graders, and with a prompt that
also shows some lines of ordinary shell, each a single step of the work on a warehouse of the tier `nano`:

    look       dates, money: what the sales files of this instance look like
    profile    one for each guess of their layouts; the look tells which one is right, and every node needs it
    steps      dimensions, repairs, facts, reports, manifest; of some there is a wrong variant
    useless    ls, wc, the stale report of the cache, and one that destroys the work

Nothing keeps a policy from other commands. `solution` names the lines that pass; it knows the sealed plan.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..types import PublicView
from ..worldfirst.environment import BASH, SUBMIT, Environment, Scoring, WorkspaceEpisode
from ..worldfirst.grading import Grading
from ..worldfirst.instances import Instance, instance
from ..worldfirst.shell import Shell

GENERATOR, TIER, CALLS = "warehouse", "nano", 12
DONE = "Done."
Messages = list[dict[str, Any]]


def _program(text: str, arguments: str = "") -> str:
    """Return the line that runs a Python program; what it cannot do it says in one word, and leaves no file."""
    return f"python3 - {arguments}&>/dev/null <<'end' || echo failed\n{text}end"


# --- the lines --------------------------------------------------------------------------------------------
# They hold hardly a digit or a capital word: the tokenizer of `tiny.py` cuts there, and a line is few tokens.
_PROFILE = """\
import csv, glob, json, os, sys
_, *names = sys.argv
os.makedirs("output", exist_ok=True)
out = csv.writer(open("output/profile.csv", "w"), lineterminator="\\n")
out.writerow(["partition", "layout", "rows", "distinct_ids"])
for path, name in zip(sorted(glob.glob("input/sales/*")), names):
    text = open(path)
    rows = json.load(text) if path.endswith("json") else csv.DictReader(text, delimiter="\\t" if "tsv" in path else ",")
    ids = [next(iter(row.values())) for row in rows]
    out.writerow([os.path.basename(path), name, len(ids), len(set(ids))])
"""
_DIMENSIONS = """\
import csv, json
codes, kept = json.load(open("input/codes.json")), dict()
noted = {row["customer_id"]: row for row in json.load(open("input/contacts.json"))}
for row in sorted(csv.DictReader(open("input/customers.csv")), key=lambda row: row["customer_id"]):
    for key in ("region", "segment"):
        note = noted.get(row["customer_id"], row)
        value = __VALUE__
        row[key] = codes[key].get(value, value)
    kept.setdefault((row["name"], row["joined"]), row)
products = list(csv.DictReader(open("input/products.tsv"), delimiter="\\t"))
for row in products:
    row["category"] = codes["category"].get(row["category"], row["category"])
for name, rows in (("customers", list(kept.values())), ("products", products)):
    out = csv.DictWriter(open("output/" + name + ".csv", "w"), list(next(iter(rows))), lineterminator="\\n")
    out.writeheader()
    out.writerows(rows)
"""
_SALES = """\
import csv, json, sqlite3
layouts, sales = json.load(open("input/layouts.json")), []
for part in csv.DictReader(open("output/profile.csv")):
    text, layout = open("input/sales/" + part["partition"]), layouts[part["layout"]]
    tabs = "\\t" if "tsv" in part["partition"] else ","
    _, _, month = part["partition"].partition(".")[False].partition("-")
    for row in json.load(text) if "json" in part["partition"] else csv.DictReader(text, delimiter=tabs):
        sale = {field: row[name] for field, name in layout["columns"].items()}
        sale["date"] = "-".join(reversed(sale["date"].split(".")))
        sale["unit_price"] = sale["unit_price"].replace(".", "")
        sales.append((sale["transaction_id"], sale["date"].startswith(month), sale))
base = sqlite3.connect("input/ledger.sqlite")
posted = {row[False]: row for row in base.execute("select * from postings")}
voids = {row[False] for row in base.execute("select * from voids")}
"""
_REPAIRS = """\
seen = [key for key, _, _ in sales]
found = {("voided", key) for key in seen if key in voids}
found |= {("duplicate", key) for key in seen if seen.count(key) > True and key not in voids}
found |= {("repriced", key) for key, own, sale in sales if own and not sale["unit_price"] and key not in voids}
found |= {("restored", key) for key in posted if key not in seen and key not in voids}
out = csv.writer(open("output/repairs.csv", "w"), lineterminator="\\n")
out.writerow(["kind", "transaction_id"])
out.writerows(sorted(found))
"""
_FACTS = """\
people, codes = list(csv.DictReader(open("input/customers.csv"))), json.load(open("input/codes.json"))
first = dict()
for row in sorted(people, key=lambda row: row["customer_id"]):
    first.setdefault((row["name"], row["joined"]), row["customer_id"])
kept = {row["customer_id"]: first[row["name"], row["joined"]] for row in people}
prices = sorted(csv.DictReader(open("input/prices.csv")), key=lambda row: row["valid_from"])
facts = dict()
for key, own, sale in sales:
    if own and __COUNTS__:
        for row in prices if not sale["unit_price"] else ():
            if row["product_id"] == sale["product_id"] and row["valid_from"] <= sale["date"]:
                price = row["price_cents"]
        *rest, cents, channel = [value for field, value in sale.items() if field != "transaction_id"]
        channel = codes["channel"].get(channel, channel)
        facts[key] = [key, *rest, cents or price, channel]
for row in csv.DictReader(open("output/repairs.csv")):
    if row["kind"] == "restored":
        facts[row["transaction_id"]] = list(posted[row["transaction_id"]])
out = csv.writer(open("output/transactions.csv", "w"), lineterminator="\\n")
out.writerow("transaction_id,date,customer_id,product_id,quantity,unit_price_cents,channel".split(","))
for key, day, customer, *rest in sorted(facts.values()):
    out.writerow([key, day, kept[customer], *rest])
"""
_REPORTS = """\
import collections, csv, json
people = {row["customer_id"]: row for row in csv.DictReader(open("output/customers.csv"))}
things = {row["product_id"]: row for row in csv.DictReader(open("output/products.csv"))}
count, money, segments = collections.Counter(), collections.Counter(), dict()
for sale in csv.DictReader(open("output/transactions.csv")):
    person, thing, quantity = people[sale["customer_id"]], things[sale["product_id"]], int(sale["quantity"])
    revenue, cost = quantity * int(sale["unit_price_cents"]), quantity * int(thing["cost_cents"])
    key = (sale["date"].rpartition("-")[False], person["region"], thing["category"])
    count[key] += quantity
    money[key] += revenue
    sums = segments.setdefault(person["segment"], collections.Counter())
    sums.update(revenue_cents=revenue, cost_cents=cost, margin_cents=revenue - cost)
out = csv.writer(open("output/monthly_revenue.tsv", "w"), delimiter="\\t", lineterminator="\\n")
out.writerow(["month", "region", "category", "quantity", "revenue_cents"])
out.writerows([*key, count[key], money[key]] for key in sorted(count))
print(json.dumps(segments, indent=True, sort_keys=True), file=open("output/segment_margin.json", "w"))
"""
_MANIFEST = """\
import csv, json
rows = dict()
for name in "profile.csv customers.csv products.csv repairs.csv transactions.csv monthly_revenue.tsv".split():
    rows[name] = len(list(csv.reader(open("output/" + name)))) - True
facts = list(csv.DictReader(open("output/transactions.csv")))
revenue = sum(int(row["quantity"]) * int(row["unit_price_cents"]) for row in facts)
told = dict(rows=rows, transactions=len(facts), revenue_cents=revenue)
print(json.dumps(told, indent=True, sort_keys=True), file=open("output/manifest.json", "w"))
"""
GUESSES = (
    "base branch",
    "base legacy",
    "branch base",
    "legacy base",
)  # layouts of the two sales files, by name
LINES: dict[str, str] = {
    "dates": "grep -hoEm1 '[.-][[:digit:]]+[.-]' input/sales/* | tr -d '[:digit:]'",
    "money": r"""grep -hcE '[[:digit:]]\.[[:digit:]][[:digit:]]([^[:digit:].]|$)' input/sales/*""",
    **{f"profile {guess}": _program(_PROFILE, f"{guess} ") for guess in GUESSES},
    "dimensions": _program(_DIMENSIONS.replace("__VALUE__", "row[key] or note[key]")),
    "dimensions by contacts": _program(_DIMENSIONS.replace("__VALUE__", "note[key] or row[key]")),
    "repairs": _program(_SALES + _REPAIRS),
    "facts": _program(_SALES + _FACTS.replace("__COUNTS__", "key not in voids")),
    "facts with voids": _program(_SALES + _FACTS.replace("__COUNTS__", "sale")),
    "reports": _program(_REPORTS),
    "manifest": _program(_MANIFEST),
    "cached report": "cp input/cache/monthly_revenue.csv output/monthly_revenue.tsv",
    "list": "ls output",
    "count": "wc -l < input/prices.csv",
    "clear": "rm -rf output",
}
STEPS = ("dimensions", "repairs", "facts", "reports", "manifest")  # after the profile, in an order that works
WRONG = {
    "dimensions": "dimensions by contacts",
    "facts": "facts with voids",
    "reports": "cached report",
}
_TOLD = "Lines that others have used in this shop, some of them wrongly:\n{lines}"


# --- the environment --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class LineEnvironment(Environment):
    """The environment with the lines in its prompt; grades of a workspace are remembered."""

    @functools.cached_property
    def _view(self) -> PublicView:
        view = super()._view
        lines = "\n".join(f"$ {line}" for line in LINES.values())
        system, task = view.prompt
        told = {"role": "user", "content": f"{task['content']}\n{_TOLD.format(lines=lines)}"}
        return replace(view, prompt=(system, told))

    @functools.cached_property
    def _gradings(self) -> dict[bytes, Grading]:
        return {}

    def graded(self, tree: bytes) -> Grading:
        if tree not in self._gradings:
            self._gradings[tree] = super().graded(tree)
        return self._gradings[tree]


def line_environment(
    seed: int, shell: Shell, *, scoring: Scoring = "pass", calls: int = CALLS
) -> LineEnvironment:
    """Return the environment of one seed. `shell` should remember: the same lines come again and again."""
    return LineEnvironment(instance(GENERATOR, seed, TIER), calls, scoring, shell)


def solution(made: Instance) -> list[str]:
    """Return names of lines that pass when played in this order, looks included; read off the sealed world."""
    return ["dates", "money", f"profile {layouts(made)}", *STEPS]


def layouts(made: Instance) -> str:
    """Return the layouts of the sales files by name of file, as the sealed plan has them."""
    world = made.sealed.world
    renamed = {
        defect.path.removeprefix("input/"): set(defect.parameters["names"].values())
        for defect in made.sealed.plan
        if defect.kind == "schema drift"
    }
    base = set(world.layouts[0].columns)
    found = []
    for part in sorted(world.partitions, key=lambda part: part.path):
        columns = renamed.get(part.path, base)
        found.append(next(layout.name for layout in world.layouts if set(layout.columns) == columns))
    return " ".join(found)


# --- clerks -----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Habits:
    """How clerks are drawn.

    careful   share of clerks who look first and then do every step rightly
    look      chance that a careless clerk takes each of the two looks, which does not change the guess
    skip      chance that a careless clerk leaves a step out; wrong: takes the wrong variant where there is one
    stray     chance of a useless line before a step
    leave     chance, before each step, that a careless clerk stops working; submits: that a clerk then submits
    """

    careful: float = 0.18
    look: float = 0.4
    skip: float = 0.15
    wrong: float = 0.4
    stray: float = 0.12
    leave: float = 0.12
    submits: float = 0.75


def careful(made: Instance, rng: np.random.Generator) -> Iterator[str]:
    """Yield the names of the lines of a clerk who plays well."""
    looks = ["dates", "money"]
    yield from (looks[int(i)] for i in rng.permutation(2))
    yield from solution(made)[2:]
    yield SUBMIT


def careless(habits: Habits, rng: np.random.Generator) -> Iterator[str]:
    """Yield the names of the lines of a clerk who guesses."""
    yield from (look for look in ("dates", "money") if rng.random() < habits.look)
    for step in (f"profile {GUESSES[int(rng.integers(len(GUESSES)))]}", *STEPS):
        if rng.random() < habits.leave:
            break
        if rng.random() < habits.stray:
            yield ("list", "count", "clear")[int(rng.choice(3, p=(0.5, 0.4, 0.1)))]
        if rng.random() >= habits.skip:
            yield WRONG[step] if step in WRONG and rng.random() < habits.wrong else step
    if rng.random() < habits.submits:
        yield SUBMIT


def clerk(environment: LineEnvironment, habits: Habits, rng: np.random.Generator) -> Messages:
    """Return the conversation of one clerk drawn by `habits`."""
    episode = environment.episode()
    good = rng.random() < habits.careful
    lines = careful(environment.instance, rng) if good else careless(habits, rng)
    messages: Messages = [dict(message) for message in episode.view.prompt]
    for line in lines:
        if episode.done:
            break
        messages += _called(episode, line)
    return [*messages, {"role": "assistant", "content": DONE}]


def _called(episode: WorkspaceEpisode, line: str) -> Messages:
    """Play a line, or submit, and return the two messages of it."""
    name, arguments = (SUBMIT, {}) if line == SUBMIT else (BASH, {"command": LINES[line]})
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    reply = episode.call(name, arguments)
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": name, "content": reply},
    ]


def play(environment: LineEnvironment, lines: Sequence[str]) -> WorkspaceEpisode:
    """Play lines by name and submit; return the finished episode."""
    episode = environment.episode()
    for line in [*lines, SUBMIT]:
        _called(episode, line)
    return episode
