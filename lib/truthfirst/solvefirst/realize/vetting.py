"""Vetting: what the words of an environment must not do, as pure functions of a spec and its passage.

`check_spec` asks whether a spec names what its family needs. Vetting asks whether text from an untrusted writer is fit
to be shown: each check yields findings that say where, what and why, so that a writer can be told and a report can
count. Every LanguageSetter spec passes all of CHECKS, and so does every spec of the template setter, by test.

Rules that need a line of their own:

- Digits. No word of a setter holds a digit: numbers reach the player through placeholders, tables and rules alone. The
  one exception is a quotation in the scenario: text between double quotes that stands in the passage word for word,
  and the line "(from: title)" below it, may hold the passage's own digits.
- English. Of the running text at least 25% of the words, and of scenario and brief at least 20% each, are among 70
  common function words of English. Healthy text has at least 36% and 32%; Dutch, the nearest language, about 10%.
- Characters. Printable ASCII, letters of the Latin script, and the usual dashes and quotation marks: no control or
  invisible characters, and no letters of another script that look like Latin ones.

What it does not promise: patterns find instructions that are put in so many words, not every way to say them, and
number words ("twelve") pass. The exact rules, tables and gates do not depend on what a setter says, so such text can
mislead a player and can never change a score.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .corpus import Passage
from .setter import slug
from .spec import RESERVED, SpecError, WorldSpec

MAX_DESCRIPTION = 160  # characters of a tool's description; healthy ones have at most 102
MAX_PROSE = {"title": 120, "scenario": 2_000, "brief": 1_500, "closing": 240}
MIN_WORDS = {"title": 2, "scenario": 25, "brief": 20, "closing": 4, "description": 3}
ENGLISH_OVERALL, ENGLISH_EACH = 0.25, 0.20
MIN_VARIETY = 0.35  # distinct over all words of a prose text; loops of a degenerate model lie below

STOP_WORDS = frozenset(
    """a an the and or but if of to in on at by for from with as is are was were be been it its this that these those
    you your we our they their he his she her not no so than then there which who what when where how one each all any
    every more most other some such only can will may must has have had do does up out into over""".split()
)
FILLER = frozenset(
    """string text name names word words todo tbd na null nil none any unknown unnamed untitled default placeholder
    example lorem ipsum foo baz qux thing things item items entity value values undefined blank empty singular plural
    description""".split()
)
HEADINGS = ("rules", "figures", "tools", "tables", "your answer", "known in full", "not known at first")
PUNCTUATION = frozenset("‘’“”–—…·°£€")
_WORD = re.compile(r"[A-Za-zÀ-ɏ][A-Za-zÀ-ɏ'’-]*")
_PLACEHOLDER = re.compile(r"\{\w+\}")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: the check, the part of the spec, and the evidence with its remedy."""

    check: str
    part: str
    evidence: str

    def __str__(self) -> str:
        return f"{self.check}: {self.part}: {self.evidence}"


class VettingError(SpecError):
    """A spec is not fit to be shown; `findings` says why, the message names the first of them."""

    def __init__(self, findings: list[Finding]) -> None:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        super().__init__(f"{findings[0]}{more}")
        self.findings = findings


@dataclass(frozen=True, slots=True)
class Text:
    """One text of a spec: where it stands, what it is, and what it says.

    kind   title, scenario, brief, closing, description, word (labels, nouns, units), name (members) or identifier
    """

    part: str
    kind: str
    text: str


def vet(spec: WorldSpec, passage: Passage) -> None:
    """Raise VettingError with every finding, unless the spec is fit to be shown."""
    found = findings(spec, passage)
    if found:
        raise VettingError(found)


def findings(spec: WorldSpec, passage: Passage) -> list[Finding]:
    """Return what is wrong with the words of a spec, in the order of CHECKS."""
    return [
        Finding(name, part, evidence)
        for name, check in CHECKS.items()
        for part, evidence in check(spec, passage)
    ]


def texts(spec: WorldSpec) -> Iterator[Text]:
    """Yield every text that a setter wrote."""
    for kind in ("title", "scenario", "brief", "closing"):
        yield Text(kind, kind, getattr(spec, kind))
    for unit in ("money", "goods", "time"):
        yield Text(unit, "word", getattr(spec, unit))
    for kind, entity in spec.entities.items():
        yield Text(f"entities.{kind}.singular", "word", entity.singular)
        yield Text(f"entities.{kind}.plural", "word", entity.plural)
        for number, name in enumerate(entity.names):
            yield Text(f"entities.{kind}.names[{number}]", "name", name)
    for role, tool in spec.tools.items():
        yield Text(f"tools.{role}.name", "identifier", tool.name)
        yield Text(f"tools.{role}.description", "description", tool.description)
        for slot, argument in tool.arguments.items():
            yield Text(f"tools.{role}.arguments.{slot}", "identifier", argument)
    for role, field in spec.fields.items():
        yield Text(f"fields.{role}.column", "identifier", field.column)
        yield Text(f"fields.{role}.label", "word", field.label)
    for role, table in spec.tables.items():
        yield Text(f"tables.{role}", "identifier", table)


