"""The dynamics of a store: a day worked by hand, money and stock conserved, and what ends a store."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truthfirst.store import mechanism
from truthfirst.store.mechanism import Refusal
from truthfirst.store.theta import Event, Good, StoreError, Terms, Theta, sample

TEA = Good("tea", cost=100, prices=(150, 200), lead=1, shelf=2, holding=3, salvage=40)
SOAP = Good("soap", cost=50, prices=(80, 300), lead=2, shelf=9, holding=1, salvage=0)
TERMS = Terms(
    days=4,
    goods=(TEA, SOAP),
    cash=5_000,
    staff=1,
    rent=500,
    wage=200,
    handling=10,
    hire_fee=100,
    staff_limit=3,
    order_fee=30,
    limit=1_000,
    interest=10_000,
    survey_fee=70,
)
DEMAND = (
    ((9, 4), (5, 1)),
    ((9, 6), (5, 2)),
    ((9, 4), (8, 7)),
    ((9, 4), (5, 1)),
)
HAND = Theta(TERMS, DEMAND)


def test_three_days_by_hand():
    state = mechanism.start(TERMS)
    assert state.price == (1, 1)  # 200 and 300
    state = mechanism.order(TERMS, state, 0, 10)  # 1,030
    state = mechanism.order(TERMS, state, 1, 5)  # 280
    assert state.cash == 5_000 - 1_030 - 280
    state, day = mechanism.end_day(HAND, state)  # nothing in stock: rent and a wage
    assert (day.sales, day.bills, day.short) == (0, 700, (True, True))
    assert state.cash == 2_990
    assert state.stock == (((2, 10),), ())  # delivered for day 1, to be sold on days 1 and 2
    state, day = mechanism.end_day(HAND, state)
    assert day.sold == (6, 0)
    assert day.bills == 500 + 200 + 4 * 3
    assert state.cash == 2_990 + 1_200 - 712
    state, day = mechanism.end_day(
        HAND, state
    )  # soap is dearest: 5 of 7, then tea: 4 of 4; ten hands suffice
    assert day.sold == (4, 5)
    assert day.short == (False, True)
    assert state.cash == 3_478 + 5 * 300 + 4 * 200 - 700
    assert not state.ended
    state, _ = mechanism.end_day(HAND, state)
    assert state.ended
    assert not state.bankrupt
    assert mechanism.net_worth(TERMS, state) == state.cash == 5_078 - 700


def test_staff_limits_what_is_sold_and_spoilt_goods_are_lost():
    state = mechanism.order(TERMS, mechanism.start(TERMS), 0, 20)
    state, _ = mechanism.end_day(HAND, state)
    state = mechanism.set_price(TERMS, state, 0, 150)
    assert mechanism.net_worth(TERMS, state) == state.cash + 20 * 40
    without = mechanism.set_staff(TERMS, state, 0)
    after, day = mechanism.end_day(HAND, without)
    assert day.sold == (0, 0)
    after, day = mechanism.end_day(HAND, after)  # day 2 is the last on which the tea can be sold
    assert day.spoiled == (20, 0)
    assert after.on_hand(0) == 0


def test_what_cash_lacks_becomes_loan_and_a_loan_above_the_limit_ends_the_store():
    poor = replace(mechanism.start(TERMS), cash=100)
    after, day = mechanism.end_day(HAND, poor)
    assert (after.cash, after.loan, day.drawn) == (0, 600, 600)
    assert not after.ended
    after, day = mechanism.end_day(HAND, after)
    assert day.bills == 706  # a per cent of 600 for interest
    assert after.bankrupt
    assert after.ended
    assert mechanism.net_worth(TERMS, after) == -TERMS.limit
    with pytest.raises(Refusal, match="has ended"):
        mechanism.end_day(HAND, after)


@pytest.mark.parametrize(
    ("decide", "why"),
    [
        (lambda s: mechanism.order(TERMS, s, 0, 50), "does not cover this order, 5030"),
        (lambda s: mechanism.order(TERMS, s, 0, 0), "at least 1 unit"),
        (lambda s: mechanism.set_price(TERMS, s, 0, 170), "150, 200 cents, not 170"),
        (lambda s: mechanism.set_staff(TERMS, s, 4), "0 to 3, got 4"),
        (lambda s: mechanism.borrow(TERMS, s, 1_001), "1 to 1000 cents"),
        (lambda s: mechanism.repay(TERMS, s, 1), "at most 0 cents"),
        (lambda s: mechanism.pay_survey(TERMS, s), "no day has ended"),
    ],
)
def test_decisions_that_are_not_possible_say_why(decide, why):
    with pytest.raises(Refusal, match=why):
        decide(mechanism.start(TERMS))


def test_a_store_that_cannot_be_is_refused():
    with pytest.raises(StoreError, match="salvage"):
        replace(TEA, salvage=100)
    with pytest.raises(StoreError, match="ascending"):
        replace(TEA, prices=(2, 1))
    with pytest.raises(StoreError, match="one row a day"):
        Theta(TERMS, DEMAND[:2])
    with pytest.raises(StoreError, match="days must be"):
        sample(0, 0)
    with pytest.raises(StoreError, match="goods must be"):
        sample(0, 10, 99)


def test_sampling_is_a_function_of_the_seed_and_demand_falls_with_price():
    theta = sample(3, 40, 4)
    assert theta == sample(3, 40, 4)
    assert theta.hash != sample(4, 40, 4).hash
    for day in theta.demand:
        for units in day:
            assert list(units) == sorted(units, reverse=True)
    assert all(isinstance(event, Event) and event.first < 40 for event in theta.events)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("order"), st.integers(0, 1), st.integers(1, 60)),
        st.tuples(st.just("set_price"), st.integers(0, 1), st.integers(0, 6)),
        st.tuples(st.just("set_staff"), st.integers(0, 5)),
        st.tuples(st.just("borrow"), st.integers(1, 200_000)),
        st.tuples(st.just("repay"), st.integers(1, 200_000)),
        st.tuples(st.just("end_day")),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 20), ACTIONS)
def test_money_and_stock_are_conserved(seed, actions):
    theta = sample(seed, 21, 2)
    terms, state = theta.terms, mechanism.start(theta.terms)
    ordered, sold, spoiled = [0, 0], [0, 0], [0, 0]
    paid = taken = 0
    for verb, *arguments in actions:
        if state.ended:
            break
        try:
            if verb == "end_day":
                state, day = mechanism.end_day(theta, state)
                paid, taken = paid + day.bills, taken + day.sales
                sold = [a + b for a, b in zip(sold, day.sold, strict=True)]
                spoiled = [a + b for a, b in zip(spoiled, day.spoiled, strict=True)]
                assert sum(day.sold) <= terms.handling * state.staff
                assert all(
                    units <= theta.demand[day.day][g][day.price[g]] for g, units in enumerate(day.sold)
                )
                continue
            if verb == "set_price":
                arguments[1] = terms.goods[arguments[0]].prices[arguments[1]]
            before = state
            state = getattr(mechanism, verb)(terms, state, *arguments)
            if verb == "order":
                ordered[arguments[0]] += arguments[1]
                paid += arguments[1] * terms.goods[arguments[0]].cost + terms.order_fee
            paid += terms.hire_fee * max(0, state.staff - before.staff)
        except Refusal:
            continue
    assert state.cash - state.loan == terms.cash + taken - paid
    assert state.cash >= 0
    assert state.bankrupt == (state.loan > terms.limit)
    for g in range(2):
        assert ordered[g] == sold[g] + spoiled[g] + state.on_hand(g) + state.on_the_way(g)
