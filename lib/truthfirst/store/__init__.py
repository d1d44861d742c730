"""A store run for a year: hidden demand, a long horizon, and an optimum that is bounded and not solved.

`theta.py` samples what is true, `mechanism.py` is the exact dynamics, `bound.py` bounds what any manager can earn,
`planner.py` shows how near a plan comes to that bound, `environment.py` wraps it all as an episode with tools,
`score.py` scores a trace, and `managers.py` are scripted managers. It stands outside `FAMILIES`, because nobody
knows its optimum."""
