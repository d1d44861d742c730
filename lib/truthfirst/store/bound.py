"""An upper bound on what any manager can earn: a linear relaxation with full information.

Variables for each day t and good, all continuous and at least 0: orders q, sales s at each price, stock I after
sales. For each day: staff n and hired h; the part o of the store that is open; the loan L after the day's
decisions; and the position P = cash - loan at the day's end, which is free.

    maximise    P_(H-1)
    stock       I_t = I_(t-1) + q_(t-lead) - sum_k s_tk
    shelf life  I_t <= q_(t-lead) + ... + q_(t-lead-shelf+2)
    demand      sum_k s_tk / D_tk <= o_t,  o_t <= o_(t-1)
    staff       sum_g,k s_tk <= handling n_t,  n_t <= n_(t-1) + h_t,  n_t <= staff_limit
    cash        P_(t-1) - S_t + L_t >= 0,  L_t <= limit
    position    P_t = P_(t-1) - S_t + sum price_k s_tk - rent o_t - wage n_t - sum holding I_t - interest L_t
                P_t >= -limit

with S_t = sum (cost + order_fee / M_t) q_t + hire_fee h_t, what the day's decisions cost.

**It bounds every manager.** Let a manager earn u. If u <= u0, the value of closing on the first day, then u is
bounded, since closing at once (all variables but P at 0) is feasible and gives u0; bankruptcy (u = -limit) is such a
case. Else the store ends solvent. Take from its orders every unit that is never sold: such a unit costs more when
ordered than it brings at the end, and taking it away changes no sale (oldest units go first, and the units that are
sold are enough for all sales), so u and cash at every moment only rise. What remains is a feasible point:

- a day's sales of a good are at one price k and at most D_tk, so the sum of s / D is at most 1 while the store is
  open;
- all units of an order are sold from its arrival on, within its shelf life, so an order is at most the sum of the
  largest demands of these days, M_t, and its fee at least order_fee q_t / M_t; every order is such an order, or
  empty;
- what stays overnight has arrived within the last shelf - 1 days, the shelf life row; nothing is thrown away any
  more;
- let L_t be the least loan that leaves cash at 0 or more after the decisions. Every P is at least the real position
  (surveys and rounding only cost), so L_t is at most the real loan, within the limit, and its interest at most the
  real interest; a bill that cash does not cover becomes loan, which P does not see; solvent means P_t >= -limit;
- when the store closes on day t, o, n and all else are 0 from t on and the position stays what it is. With no
  unsold unit it is u, and u > u0 >= 0, so no loan and no interest remain.

The mechanism only adds restrictions (whole units and staff, whole order fees, one price a day, dearest goods served
first, rounding), so the optimum, rounded up, is at least u. Sales prices off the upper concave hull of {(0, 0)} and
{(D_tk, price_k D_tk)} are left out: a mix of two others sells as much for no less."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pulp

from ..solvefirst.solve import solve_model
from .mechanism import MILLION
from .theta import Theta

SLACK = 1e-6  # relative: the solver's tolerances, added to the optimum before it is rounded up
TIME_LIMIT = 600.0  # seconds


@dataclass(frozen=True, slots=True)
class Bound:
    """The relaxation's optimum and the plan that attains it there.

    u_bar   upper bound on net worth at the end, cents
    sales   units, shape (days, goods); staff: shape (days,); open: part of the store that is open, shape (days,)
    """

    u_bar: int
    sales: tuple[tuple[float, ...], ...]
    staff: tuple[float, ...]
    open: tuple[float, ...]


def u_zero(theta: Theta) -> int:
    """Return u0: the net worth of closing on the first day, the cash at the start.

    It is the fixed baseline because it needs no policy and no judgement: a manager with a positive reward has created
    value, one that only keeps the doors open until the money is gone has not.
    """
    return theta.terms.cash


def hull(prices: tuple[int, ...], demand: tuple[int, ...]) -> list[int]:
    """Return the indices of the prices on the upper concave hull of (units, revenue), from the origin on."""
    points = sorted(
        {(units, price * units, k) for k, (price, units) in enumerate(zip(prices, demand, strict=True))}
    )
    kept: list[tuple[int, int, int]] = [(0, 0, -1)]
    for point in points:
        if point[0] == 0:
            continue
        while len(kept) > 1 and _turns_up(kept[-2], kept[-1], point):
            kept.pop()
        if point[0] > kept[-1][0]:
            kept.append(point)
    return [k for *_, k in kept[1:]]


def _turns_up(a: tuple[int, int, int], b: tuple[int, int, int], c: tuple[int, int, int]) -> bool:
    """Say whether b lies on or under the line from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) <= (c[1] - a[1]) * (b[0] - a[0])


def order_bounds(theta: Theta, good: int) -> list[int]:
    """Return M: for each day, the most units of an order on that day that can all be sold; shape (days,)."""
    terms = theta.terms
    most = [max(row[good]) for row in theta.demand]
    lead, shelf = terms.goods[good].lead, terms.goods[good].shelf
    return [sum(most[day + lead : day + lead + shelf]) for day in range(terms.days)]


