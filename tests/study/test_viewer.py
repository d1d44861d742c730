"""The trace viewer: everything of an episode is on the page, and nothing that a model writes is more than text."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser

import pytest
from IPython.display import HTML

from truthfirst.policies.base import named
from truthfirst.records import RecordError
from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.solvefirst.families.base import Action
from truthfirst.solvefirst.references import play, policy
from truthfirst.solvefirst.score import regret_ledger
from truthfirst.study.viewer import shown, trace_page, view_trace

WORLD = build_candidate(Recipe("rationing", "nano", index=1, budget="tight"))
TAGS = {"div", "span", "table", "thead", "tbody", "tr", "th", "td", "b", "br", "details", "summary"}
ATTRIBUTES = {"style", "title", "colspan"}
EVIL = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</div></td></tr></table><iframe src=javascript:alert(1)>",
    "<style>*{display:none}</style><!--",
    "&lt;b&gt; &#60;svg onload=alert(1)&#62;",
    "\u202egnp.exe\u0000\u001b[2J\u2066",
)


class Page(HTMLParser):
    """Tags, attributes and text of a page; every tag must be closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.styles, self.open, self.text = set(), set(), [], [], ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.styles += [value for name, value in attrs if name == "style"]
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")


def hostile():
    """An episode in which every text that a model, a server or a setter writes is an attack."""
    episode = WORLD.episode("A")
    for text in EVIL[:4]:
        episode.call(text, {text: text, "list": [text]})
    episode.stop()
    everything = " ".join(EVIL)
    message = {"turns": [0, 1], "text": everything, "tokens": 3, "prompt_tokens": 9, "logprob": -1.5}
    late = {"turns": [99, 0], "text": everything, "tokens": None, "logprob": None, "cut": True}
    rollout = {
        "kind": everything,
        "model": everything,
        "end": everything,
        "error": everything,
        "counts": {everything: everything},
        "tokens": {everything: 3},
        "versions": {everything: everything},
        "messages": [message | {"notes": list(EVIL)}, late],
    }
    trace = named(episode.trace(), everything, rollout=rollout, versions={"x": everything}, seed=everything)
    entries = dict.fromkeys(("environment", "size", "budget", "version", "turn_budget"), everything)
    return dataclasses.replace(trace, header=trace.header | entries)


def test_no_text_of_a_trace_becomes_markup():
    page = Page(trace_page(hostile()))
    assert page.tags <= TAGS
    assert page.attributes <= ATTRIBUTES
    for style in page.styles:
        assert "url(" not in style
        assert "alert" not in style
    for text in EVIL[:6]:
        assert text in page.text  # it is all there, as text
    assert not {"\u202e", "\u2066", "\x00", "\x1b"} & set(page.text)


def test_hostile_answers_and_prompts_are_text_too():
    episode = WORLD.episode("F", EVIL[0])
    episode.answer(" ".join(EVIL) + ' [["' + '<script>", 3]]')
    page = Page(trace_page(episode.trace(), WORLD))
    assert page.tags <= TAGS
    assert EVIL[1] in page.text
    assert WORLD.view("F").prompt[0]["content"].split("\n")[0] in page.text


@pytest.mark.parametrize("form", "FIA")
def test_every_turn_its_reply_and_its_price_are_on_the_page(form):
    trace = play(policy("probe-2"), WORLD, form, 0)
    shown_page = view_trace(trace, WORLD)
    assert isinstance(shown_page, HTML)
    page = Page(shown_page.data)
    assert WORLD.spec.title in page.text
    for turn in trace.turns:
        assert turn.reply in page.text
        assert turn.tool in page.text
    ledger = regret_ledger(trace)
    for row in ledger.rows:
        priced = row.regret if row.regret is not None else row.credit
        assert not priced or f"{priced / ledger.span:+.3f}" in page.text
    for name, share in ledger.losses().items():
        assert f"{name} {float(share):+.3f}" in page.text
    assert f"u = {ledger.u}" in page.text


