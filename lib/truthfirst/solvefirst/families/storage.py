"""Storage: buy when it is cheap, sell when it is dear, and lose a little in between.

Sets        periods t = 1..T
Parameters  buying price b[t] >= 0 and selling price a[t] >= 0 of one unit in period t (both hidden), capacity
            C >= 1, level l at the start, 0 <= l <= C, rate R >= 1 units moved in a period, loss w >= 0
Decision    in each period one of: charge x units, 1 <= x <= min(R, C - l); discharge x units,
            1 <= x <= min(R, l); hold
Dynamics    charging costs b[t] x and discharging earns a[t] x; l changes by x, then falls by w, to 0 at least
Objective   maximise what discharging earns less what charging costs; units left at the end are worth nothing

Prices are not negative, so a unit more is never a burden: the model below may throw units away and has the
same optimum. The loss is a fixed charge in units for every period that is bridged, so the value is not
concave in the level and no rule of marginal prices is exact.

Source: Cahn, "The warehouse problem", Bulletin of the American Mathematical Society 54, 1948; Charnes and
Cooper, "Generalizations of the warehousing model", Operational Research Quarterly 6, 1955; with rates:
Secomandi, "Optimal commodity trading with a capacitated storage asset", Management Science 56, 2010.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx
import numpy as np
import pulp

from .base import (
    Action,
    Entity,
    Family,
    Field,
    Interface,
    Key,
    Move,
    Optimum,
    Quantity,
    Slot,
    Texts,
    Verb,
    published,
    require,
    require_prior,
    require_table,
    skewed_table,
)

Prior = tuple[tuple[int, int, int], ...] | tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Storage:
    """Parameters; prices have shape (T,), in money; their priors are one triple for all, or one a period."""

    buy_price: tuple[int, ...]
    buy_price_prior: Prior
    sell_price: tuple[int, ...]
    sell_price_prior: Prior
    level: int
    capacity: int
    rate: int
    loss: int


class State(NamedTuple):
    period: int
    level: int


def draw(
    rng: np.random.Generator, periods: int, high: int, rate: int, capacity: int, loss: int, swing: int
) -> Storage:
    """Draw usual prices that swing over the periods, and true ones anywhere from 0 to about twice the usual.

    high   about the highest buying price; usual ones lie near a third of it, selling prices two fifths higher
    swing  percentage by which the usual price of a period may differ from that
    """

    def prices(level: float) -> tuple[tuple[int, ...], Prior]:
        usual = level * (1 + swing / 100 * rng.uniform(-1, 1, periods))
        means = np.maximum(2, usual.round()).astype(int).tolist()
        prior = tuple((0, 2 * mean, mean) for mean in means)
        return tuple(skewed_table(rng, triple, 1)[0] for triple in prior), prior

    buy, buy_prior = prices(high / 3)
    sell, sell_prior = prices(high / 3 * 1.4)
    level = int(rng.integers(1, rate + 1))
    return Storage(buy, buy_prior, sell, sell_prior, level, capacity, rate, loss)


def check(theta: Storage) -> None:
    periods = len(theta.buy_price)
    require(periods >= 1, "buy_price", theta.buy_price, "needs at least one period")
    for name in ("buy_price", "sell_price"):
        require_table(name, getattr(theta, name), periods, low=0)
        prior = getattr(theta, f"{name}_prior")
        require_prior(f"{name}_prior", prior)
        if isinstance(prior[0], tuple):
            expected = f"expected {periods} triples, one a period"
            require(len(prior) == periods, f"{name}_prior", len(prior), expected)
    require(theta.capacity >= 1, "capacity", theta.capacity, "must be at least 1")
    require(0 <= theta.level <= theta.capacity, "level", theta.level, f"must lie in 0..{theta.capacity}")
    require(theta.rate >= 1, "rate", theta.rate, "must be at least 1")
    require(theta.loss >= 0, "loss", theta.loss, "must be at least 0")


def counts(theta: Storage) -> dict[str, int]:
    return {"period": len(theta.buy_price)}


def start(theta: Storage) -> State:
    return State(0, theta.level)


def legal(theta: Storage, state: State) -> tuple[Move, ...]:
    if state.period == len(theta.buy_price):
        return ()
    room, stored = min(theta.rate, theta.capacity - state.level), min(theta.rate, state.level)
    moves = [Move("charge", (range(1, room + 1),))] if room else []
    moves += [Move("discharge", (range(1, stored + 1),))] if stored else []
    return (*moves, Move("hold"))


def step(theta: Storage, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    """Whoever trades sees the price; whoever holds sees nothing."""
    t, level, gain = state.period, state.level, 0
    shown: dict[Key, int] = {}
    if action.verb == "charge":
        level += action.args[0]
        gain = -theta.buy_price[t] * action.args[0]
        shown["buy_price", t] = theta.buy_price[t]
    elif action.verb == "discharge":
        level -= action.args[0]
        gain = theta.sell_price[t] * action.args[0]
        shown["sell_price", t] = theta.sell_price[t]
    return State(t + 1, max(0, level - theta.loss)), gain, shown


def default(theta: Storage, state: State) -> Action:
    """Go by usual prices: sell where selling is no worse than later on average, else stock up if buying is
    cheaper than selling later and no dearer than buying later, with what half of the time left can sell.
    """
    t, periods = state.period, len(theta.sell_price)
    sell = [published(theta, ("sell_price", later))[2] for later in range(t, periods)]
    buy = [published(theta, ("buy_price", later))[2] for later in range(t, periods)]
    rest = periods - t - 1
    stored = min(theta.rate, state.level)
    room = min(theta.rate, theta.capacity - state.level, theta.rate * rest // 2 - state.level)
    if stored and sell[0] * rest >= sum(sell[1:]):
        return Action("discharge", (stored,))
    if room > 0 and buy[0] * rest < sum(sell[1:]) and buy[0] * rest <= sum(buy[1:]):
        return Action("charge", (room,))
    return Action("hold")


def abandon(theta: Storage, state: State) -> int:
    return 0


def residual(theta: Storage, state: State) -> Storage:
    tables = {}
    for name in ("buy_price", "sell_price"):
        prior = getattr(theta, f"{name}_prior")
        tables[name] = getattr(theta, name)[state.period :]
        tables[f"{name}_prior"] = prior[state.period :] if isinstance(prior[0], tuple) else prior
    return dataclasses.replace(theta, level=state.level, **tables)


def observe(theta: Storage, state: State) -> dict[str, int]:
    total = len(theta.buy_price)
    return {"now": min(state.period + 1, total), "stored": state.level, "periods_left": total - state.period}


def optimum(theta: Storage) -> Optimum:
    """Dynamic programme over (period, level) with all pairs of levels before and after trading; O(T C^2)."""
    levels = np.arange(theta.capacity + 1)
    change = levels[None, :] - levels[:, None]  # [before, after]
    barred = np.where(np.abs(change) <= theta.rate, 0, np.iinfo(np.int64).min // 4)
    bought, sold = np.maximum(change, 0), np.maximum(-change, 0)
    kept = np.maximum(levels - theta.loss, 0)
    after = np.zeros(theta.capacity + 1, dtype=np.int64)
    choices = []
    for buy, sell in zip(reversed(theta.buy_price), reversed(theta.sell_price), strict=True):
        worth = barred + sell * sold - buy * bought + after[kept][None, :]
        choice = worth.argmax(axis=1)
        after = worth[levels, choice]
        choices.append(choice)
    plan, level = [], theta.level
    for choice in reversed(choices):
        aim = int(choice[level])
        verb = "hold" if aim == level else "charge" if aim > level else "discharge"
        plan.append(Action(verb, () if aim == level else (abs(aim - level),)))
        level = max(0, aim - theta.loss)
    return Optimum(int(after[theta.level]), tuple(plan))


def bound(theta: Storage) -> int:
    """Longest path from the start through the states that can be reached, by Bellman and Ford's method."""
    network: nx.DiGraph[tuple[int, int]] = nx.DiGraph()
    network.add_node((0, theta.level))
    front = {theta.level}
    for t, (buy, sell) in enumerate(zip(theta.buy_price, theta.sell_price, strict=True)):
        arrivals = set()
        for level in front:
            for aim in range(max(0, level - theta.rate), min(theta.capacity, level + theta.rate) + 1):
                cost = buy * (aim - level) if aim > level else sell * (aim - level)
                tail, head = (t, level), (t + 1, max(0, aim - theta.loss))
                if cost < network.get_edge_data(tail, head, {"cost": np.inf})["cost"]:
                    network.add_edge(tail, head, cost=cost)
                arrivals.add(head[1])
        front = arrivals
    costs = nx.single_source_bellman_ford_path_length(network, (0, theta.level), weight="cost")
    return -min(int(costs[len(theta.buy_price), level]) for level in front)