def solve_bound(theta: Theta, time_limit: float = TIME_LIMIT) -> Bound:
    """Solve the relaxation. Raises SolverError where it is not solved to optimality."""
    model = _Model(theta)
    value = solve_model(model.problem, time_limit=time_limit, interior=True)
    days, goods = range(theta.terms.days), range(len(theta.terms.goods))
    sales = tuple(tuple(sum(_value(s) for s in model.sales[t][g].values()) for g in goods) for t in days)
    staff = tuple(_value(n) for n in model.staff)
    opened = tuple(_value(o) for o in model.open)
    bar = math.ceil(value + SLACK * max(1.0, abs(value)))
    return Bound(max(bar, u_zero(theta)), sales, staff, opened)


def _value(variable: pulp.LpVariable) -> float:
    return float(variable.value() or 0.0)


class _Model:
    """The relaxation of one store in PuLP; names as in the module docstring."""

    def __init__(self, theta: Theta) -> None:
        self.theta, terms = theta, theta.terms
        self.problem = pulp.LpProblem("store", pulp.LpMaximize)
        self.days, self.goods = range(terms.days), range(len(terms.goods))
        self.sales: list[list[dict[int, pulp.LpVariable]]] = [
            [
                {
                    k: self.problem.add_variable(f"s_{t}_{g}_{k}", 0)
                    for k in hull(good.prices, theta.demand[t][g])
                }
                for g, good in enumerate(terms.goods)
            ]
            for t in self.days
        ]
        self.staff = [self.problem.add_variable(f"n_{t}", 0, terms.staff_limit) for t in self.days]
        self.hired = [self.problem.add_variable(f"h_{t}", 0) for t in self.days]
        self.open = [self.problem.add_variable(f"o_{t}", 0, 1) for t in self.days]
        self.loan = [self.problem.add_variable(f"L_{t}", 0, terms.limit) for t in self.days]
        self.position = [self.problem.add_variable(f"P_{t}", -terms.limit) for t in self.days]
        self.spent: list[list[tuple[pulp.LpVariable, float]]] = [
            [] for _ in self.days
        ]  # before the day's sales
        self.kept: list[list[tuple[pulp.LpVariable, int]]] = [[] for _ in self.days]  # holding
        for good in self.goods:
            self._stock(good)
        self.problem.setObjective(pulp.LpAffineExpression(self.position[-1]))
        for day in self.days:
            self._market(day)
            self._money(day)

    def _add(self, terms: Sequence[tuple[pulp.LpVariable, float]], sense: int, right: float) -> None:
        self.problem.addConstraint(pulp.LpConstraint(pulp.LpAffineExpression(terms), sense, rhs=right))

    def _stock(self, g: int) -> None:
        """Add orders, stock and shelf life of one good."""
        good, terms = self.theta.terms.goods[g], self.theta.terms
        arriving: dict[int, pulp.LpVariable] = {}  # by day of delivery
        for t, most in enumerate(order_bounds(self.theta, g)):
            if most:
                arriving[t + good.lead] = self.problem.add_variable(f"q_{t}_{g}", 0)
                self.spent[t].append((arriving[t + good.lead], good.cost + terms.order_fee / most))
        before: pulp.LpVariable | None = None
        for t in self.days:
            stock = self.problem.add_variable(f"I_{t}_{g}", 0)
            balance = [(stock, 1), *((s, 1) for s in self.sales[t][g].values())]
            balance += [(before, -1)] if before is not None else []
            balance += [(arriving[t], -1)] if t in arriving else []
            self._add(balance, pulp.LpConstraintEQ, 0)
            young = [(arriving[i], -1) for i in range(t + 2 - good.shelf, t + 1) if i in arriving]
            self._add([(stock, 1), *young], pulp.LpConstraintLE, 0)
            self.kept[t].append((stock, good.holding))
            before = stock

    def _market(self, t: int) -> None:
        """Add demand and staff of one day."""
        terms, hands = self.theta.terms, []
        for g in self.goods:
            sold = self.sales[t][g]
            hands += [(s, 1) for s in sold.values()]
            if sold:
                shares = [(s, 1 / self.theta.demand[t][g][k]) for k, s in sold.items()]
                self._add([*shares, (self.open[t], -1)], pulp.LpConstraintLE, 0)
        self._add([*hands, (self.staff[t], -terms.handling)], pulp.LpConstraintLE, 0)
        if t:
            self._add([(self.open[t], 1), (self.open[t - 1], -1)], pulp.LpConstraintLE, 0)
        before = [(self.staff[t - 1], -1)] if t else []
        self._add(
            [(self.staff[t], 1), (self.hired[t], -1), *before],
            pulp.LpConstraintLE,
            0 if t else terms.staff,
        )
        self.spent[t].append((self.hired[t], terms.hire_fee))

    def _money(self, t: int) -> None:
        """Add cash and position of one day; both are written from the position of the day before."""
        terms = self.theta.terms
        before = [(self.position[t - 1], 1)] if t else []
        opening = 0 if t else terms.cash
        decided = [*before, *((v, -c) for v, c in self.spent[t])]
        self._add([*decided, (self.loan[t], 1)], pulp.LpConstraintGE, -opening)
        taken = [
            (s, good.prices[k])
            for good, sold in zip(terms.goods, self.sales[t], strict=True)
            for k, s in sold.items()
        ]
        bills = [
            (self.open[t], -terms.rent),
            (self.staff[t], -terms.wage),
            (self.loan[t], -terms.interest / MILLION),
            *((v, -c) for v, c in self.kept[t]),
        ]
        self._add([(self.position[t], -1), *decided, *taken, *bills], pulp.LpConstraintEQ, -opening)