Problem = tuple[str, str]  # part, evidence


def shown(text: str, at: int = 0, width: int = 60) -> str:
    """Return a short quotation of a text around a position, safe to log."""
    start = max(0, at - width // 3)
    return ascii(text[start : start + width])


# --- form -------------------------------------------------------------------------------------------------
def lengths(spec: WorldSpec, passage: Passage) -> Iterator[Problem]:
    """Prose and descriptions are short enough to be read; a description is one sentence, or two."""
    for text in texts(spec):
        most = MAX_DESCRIPTION if text.kind == "description" else MAX_PROSE.get(text.kind)
        if most is not None and len(text.text) > most:
            yield text.part, f"has {len(text.text)} characters, at most {most} are read"
        elif text.kind == "description" and len(re.findall(r"[.!?]+(?=\s|$)", text.text)) > 2:
            yield text.part, "a description is one sentence that says what the tool does"


def characters(spec: WorldSpec, passage: Passage) -> Iterator[Problem]:
    """Only printable ASCII, Latin letters and usual typography; line breaks in scenario and brief alone."""
    for text in texts(spec):
        for at, letter in enumerate(text.text):
            latin = letter.isalpha() and unicodedata.name(letter, "").startswith("LATIN ")
            plain = " " <= letter <= "~" or letter in PUNCTUATION or latin
            if not plain and not (letter == "\n" and text.kind in ("scenario", "brief")):
                what = unicodedata.name(letter, f"control character U+{ord(letter):04X}")
                yield text.part, f"holds {what} in {shown(text.text, at)}: write plain English text"
                break


def markup(spec: WorldSpec, passage: Passage) -> Iterator[Problem]:
    """No HTML, no Markdown, no links, no backslashes."""
    for text in texts(spec):
        found = _MARKUP.search(text.text)
        if found:
            yield text.part, f"holds markup or a link {shown(text.text, found.start())}: write plain text"


_MARKUP = re.compile(
    r"[<>`\\]|&#?\w{1,31};|\*\*|~~|\]\(|\b(?:https?|ftp|javascript|data):|\bwww\.|^\s*#{1,6}\s|^\s*(?:[-=*_]\s*){3,}$",
    re.IGNORECASE | re.MULTILINE,
)


def layout(spec: WorldSpec, passage: Passage) -> Iterator[Problem]:
    """Prose cannot pass for a table, a rule or a section of the instructions."""
    for text in texts(spec):
        if "|" in text.text:
            yield (
                text.part,
                f"holds '|', which stands in tables only: {shown(text.text, text.text.index('|'))}",
            )
        if text.kind not in MAX_PROSE:
            continue
        for line in text.text.split("\n"):
            bare = line.strip()
            own = text.kind == "scenario" and bare.startswith("(from: ")
            if bare.casefold().rstrip(":") in HEADINGS or (re.match(r"[-*+\[(]", bare) and not own):
                yield text.part, f"a line looks like a heading, list or table: {shown(bare)}"


def braces(spec: WorldSpec, passage: Passage) -> Iterator[Problem]:
    """Braces stand in the brief alone, around placeholders."""
    for text in texts(spec):
        left = _PLACEHOLDER.sub("", text.text) if text.kind == "brief" else text.text
        if "{" in left or "}" in left:
            where = "only as {placeholder}" if text.kind == "brief" else "in the brief only"
            yield text.part, f"braces may be used {where}: {shown(text.text, text.text.find('{'))}"


def digits(spec: WorldSpec, passage: Passage) -> Iterator[Problem]:
    """No digit, since it could pose as a parameter; see the module docstring for quotations."""
    for text in texts(spec):
        said = without_quotation(text.text, passage) if text.kind == "scenario" else text.text
        at = next((i for i, letter in enumerate(said) if unicodedata.category(letter).startswith("N")), None)
        if at is not None:
            yield (
                text.part,
                f"states a number in {shown(said, at)}: use no digits, and placeholders in the brief",
            )


def without_quotation(scenario: str, passage: Passage) -> str:
    """Return a scenario less what it quotes from the passage, and less the line that names the source."""
    source = " ".join(passage.text.split())

    def verbatim(match: re.Match[str]) -> str:
        return '""' if " ".join(match.group(1).split()) in source else match.group(0)

    bare = re.sub(r'["“]([^"“”]{20,})["”]', verbatim, scenario)
    title = " ".join(re.sub(r"[<>`\x00-\x1f\x7f]+", " ", passage.title).split())[:120]
    return "\n".join(line for line in bare.split("\n") if " ".join(line.split()) != f"(from: {title})")


# --- meaning ----------------------------------------------------------------------------------------------
def injection(spec: WorldSpec, passage: Passage) -> Iterator[Problem]:
    """Nothing speaks to a model about its instructions, tools, score or hidden values, by name or in prose."""
    for text in texts(spec):
        plain = re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text.text).replace("_", " "))
        patterns = _INJECTION + (_COMMANDS if text.kind == "description" else ())
        for pattern in patterns:
            found = pattern.search(plain)
            if found:
                yield text.part, f"reads as an instruction to a model: {shown(plain, found.start())}"
                break


