"""The bound: above everything that can be done in a store small enough to try, near a plan in a large one."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truthfirst.store import mechanism
from truthfirst.store.bound import hull, order_bounds, solve_bound, u_zero
from truthfirst.store.mechanism import State
from truthfirst.store.planner import plan_store
from truthfirst.store.theta import Good, Terms, Theta, sample

GOOD = Good("tea", cost=100, prices=(150, 260), lead=1, shelf=2, holding=5, salvage=30)
TERMS = Terms(
    days=3,
    goods=(GOOD,),
    cash=400,
    staff=0,
    rent=20,
    wage=30,
    handling=2,
    hire_fee=10,
    staff_limit=2,
    order_fee=15,
    limit=150,
    interest=20_000,
    survey_fee=10,
)


def best(theta: Theta) -> int:
    """Return the optimum by trying every order, price, staff and loan, and closing, on every day."""
    terms = theta.terms

    @functools.cache
    def value(state: State) -> int:
        worth = mechanism.net_worth(terms, state)
        if state.ended:
            return worth
        found = worth  # close today
        for loan, staff, units, k in itertools.product(
            (0, terms.limit - state.loan),
            range(terms.staff_limit + 1),
            range(6) if state.day + 1 < terms.days else (0,),
            range(2),
        ):
            try:
                after = mechanism.borrow(terms, state, loan) if loan else state
                after = mechanism.set_staff(terms, after, staff)
                after = mechanism.order(terms, after, 0, units) if units else after
                spare = min(after.cash, after.loan)
                after = (
                    mechanism.repay(terms, after, spare) if spare else after
                )  # cash earns nothing, a loan costs
            except mechanism.Refusal:
                continue
            after = mechanism.set_price(terms, after, 0, terms.goods[0].prices[k])
            found = max(found, value(mechanism.end_day(theta, after)[0]))
        return found

    return value(mechanism.start(terms))


DAYS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=3, max_size=3)


@settings(max_examples=12, deadline=None)
@given(DAYS, st.integers(100, 400), st.integers(0, 40))
def test_the_bound_is_above_everything_that_can_be_done(days, cash, rent):
    demand = tuple(((high + low, low),) for high, low in days)
    theta = Theta(replace(TERMS, cash=cash, rent=rent), demand)
    bound, optimum = solve_bound(theta), best(theta)
    assert u_zero(theta) <= optimum <= bound.u_bar
    assert plan_store(theta, bound)[0] <= optimum


def test_a_store_whose_optimum_is_known_by_hand():
    """Two units a day at 260 from day 1 on, bought at 100, all terms free: 2 days of 2 (260 - 100)."""
    free = replace(
        TERMS, rent=0, wage=0, hire_fee=0, order_fee=0, interest=0, goods=(replace(GOOD, holding=0),)
    )
    theta = Theta(free, (((2, 2),),) * 3)
    assert best(theta) == 400 + 2 * 2 * 160
    assert solve_bound(theta).u_bar == pytest.approx(1_040, abs=1)
    hopeless = Theta(replace(free, rent=1_000), (((2, 2),),) * 3)
    assert solve_bound(hopeless).u_bar == pytest.approx(400, abs=1)  # closing is best


def test_prices_on_the_hull_only():
    assert hull((100, 200, 300), (10, 6, 0)) == [1, 0]  # (6, 1200), (10, 1000); nothing is sold at 300
    assert hull((100, 200, 300), (10, 4, 3)) == [
        2,
        0,
    ]  # (4, 800) lies under the line from (3, 900) to (10, 1000)
    assert hull((100, 200), (0, 0)) == []


def test_the_most_that_an_order_can_sell():
    theta = Theta(replace(TERMS, days=4), (((3, 1),), ((4, 1),), ((5, 1),), ((6, 1),)))
    assert order_bounds(theta, 0) == [9, 11, 6, 0]  # lead 1, two days of shelf


@pytest.mark.parametrize("seed", range(6))
def test_a_full_information_plan_reaches_four_fifths_of_the_bound(seed):
    theta = sample(seed, 56, 3)
    bound = solve_bound(theta)
    u, moves = plan_store(theta, bound)
    assert (u - u_zero(theta)) / (bound.u_bar - u_zero(theta)) >= 0.8
    assert u <= bound.u_bar
    assert moves


def test_the_plan_is_what_its_moves_earn():
    theta = sample(1, 28, 2)
    u, moves = plan_store(theta, solve_bound(theta))
    state = mechanism.start(theta.terms)
    for move in moves:
        if move.verb == "end_day":
            state, _ = mechanism.end_day(theta, state)
        else:
            state = getattr(mechanism, move.verb)(theta.terms, state, *move.arguments)
    assert state.ended
    assert mechanism.net_worth(theta.terms, state) == u