def model(theta: Storage) -> pulp.LpProblem:
    """MILP: one binary says whether a period charges, another whether anything outlasts it."""
    problem = pulp.LpProblem("storage", pulp.LpMaximize)
    terms, level = [], pulp.LpAffineExpression(constant=theta.level)
    for t, (buy, sell) in enumerate(zip(theta.buy_price, theta.sell_price, strict=True)):
        charging = problem.add_variable(f"charging_{t}", cat="Binary")
        lasting = problem.add_variable(f"lasting_{t}", cat="Binary")
        bought = problem.add_variable(f"bought_{t}", lowBound=0)
        sold = problem.add_variable(f"sold_{t}", lowBound=0)
        kept = problem.add_variable(f"kept_{t}", lowBound=0)
        problem += bought <= theta.rate * charging, f"charge_rate_{t}"
        problem += sold + theta.rate * charging <= theta.rate, f"discharge_rate_{t}"
        problem += level + bought - sold <= theta.capacity, f"capacity_{t}"
        problem += level + bought - sold >= theta.loss * lasting + kept, f"loss_{t}"
        problem += kept <= theta.capacity * lasting, f"lasting_{t}"
        terms += [sell * sold, -buy * bought]
        level = 1 * kept
    problem += pulp.lpSum(terms)
    return problem