def _patterns(*sources: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(source, re.IGNORECASE) for source in sources)


_INJECTION = _patterns(
    r"\b(?:ignor|disregard|forget|overrid|bypass|overlook|violat)\w*\b[^.]{0,60}"
    r"\b(?:instructions?|rules?|prompts?|messages?|guidelines?|directions|constraints?|above|said so far)\b",
    r"\b(?:new|real|actual|updated|following|your) instructions?\b",
    r"\b(?:system|developer|user|assistant) (?:prompt|message|role)\b|(?:^| )(?:system|user|assistant|human|ai) ?:",
    r"<\||\|>|\[/?INST\]|\bim (?:start|end)\b",
    r"\b(?:(?:large )?language models?|llms?|gpt|chat ?bots?|as an ai|artificial intelligence|jailbreak\w*)\b",
    r"\b(?:u ?star|u ?zero|ground truth|verifiers?|benchmark\w*|sandbox|prompt injection)\b",
    r"\b(?:the|this|an?|automatic|hidden) (?:graders?|evaluators?) (?:is|are|will|reads?|checks?|sees?|expects?)\b",
    r"\b(?:full|maximum|maximal|perfect|final|your|higher|total|extra) (?:scores?|rewards?|marks|grades?)\b",
    r"\b(?:(?:your|the final) scores?|scoring|rewards?) (?:is|are|will|depends?|counts?|function|model|signal)\b",
    r"\b(?:you (?:are|will be)|episodes? (?:is|are)|plans? (?:is|are)) (?:scored|graded|rewarded)\b",
    r"\boptimal (?:plans?|polic(?:y|ies)|solutions?|actions?|answers?|choices?|decisions?)\b",
    r"\b(?:hidden|true|sealed|secret|underlying) (?:values?|numbers?|parameters?|entr(?:y|ies)|answers?|data)\b",
    r"\b(?:the )?(?:correct|right|best|winning) (?:answer|choice|plan|option|action|amount) (?:is|are|would be)\b",
    r"\b(?:tool|function|api) calls?\b|\bcall (?:this|the|that|no|any|every) (?:tool|function)\b",
    r"\b(?:this|these|other|following) tools? (?:is|are|must|should|first|only|always|never)\b",
    r"\b(?:dear|attention|note to|message to)[ ,:]+(?:the )?(?:player|agent|model|solver|assistant|ai)\b",
    r"\bthe (?:player|solver|contestant|test[- ]taker) (?:must|should|will|can|may|is|needs)\b",
    r"\b(?:api key|passwords?|credentials?|environment variables?)\b",
)
_COMMANDS = _patterns(
    r"\b(?:you (?:must|should|need|have to|will)|always|don't|do not|must not|immediately|important|warning)\b",
    r"\b(?:before|instead of|rather than) (?:any|every|all|the|using)? ?(?:other|else|anything)\b",
)


def sql(spec: WorldSpec, passage: Passage) -> Iterator[Problem]:
    """No statement or fragment of SQL; single words such as SELECT may describe the query tool."""
    for text in texts(spec):
        if text.kind in ("name", "word", "identifier"):
            found = _SQL_NAME.search(text.text.replace("_", " "))
        else:
            found = _SQL_PROSE.search(text.text)
        if found:
            yield text.part, f"holds SQL {shown(text.text, found.start())}: write a plain name or sentence"


