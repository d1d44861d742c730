"""The corpus: 28 built-in domains, a user's own folder, and documents that cannot be used."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from truthfirst.paths import CORPUS
from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.realize.corpus import (
    MAX_CHARACTERS,
    MIN_WORDS,
    Corpus,
    CorpusError,
    Voice,
    load_corpus,
    load_voices,
    nearest_domain,
)
from truthfirst.solvefirst.realize.setter import COMMON_ENTITIES

BREAD = (
    "The baker weighs the flour before dawn, kneads the dough with leaven and salt, and leaves it to prove in the "
    "trough. The oven is heated with wood; loaves are set on the hearth with a long peel and turned once. Crust and "
    "crumb are judged by sound and smell, and the first loaves leave the bakehouse for the shops when the town wakes."
)


@pytest.fixture(scope="module")
def built_in() -> Corpus:
    return load_corpus()


# --- the built-in corpus ----------------------------------------------------------------------------------
def test_built_in_corpus_has_28_domains_of_at_least_four_passages(built_in: Corpus) -> None:
    domains = built_in.by_domain()
    assert len(domains) == 28
    assert {name: len(passages) for name, passages in domains.items() if len(passages) < 4} == {}
    assert built_in.skipped == ()
    assert set(domains) == set(load_voices())


def test_built_in_passages_are_120_to_250_words(built_in: Corpus) -> None:
    words = {passage.id: len(passage.text.split()) for passage in built_in.passages}
    assert {name: count for name, count in words.items() if not 120 <= count <= 250} == {}


def test_built_in_passages_lie_in_the_folder_of_their_domain(built_in: Corpus) -> None:
    assert all(passage.id.split("/")[0] == passage.domain for passage in built_in.passages)
    assert len({passage.text for passage in built_in.passages}) == len(built_in.passages)
    assert len({passage.title for passage in built_in.passages}) == len(built_in.passages)


def test_terms_of_a_passage_stand_in_its_text(built_in: Corpus) -> None:
    for passage in built_in.passages:
        text = " ".join(passage.text.split()).casefold()
        assert {"places", "goods", "roles", "units", "times"} <= passage.terms.keys(), passage.id
        terms = [term for kind in passage.terms.values() for term in kind]
        found = [term for term in terms if term.casefold() in text]
        assert len(found) >= 0.8 * len(terms), (passage.id, sorted(set(terms) - set(found)))


def test_passages_of_different_domains_share_no_sentence(built_in: Corpus) -> None:
    owners: dict[str, set[str]] = {}
    for passage in built_in.passages:
        for sentence in passage.sentences:
            owners.setdefault(sentence, set()).add(passage.domain)
    assert [sentence for sentence, domains in owners.items() if len(domains) > 1] == []


@pytest.mark.parametrize("name", FAMILIES)
def test_every_domain_casts_every_family(name: str) -> None:
    face = FAMILIES[name].interface
    tools = {verb.name for verb in face.verbs} | {field.name for field in face.probes} | {"query"}
    fields = {part.name for part in (*face.fields, *face.scalars)}
    for domain, voice in load_voices().items():
        casting = voice.castings[name]
        assert set(casting.tools) == tools, domain
        assert set(casting.fields) == fields, domain
        kinds = {entity.kind for entity in face.entities}
        assert set(casting.entities) <= kinds <= set(casting.entities) | set(COMMON_ENTITIES), domain


def test_a_family_is_told_in_28_different_ways() -> None:
    for name in FAMILIES:
        briefs = [voice.castings[name].brief for voice in load_voices().values()]
        titles = [voice.castings[name].title for voice in load_voices().values()]
        assert len(set(briefs)) == len(set(titles)) == len(briefs)


# --- a user's own folder ----------------------------------------------------------------------------------
def test_a_folder_of_every_format_is_read(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "plain_text.txt").write_text(BREAD)
    (tmp_path / "front.md").write_text(f"---\ntitle: Own title\ndomain: mill\ngoods: [flour]\n---\n{BREAD}")
    (tmp_path / "bare.md").write_text(f"# No front matter\n\n{BREAD}")
    # Valid JSON may hold a raw line separator inside a string.
    rows = [{"text": f"{BREAD}\u2028{n}", "title": f"Row {n}"} for n in (1, 2)]
    (tmp_path / "rows.jsonl").write_text(
        "\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n"
    )
    pd.DataFrame({"text": [BREAD, BREAD.upper()], "n": [1, 2]}).to_parquet(tmp_path / "table.parquet")
    corpus = load_corpus(tmp_path)
    assert corpus.skipped == ()
    found = {passage.id: passage for passage in corpus.passages}
    assert sorted(found) == [
        "bare.md",
        "front.md",
        "rows.jsonl#1",
        "rows.jsonl#2",
        "sub/plain_text.txt",
        "table.parquet#0",
        "table.parquet#1",
    ]
    assert (found["front.md"].title, found["front.md"].domain) == ("Own title", "mill")
    assert found["front.md"].terms == {"goods": ("flour",)}
    assert found["rows.jsonl#2"].title == "Row 2"
    assert found["sub/plain_text.txt"].title == "plain text"
    assert found["sub/plain_text.txt"].domain == "baking"  # the nearest voice
    assert found["table.parquet#1"].text == BREAD.upper()


def test_a_byte_order_mark_hides_no_front_matter(tmp_path: Path) -> None:
    (tmp_path / "marked.md").write_text(f"---\ntitle: Own title\n---\n{BREAD}", encoding="utf-8-sig")
    (passage,) = load_corpus(tmp_path).passages
    assert (passage.title, passage.text) == ("Own title", BREAD)


BAD = {
    "empty.txt": (b"", "empty"),
    "blank.md": (b" \n\t\n", "empty"),
    "binary.txt": (b"\x89PNG\r\n\x1a\n\x00\x00" * 50, "binary"),
    "latin.txt": (BREAD.encode() + "é".encode("latin-1"), "not UTF-8 text"),
    "short.txt": (b"Too few words to tell a story.", "too short"),
    "front.md": (f"---\ntitle: [broken\n---\n{BREAD}".encode(), "broken front matter"),
    "open.md": (f"---\ntitle: never closed\n{BREAD}".encode(), "broken front matter"),
    "list.md": (f"---\n- a\n- b\n---\n{BREAD}".encode(), "front matter is not a mapping"),
    "only_front.md": (b"---\ntitle: nothing below\n---\n", "no text"),
    "rows.jsonl": (b'{"text": ', "not JSON"),
    "number.jsonl": (b"7\n", "not a JSON object"),
    "digits.jsonl": (b"7" * 5_000, "not JSON"),
    "nested.jsonl": (b"[" * 100_000, "not JSON"),
    "surrogate.jsonl": (json.dumps({"text": BREAD + "\ud800"}).encode(), "not JSON"),
    "no_text.jsonl": (b'{"title": "no text"}', "no text"),
    "table.parquet": (b"PAR1 not really PAR1", "cannot be read"),
    "image.png": (b"\x89PNG", "not a corpus format"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_document_is_named_and_skipped_with_a_reason(name: str, tmp_path: Path) -> None:
    data, reason = BAD[name]
    (tmp_path / name).write_bytes(data)
    (tmp_path / "good.txt").write_text(BREAD)
    corpus = load_corpus(tmp_path)
    assert [passage.id for passage in corpus.passages] == ["good.txt"]
    (skipped,) = corpus.skipped
    assert skipped.document.split("#")[0] == name
    assert reason in skipped.reason


def test_a_parquet_file_without_rows_or_text_is_named(tmp_path: Path) -> None:
    pd.DataFrame({"text": []}).to_parquet(tmp_path / "none.parquet")
    pd.DataFrame({"body": [BREAD]}).to_parquet(tmp_path / "other.parquet")
    (tmp_path / "good.txt").write_text(BREAD)
    skipped = {s.document: s.reason for s in load_corpus(tmp_path).skipped}
    assert skipped == {"none.parquet": "empty", "other.parquet#0": "no text"}


def test_only_the_bad_rows_of_a_file_are_skipped(tmp_path: Path) -> None:
    lines = [json.dumps({"text": BREAD}), "{", "", json.dumps({"text": "short"}), json.dumps({"text": BREAD})]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    corpus = load_corpus(tmp_path)
    assert [passage.id for passage in corpus.passages] == ["rows.jsonl#1", "rows.jsonl#5"]
    assert [skipped.document for skipped in corpus.skipped] == ["rows.jsonl#2", "rows.jsonl#4"]


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.txt").write_text(BREAD)
    (tmp_path / "good.txt").write_text(BREAD)
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "bad.txt":
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    (skipped,) = load_corpus(tmp_path).skipped
    assert skipped.document == "bad.txt"
    assert "Permission denied" in skipped.reason


def test_an_empty_corpus_is_an_error_that_gives_the_reasons(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="it has no files"):
        load_corpus(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(CorpusError, match=r"no usable passage \(empty\.txt: empty\)"):
        load_corpus(tmp_path)
    with pytest.raises(CorpusError, match=re.escape(str(tmp_path / "missing"))):
        load_corpus(tmp_path / "missing")
    with pytest.raises(CorpusError, match=r"empty\.txt' is a file, not a folder"):
        load_corpus(tmp_path / "empty.txt")


def test_the_bound_on_words_is_where_it_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "exact.txt").write_text("word " * MIN_WORDS)
    (tmp_path / "fewer.txt").write_text("word " * (MIN_WORDS - 1))
    (tmp_path / "long.txt").write_text("word " * MAX_CHARACTERS)
    corpus = load_corpus(tmp_path)
    assert [passage.id for passage in corpus.passages] == ["exact.txt", "long.txt"]
    assert corpus.skipped[0].reason == f"too short ({MIN_WORDS - 1} words, at least {MIN_WORDS} needed)"
    assert len(corpus.passages[1].text) <= MAX_CHARACTERS


# --- voices -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("面包师在黎明前称好面粉,用酵母和盐揉面,然后放在槽里发酵。" * 10, "Chinese or Japanese"),
        ("パンしょくにんはよあけまえにこなをはかり、こねて、ねかせる。" * 10, "Japanese"),
        ("Пекарь взвешивает муку до рассвета и месит тесто. " * 20, "Cyrillic"),
        ("제빵사는 새벽이 되기 전에 밀가루의 무게를 잰다. " * 20, "Hangul"),
    ],
)
def test_a_text_in_another_script_is_told_which_script_is_read(
    text: str, script: str, tmp_path: Path
) -> None:
    (tmp_path / "bread.txt").write_text(BREAD)
    (tmp_path / "other.txt").write_text(text)
    corpus = load_corpus(tmp_path)
    assert [passage.id for passage in corpus.passages] == ["bread.txt"]
    assert corpus.skipped[0].reason.startswith(
        f"its script is {script}: only texts in Latin letters are read"
    )
    (tmp_path / "bread.txt").unlink()
    with pytest.raises(CorpusError, match=f"no usable passage .*its script is {script}"):
        load_corpus(tmp_path)


def test_each_passage_is_nearest_to_its_own_domain(built_in: Corpus) -> None:
    wrong = [p.id for p in built_in.passages if nearest_domain(p.text) != p.domain]
    assert len(wrong) <= 0.02 * len(built_in.passages), wrong


def test_a_text_without_known_words_still_has_a_voice() -> None:
    assert nearest_domain("§§§ 123") in load_voices()


def test_pools_hold_enough_different_names() -> None:
    for domain, voice in load_voices().items():
        for pool, names in voice.pools.items():
            assert len({name.casefold() for name in names}) == len(names) >= 14, (domain, pool)
        for name, casting in voice.castings.items():
            for kind, entity in casting.entities.items():
                folded = [member.casefold() for member in entity.names]
                assert len(set(folded)) == len(folded), (domain, name, kind)
                assert entity.pool is None or entity.names or entity.pool in voice.pools, (domain, name, kind)


def test_a_broken_voice_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from truthfirst.solvefirst.realize import corpus

    monkeypatch.setattr(corpus, "CORPUS", tmp_path)
    uncached = load_voices.__wrapped__
    with pytest.raises(CorpusError, match=r"no voice\.yaml"):
        uncached()
    (tmp_path / "odd").mkdir()
    for text in ("label: [", "label: Odd\nunknown: 1\n"):
        (tmp_path / "odd" / "voice.yaml").write_text(text)
        with pytest.raises(CorpusError, match="voice of domain 'odd' is broken"):
            uncached()


def test_voices_say_nothing_they_should_not() -> None:
    assert set(load_voices()) == {folder.name for folder in CORPUS.iterdir() if folder.is_dir()}
    for voice in load_voices().values():
        assert isinstance(voice, Voice)
        for text in (*voice.openings, *voice.closings):
            assert set(re.findall(r"\{(\w+)\}", text)) <= {"role", "organisation", "place"}