class Rows(HTMLParser):
    """The table of turns: its header and rows as lists of texts, and which cells are bold."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.rows, self.bold = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
            self.bold.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.bold[-1].append("font-weight:600" in dict(attrs).get("style", ""))

    def handle_data(self, data):
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


@pytest.mark.parametrize("form", "IA")
def test_the_state_table_follows_the_mechanism_and_marks_what_changed(form):
    trace = play(policy("probe-2"), WORLD, form, 0)
    table = Rows(trace_page(trace, WORLD))
    family, theta = WORLD.family, WORLD.theta
    hidden, ledger = len(family.hidden(theta)), regret_ledger(trace)
    at_first = 0 if form == "A" else hidden
    assert table.rows[0][3:] == ["gain so far", "known", "V* after", "left", "periods left"]
    expected = [["0", f"{at_first}/{hidden}", str(ledger.u_star), str(theta.budget), "4"]]
    state, gained, known = family.start(theta), 0, set()
    for turn, row in zip(trace.turns, ledger.rows, strict=True):
        if turn.kind == "decision":
            verb, *args = turn.detail["action"]
            state, gain, seen = family.step(theta, state, Action(verb, tuple(args)))
            gained, known = gained + gain, known | set(seen)
        else:
            known.add(tuple(turn.detail["key"]))
        facts = [str(value) for value in family.observe(theta, state).values()]
        knows = max(at_first, len(known))
        expected.append([str(gained), f"{knows}/{hidden}", str(row.value_after), *facts])
    turns = table.rows[1:-1]
    assert [row[3:] for row in turns] == expected
    assert [row[0] for row in turns] == ["start", *(f"{turn.index + 1}{turn.kind}" for turn in trace.turns)]
    for before, after, bold in zip(expected, expected[1:], table.bold[2:-1], strict=False):
        assert bold[3:] == [a != b for a, b in zip(before, after, strict=True)]


def test_steps_of_a_written_plan_are_shown_as_calls():
    world = build_candidate(Recipe("pricing", "nano", index=2))
    trace = play(policy("optimal"), world, "F", 0)
    text = Page(trace_page(trace, world)).text
    assert f"{len(trace.turns)} steps of a written plan" in text
    step = trace.turns[0]
    assert f'{step.tool}("{step.arguments[0]}")' in text


def test_the_state_speaks_of_things_by_their_names():
    world = build_candidate(Recipe("orienteering", "nano", index=3))
    table = Rows(trace_page(play(policy("plan"), world, "A", 0), world))
    here = {row[table.rows[0].index("here")] for row in table.rows[1:-1]}
    assert here & set(world.spec.entities["item"].names)
    assert here <= {*world.spec.entities["item"].names, "none"}


def test_of_one_token_and_of_no_number_nothing_odd_is_said():
    trace = hostile()
    trace.header["rollout"]["messages"][0] |= {"tokens": 1, "logprob": float("nan"), "notes": None}
    text = Page(trace_page(trace)).text
    assert "1 token · 9 before" in text
    assert "nan" not in text


def test_an_unreadable_answer_and_an_empty_episode_are_shown():
    episode = WORLD.episode("F")
    episode.answer("I would rather not.")
    page = Page(trace_page(episode.trace()))
    assert "No plan could be read" in page.text
    assert "I would rather not." in page.text
    idle = WORLD.episode("A")
    idle.stop()
    assert "ended: stopped" in Page(trace_page(idle.trace())).text


def test_tokens_and_log_probabilities_are_shown_where_there_are_any():
    text = Page(trace_page(hostile())).text
    assert "3 tokens · 9 before · log-probability -1.50, -0.50 a token" in text


def test_long_text_is_cut_with_its_length_and_a_damaged_trace_is_named():
    assert shown("a" * 2_000, 100).endswith("[... 1,900 more characters]")
    trace = play(policy("plan"), WORLD, "A", 0)
    with pytest.raises(RecordError):
        trace_page(dataclasses.replace(trace, header=trace.header | {"theta": {}}))