_SQL = (
    r"SELECT\b.{1,200}\bFROM|INSERT\s+INTO|DELETE\s+FROM|DROP\s+(?:TABLE|VIEW|INDEX|TRIGGER)|UNION\s+(?:ALL\s+)?SELECT"
    r"|UPDATE\s+\w+\s+SET|ALTER\s+TABLE|CREATE\s+(?:TABLE|VIEW|INDEX|TRIGGER)|PRAGMA\s|ATTACH\s+DATABASE|LOAD\s+EXTENSION"
)
_SQL_NAME = re.compile(rf"\b(?:{_SQL})|--|/\*|;|'\s*(?:or|and)\b|\b(?:or|and)\s+'|=|sqlite", re.IGNORECASE)
_SQL_PROSE = re.compile(rf"\b(?:{_SQL})|/\*|'\s*;|;\s*--|\b(?:OR|AND)\s+'?\w+'?\s*=|sqlite_", re.DOTALL)


def english(spec: WorldSpec, passage: Passage) -> Iterator[Problem]:
    """The running text is English, by its share of function words."""
    running = {kind: getattr(spec, kind) for kind in ("scenario", "brief")}
    everything = " ".join(
        [*running.values(), spec.closing, *(tool.description for tool in spec.tools.values())]
    )
    for part, text, least in (
        *((kind, text, ENGLISH_EACH) for kind, text in running.items()),
        ("all text", everything, ENGLISH_OVERALL),
    ):
        found = [word.lower() for word in _WORD.findall(_PLACEHOLDER.sub("", text))]
        share = sum(word in STOP_WORDS for word in found) / max(1, len(found))
        if share < least:
            yield (
                part,
                f"{share:.0%} of its words are common English words, at least {least:.0%} are: write English",
            )


def empty(spec: WorldSpec, passage: Passage) -> Iterator[Problem]:
    """Every text says something: enough words, no filler, no loop."""
    for text in texts(spec):
        words = [word.lower() for word in _WORD.findall(_PLACEHOLDER.sub("", text.text).replace("_", " "))]
        least = MIN_WORDS.get(text.kind, 1)
        if len(words) < least:
            yield text.part, f"has {len(words)} words, at least {least} are needed: {shown(text.text)}"
        elif text.kind in MIN_WORDS:
            variety = len(set(words)) / len(words)
            if len(words) >= 20 and variety < MIN_VARIETY:
                yield text.part, f"repeats itself: {len(set(words))} different words of {len(words)}"
        elif text.kind != "identifier":
            if all(word in FILLER for word in words):
                yield text.part, f"{shown(text.text)} is a filler: name a thing of this world"
            elif len("".join(words)) < 2:
                yield text.part, f"{shown(text.text)} is no word"


# --- names ------------------------------------------------------------------------------------------------
def duplicates(spec: WorldSpec, passage: Passage) -> Iterator[Problem]:
    """Nouns, members, labels and descriptions differ within their sort, whatever their case."""
    groups = {
        "entities (singular)": [slug(entity.singular) for entity in spec.entities.values()],
        "entities (names)": [name for entity in spec.entities.values() for name in entity.names],
        "fields (label)": [field.label for field in spec.fields.values()],
        "tools (description)": [tool.description for tool in spec.tools.values()],
    }
    for part, words in groups.items():
        counts = Counter(" ".join(word.casefold().split()) for word in words)
        twice = [word for word, count in counts.items() if count > 1]
        if twice:
            yield part, f"used twice: {', '.join(map(shown, twice[:5]))}"
    for role, field in spec.fields.items():
        if re.search(r"\((?:lowest|highest|typical)\)$", field.label.casefold()):
            yield f"fields.{role}.label", f"{shown(field.label)} ends like a published range: leave that out"


def keywords(spec: WorldSpec, passage: Passage) -> Iterator[Problem]:
    """No identifier is a keyword of SQL or a column that every table has."""
    for text in texts(spec):
        if text.kind == "identifier" and (text.text in RESERVED or text.text.startswith("sqlite")):
            yield text.part, f"{text.text!r} is an SQL keyword or reserved: choose another name"


def columns(spec: WorldSpec, passage: Passage) -> Iterator[Problem]:
    """No column gets the name of another column that the tables have anyway."""
    given = {role: field.column for role, field in spec.fields.items()}
    fixed = {"from_id", "to_id", "constants"} | {f"{slug(e.singular)}_id" for e in spec.entities.values()}
    fixed |= {f"{name}_{end}" for name in given.values() for end in ("lowest", "highest", "typical")}
    for role, name in given.items():
        if name in fixed:
            yield (
                f"fields.{role}.column",
                f"{name!r} is a column that the tables have anyway: choose another name",
            )


CHECKS: dict[str, Callable[[WorldSpec, Passage], Iterator[Problem]]] = {
    "length": lengths,
    "characters": characters,
    "markup": markup,
    "layout": layout,
    "braces": braces,
    "digits": digits,
    "injection": injection,
    "sql": sql,
    "english": english,
    "empty": empty,
    "duplicates": duplicates,
    "keywords": keywords,
    "columns": columns,
}
