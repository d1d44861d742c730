"""The database: related public tables, a ledger that grows, and queries that can read and nothing else."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truthfirst.solvefirst.environment import Environment
from truthfirst.solvefirst.families.base import Action, entry
from truthfirst.solvefirst.realize.database import (
    MAX_REPLY,
    MAX_ROWS,
    Ledger,
    QueryError,
    build_database,
    like,
    public_tables,
)


def opened(environment: Environment) -> closing[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(environment.database)
    return closing(connection)


def ledger(environment: Environment) -> Ledger:
    return Ledger(environment.family, environment.spec, environment.database)


def image(opened_ledger: Ledger) -> bytes:
    return opened_ledger._connection.serialize()


@pytest.fixture(scope="module")
def rationing(candidate: Callable[..., Environment]) -> Environment:
    return candidate("rationing", "small")


# --- the tables -------------------------------------------------------------------------------------------
def test_there_are_at_least_three_related_tables(environment: Environment) -> None:
    with opened(environment) as database:
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert sorted(tables) == sorted(environment.spec.tables.values())
        assert len(tables) >= 3
        related = {
            (table, row[2])
            for table in tables
            for row in database.execute(f"PRAGMA foreign_key_list('{table}')")
        }
        assert related
        assert all(target in tables for _, target in related)
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_tables_hold_the_public_fields_of_theta(environment: Environment) -> None:
    family, theta, spec = environment.family, environment.theta, environment.spec
    counts = family.counts(theta)
    named = {e.kind for e in family.interface.entities if not e.ordinal}
    with opened(environment) as database:
        for entity in family.interface.entities:
            rows = database.execute(f'SELECT name FROM "{spec.tables[entity.kind]}" ORDER BY id').fetchall()
            assert len(rows) == counts[entity.kind]
            if entity.kind in named:
                assert [row[0] for row in rows] == list(spec.entities[entity.kind].names)
        for field in family.interface.fields:
            if not field.hidden and len(field.index) == 1:
                sql = f'SELECT "{spec.fields[field.name].column}" FROM "{spec.tables[field.index[0]]}" ORDER BY id'
                stored = [row[0] for row in database.execute(sql)]
                wanted = [entry(theta, (field.name, i)) for i in range(counts[field.index[0]])]
                if field.unit in named:  # a reference is stored as the id of the member, or as nothing
                    wanted = [None if value < 0 else value + 1 for value in wanted]
                assert stored == wanted
        terms = dict(database.execute(f'SELECT name, value FROM "{spec.tables["terms"]}"'))
        for scalar in family.interface.scalars:
            assert terms[spec.fields[scalar.name].label] == getattr(theta, scalar.name)
        for role in ("ledger", "readings"):
            assert database.execute(f'SELECT count(*) FROM "{spec.tables[role]}"').fetchone() == (0,)


def test_hidden_entries_change_no_byte(environment: Environment) -> None:
    family, theta = environment.family, environment.theta
    for seed in range(3):
        twin = family.redraw(theta, np.random.default_rng(seed))
        assert twin != theta
        assert build_database(family, twin, environment.spec) == environment.database


def test_equal_input_gives_equal_bytes(environment: Environment) -> None:
    again = build_database(environment.family, environment.theta, environment.spec)
    assert again == environment.database


def test_a_changed_public_field_changes_the_bytes(rationing: Environment) -> None:
    import dataclasses

    other = dataclasses.replace(rationing.theta, budget=rationing.theta.budget + 1)
    assert build_database(rationing.family, other, rationing.spec) != rationing.database


# --- the ledger -------------------------------------------------------------------------------------------
def test_decisions_and_readings_can_be_queried(rationing: Environment) -> None:
    spec, book = rationing.spec, ledger(rationing)
    book.record_decision(0, Action("spend", (3,)), 41)
    book.record_reading(1, ("value", 2, 5), 17)
    decisions = book.query(f'SELECT turn, tool, amount, gain FROM "{spec.tables["ledger"]}"')
    assert decisions.splitlines()[1:] == [f"1 | {spec.tools['spend'].name} | 3 | 41"]
    item = spec.tables["item"]
    column = next(
        c.name
        for c in public_tables(rationing.family, rationing.theta, spec)[-1].columns
        if c.references == item
    )
    joined = book.query(
        f'SELECT i.name, r.value FROM "{spec.tables["readings"]}" r JOIN "{item}" i ON i.id = r."{column}"'
    )
    assert joined.splitlines()[1:] == [f"{spec.entities['item'].names[5]} | 17"]


def test_two_episodes_share_no_ledger(rationing: Environment) -> None:
    one, two = ledger(rationing), ledger(rationing)
    one.record_decision(0, Action("spend", (1,)), 5)
    assert "(no rows)" in two.query(f'SELECT * FROM "{rationing.spec.tables["ledger"]}"')


def test_replies_are_bounded_in_rows_and_text(rationing: Environment) -> None:
    book, table = ledger(rationing), rationing.spec.tables["item"]
    many = book.query(f'SELECT a.id FROM "{table}" a, "{table}" b, "{table}" c')
    assert len(many.splitlines()) == MAX_ROWS + 2
    assert many.endswith(f"(only the first {MAX_ROWS} rows are shown)")
    wide = book.query(f'SELECT * FROM "{table}" a, "{table}" b, "{table}" c')
    assert len(wide) <= MAX_REPLY + len(" (cut)")
    assert wide.endswith("(cut)")
    assert book.query("SELECT NULL AS a, 1 AS b").splitlines() == ["a | b", "- | 1"]


# --- safety -----------------------------------------------------------------------------------------------
FORBIDDEN = [
    "INSERT INTO {t} VALUES (99, 'x')",
    "UPDATE {t} SET name = 'x'",
    "DELETE FROM {t}",
    "REPLACE INTO {t} (id, name) VALUES (1, 'x')",
    "DROP TABLE {t}",
    "CREATE TABLE x (a)",
    "CREATE TEMP TABLE x AS SELECT * FROM {t}",
    "CREATE VIEW x AS SELECT 1",
    "CREATE TRIGGER x AFTER INSERT ON {t} BEGIN SELECT 1; END",
    "CREATE INDEX x ON {t} (name)",
    "CREATE VIRTUAL TABLE x USING fts5(a)",
    "ALTER TABLE {t} RENAME TO x",
    "ATTACH ':memory:' AS x",
    "ATTACH 'stolen.db' AS x",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO 'stolen.db'",
    "ANALYZE",
    "REINDEX",
    "PRAGMA writable_schema = 1",
    "PRAGMA table_info({t})",
    "SELECT * FROM pragma_table_info('sqlite_master')",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT x",
    "SELECT 1; DELETE FROM {t}",
    "EXPLAIN DELETE FROM {t}",
    "EXPLAIN SELECT * FROM {t}",
    "explain query plan SELECT * FROM {t}",
    "/* first */ Explain\nSELECT 1",
    "; EXPLAIN SELECT 1",
    "SELECT load_extension('x')",
    "SELECT readfile('/etc/passwd')",
    "SELECT writefile('stolen', 'x')",
    "SELECT edit('x')",
    "SELECT random()",
    "SELECT CURRENT_TIMESTAMP",
    "SELECT date('now')",
    "SELECT zeroblob(100000000)",
    "SELECT printf('%.*c', 100000000, 'x')",
    "SELECT replace('a', 'a', 'b')",
    "SELECT instr('a', 'a')",
    "SELECT sqlite_version()",
    "SELECT fts5(1)",
    "SELECT * FROM json_each('[1]')",
    "SELECT ?",
    "SELECT :name",
    "SELECT cast(x'ff' AS text)",
    "SELECT '\ud800'",
    "SELECT '\x00'",
    "WITH x AS (SELECT 1) SELECT * FROM x",
    "SELECT",
    "",
    "   ",
    "-- nothing",
    "\ufeff;",
    "SELECT " + "(" * 200 + "1" + ")" * 200,
    "SELECT " + " UNION SELECT ".join("1" * 20),
    "SELECT '" + "x" * 3_000 + "'",
]


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run in an empty folder, which must stay empty."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_whatever_is_no_plain_select_is_refused(sql: str, rationing: Environment, away: Path) -> None:
    book = ledger(rationing)
    book.record_decision(0, Action("spend", (1,)), 5)
    before = image(book)
    with pytest.raises(QueryError, match="send one SELECT") as caught:
        book.query(sql.replace("{t}", f'"{rationing.spec.tables["item"]}"'))
    assert len(str(caught.value)) < 250
    assert image(book) == before
    book.record_decision(1, Action("spend", (0,)), 0)  # the ledger goes on
    assert len(book.query(f'SELECT turn FROM "{rationing.spec.tables["ledger"]}"').splitlines()) == 3


def test_a_statement_that_the_ledger_itself_prepared_is_refused(rationing: Environment) -> None:
    # sqlite3 caches statements by their text, and the authorizer is asked only when one is compiled.
    book = ledger(rationing)
    statements: list[str] = []
    book._connection.set_trace_callback(statements.append)
    book.record_decision(0, Action("spend", (1,)), 5)
    text = (
        next(s for s in statements if s.startswith("INSERT")).rsplit("VALUES", 1)[0] + "VALUES (?, ?, ?, ?)"
    )
    book._connection.set_trace_callback(None)
    before = image(book)
    with pytest.raises(QueryError):
        book.query(text)
    assert image(book) == before


FRAGMENTS = st.sampled_from(
    """SELECT INSERT INTO UPDATE DELETE DROP FROM WHERE ORDER BY GROUP LIMIT UNION ALL VALUES SET TABLE PRAGMA ATTACH
    VACUUM WITH RECURSIVE AS JOIN ON LIKE IN EXISTS CASE WHEN THEN END NULL NOT AND OR DISTINCT COUNT(*) SUM( MAX(
    GROUP_CONCAT( LENGTH( UPPER( ) ( , ; * = < || + - / % 1 0 -1 1e999 9223372036854775808 'x' '%a%' "x" -- /* */ ? @a
    x'ff' sqlite_master id name turn gain value {0} {1} {2} {3} a b""".split()
)


@settings(max_examples=150)
@given(st.lists(FRAGMENTS, max_size=14).map(" ".join) | st.text(max_size=40))
def test_arbitrary_sql_reads_or_is_refused(rationing: Environment, sql: str) -> None:
    book = ledger(rationing)
    for position, table in enumerate(list(rationing.spec.tables.values())[:4]):
        sql = sql.replace(f"{{{position}}}", f'"{table}"')
    before = image(book)
    try:
        reply, most = book.query(sql), MAX_REPLY + len(" (cut)")
    except QueryError as error:
        reply, most = str(error), 250
    assert 0 < len(reply) <= most
    assert image(book) == before


HEAVY = {
    "cross join": "SELECT count(*) FROM {all}",
    "sort": "SELECT {long} || a.name || b.name AS x FROM {all} ORDER BY x",
    "like": "SELECT count(*) FROM {all} WHERE {long} || a.name || d.name || h.name LIKE '%aaaaaaaaaaaaaaaaaaab%'",
    "wildcards": "SELECT count(*) FROM {all} WHERE {long} || a.name || h.name LIKE '%a%a%a%a%a%a%a%a%a%b%'",
    "long pattern": "SELECT count(*) FROM {all} WHERE {long} || a.name LIKE '%' || {long} || 'b'",
    "concat": "SELECT length(group_concat({long} || a.name)) FROM {all}",
}


@pytest.mark.parametrize("kind", HEAVY)
def test_work_is_bounded(kind: str, rationing: Environment) -> None:
    table = f'"{rationing.spec.tables["item"]}"'
    long = "(SELECT group_concat('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', '') FROM {t} x, {t} y)"
    sql = HEAVY[kind].replace("{long}", long).replace("{all}", ", ".join(f"{{t}} {x}" for x in "abcdefgh"))
    sql = sql.replace("{t}", table)
    book = ledger(rationing)
    begun = time.process_time()
    with pytest.raises(QueryError, match=r"takes too many steps|too big"):
        book.query(sql)
    assert time.process_time() - begun < 5  # measured: at most 0.5 s; unbounded, these run for minutes


def test_compiling_is_bounded(rationing: Environment) -> None:
    # Nested common tables double with every level while SQLite compiles, where no step is counted.
    tables = ["c0 AS (SELECT 1 AS x)"] + [
        f"c{i} AS (SELECT a.x FROM c{i - 1} a, c{i - 1} b)" for i in range(1, 40)
    ]
    sql = f"WITH {', '.join(tables)} SELECT count(*) FROM c39"
    assert len(sql) < 2_000
    book = ledger(rationing)
    with pytest.raises(QueryError, match="WITH is not read"):
        book.query(sql)


def test_replies_do_not_depend_on_earlier_queries(rationing: Environment) -> None:
    table = rationing.spec.tables["item"]
    fresh = ledger(rationing).query(f'SELECT name FROM "{table}" ORDER BY name')
    book = ledger(rationing)
    for _ in range(3):
        with pytest.raises(QueryError):
            book.query(f"SELECT count(*) FROM {', '.join(f'{table} t{i}' for i in range(9))}")
        assert book.query(f'SELECT name FROM "{table}" ORDER BY name') == fresh


# --- LIKE -------------------------------------------------------------------------------------------------
LETTERS = st.text("aAbB%_!", max_size=12)


@settings(max_examples=300)
@given(LETTERS, LETTERS, st.sampled_from(["", "!", "a", "%", "_"]))
def test_like_agrees_with_sqlite(pattern: str, text: str, escape: str) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        if escape:
            (truth,) = database.execute("SELECT ? LIKE ? ESCAPE ?", (text, pattern, escape)).fetchone()
        else:
            (truth,) = database.execute("SELECT ? LIKE ?", (text, pattern)).fetchone()
    assert like(pattern, text, escape) == bool(truth)


def test_like_in_a_query(rationing: Environment) -> None:
    book, spec = ledger(rationing), rationing.spec
    names = spec.entities["item"].names
    start = names[0][:3].upper()
    found = book.query(
        f"""SELECT name FROM "{spec.tables["item"]}" WHERE name LIKE '{start.replace("'", "''")}%'"""
    )
    assert found.splitlines()[1:] == [name for name in names if name.upper().startswith(start)]
    assert book.query("SELECT NULL LIKE 'a', 'a' LIKE NULL, 7 LIKE '7', 'a' NOT LIKE 'b'").endswith(
        "- | - | 1 | 1"
    )
    assert book.query(r"SELECT 'a%' LIKE '_\%' ESCAPE '\', 'ab' LIKE '_\%' ESCAPE '\'").endswith("1 | 0")