FAMILY = Family(
    name="storage",
    title="Storage: buying cheap and selling dear through one store",
    coupling="stock",
    solver="dynamic programming",
    certificate="longest path by the Bellman-Ford method",
    interface=Interface(
        entities=(Entity("period", ordinal=True),),
        scalars=(
            Quantity("level", "goods"),
            Quantity("capacity", "goods"),
            Quantity("rate", "goods"),
            Quantity("loss", "goods"),
        ),
        fields=(
            Field("buy_price", ("period",), "money", hidden=True),
            Field("sell_price", ("period",), "money", hidden=True),
        ),
        facts=(Quantity("now", "period"), Quantity("stored", "goods"), Quantity("periods_left", "period")),
        verbs=(Verb("charge", (Slot("amount"),)), Verb("discharge", (Slot("amount"),)), Verb("hold")),
    ),
    texts=Texts(
        rules=(
            (
                "Each of the {n_period} {periods}, in order, is settled by one decision: buy with "
                "{tool_charge}, or sell with {tool_discharge}, or let it pass with {tool_hold}. Buying and "
                "selling in the same {period} is not possible.",
                "Three tools settle the {periods}, one call for each {period} from 1 to {n_period}. "
                "{tool_charge} takes {goods} in, {tool_discharge} gives {goods} out, {tool_hold} moves "
                "nothing.",
                "You go through {n_period} {periods} once. In any {period} you either take in "
                "({tool_charge}) or give out ({tool_discharge}) some {goods}, never both, or you do nothing "
                "({tool_hold}), and the next {period} begins.",
            ),
            (
                "At the start {level} {goods} are stored, and there is room for {capacity} in all. An "
                "amount is a whole number of at least 1. It may not exceed {rate} in one {period}, nor the "
                "free room when buying, nor what is stored when selling.",
                "Limits: no more than {capacity} {goods} in the store at any time, no more than {rate} "
                "moved in one {period}, and nothing sold that is not there. The store begins with {level}; "
                "an amount is 1 or more, in whole units.",
                "One {period} can move from 1 to {rate} {goods}, in whole numbers, as long as the store, "
                "which holds {level} at first, neither passes {capacity} nor falls short of what is sold.",
            ),
            (
                'Every unit bought costs the "{label_buy_price}" of that {period}, every unit sold earns '
                'its "{label_sell_price}". A price comes to light when you trade at it, or when you ask; '
                "any {period} in which nothing moves shows neither.",
                'Both prices belong to the {period} of the trade: pay "{label_buy_price}" times the amount, '
                'or receive "{label_sell_price}" times the amount. If you trade you see the price that '
                "applied, and only that one.",
                'The {money} for a trade are its amount times one price, "{label_buy_price}" (paid) or '
                '"{label_sell_price}" (received), as it stands in that {period}. That price is known to you '
                "from then on; waiting reveals none.",
            ),
            (
                "After the decision of each {period} the store loses {loss} of its {goods}, or all of them "
                "if it holds fewer. When the last {period} is over, or when you stop earlier, what is still "
                "stored brings nothing.",
                "Every {period}, whether you traded or not, ends with {loss} {goods} less than are then in "
                "store, down to an empty store at worst. Stored {goods} have no value in the end, and "
                "{periods} you do not play bring and cost nothing.",
                "The store leaks. As every {period} closes, its content drops by {loss}, but not below 0. "
                "Nothing is paid for the content at the very end, and if you leave early, the {periods} you "
                "skip neither earn nor cost anything.",
            ),
        ),
        goal=(
            "Maximise the {money} earned by selling minus the {money} paid for buying, over all {periods}.",
            "What counts is the difference between receipts and payments after {n_period} {periods}, in "
            "{money}.",
            "Trade so that the balance of {money}, which begins at nought and may go below it on the way, "
            "ends as high as possible.",
        ),
        status="current {period}: {now}; {goods} stored: {stored}; {periods} left: {periods_left}.",
        outcomes={
            "charge": "{goods} bought: {amount}; {money} gained: {gain}.",
            "discharge": "{goods} sold: {amount}; {money} gained: {gain}.",
            "hold": "{goods} moved: none; {money} gained: {gain}.",
        },
    ),
    sizes={
        "nano": {"periods": 3, "high": 9, "rate": 3, "capacity": 5, "loss": 1, "swing": 15},
        "small": {"periods": 10, "high": 30, "rate": 4, "capacity": 10, "loss": 1, "swing": 50},
        "medium": {"periods": 14, "high": 30, "rate": 4, "capacity": 12, "loss": 1, "swing": 50},
        "large": {"periods": 18, "high": 40, "rate": 5, "capacity": 16, "loss": 1, "swing": 50},
        "huge": {"periods": 22, "high": 40, "rate": 6, "capacity": 20, "loss": 1, "swing": 50},
        "long": {"periods": 24, "high": 30, "rate": 4, "capacity": 12, "loss": 1, "swing": 50},
    },
    theta_type=Storage,
    draw=draw,
    check=check,
    optimum=optimum,
    bound=bound,
    start=start,
    legal=legal,
    step=step,
    default=default,
    abandon=abandon,
    residual=residual,
    counts=counts,
    observe=observe,
    horizon=lambda theta: len(theta.buy_price),
    model=model,
)
