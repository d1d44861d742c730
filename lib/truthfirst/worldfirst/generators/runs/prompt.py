"""The public contract of a training run: what an agent reads, made from public files only."""

from __future__ import annotations

import json

from ...world import Deliverable, Files

DELIVERABLES = (
    Deliverable(
        "output/logs.csv",
        "csv",
        ("file", "layout", "lines", "noise", "jobs", "points"),
        "one row a log as delivered: name without folder, layout, lines without a header, noise among them, different "
        "jobs, different pairs of job and step; by file",
    ),
    Deliverable(
        "output/lineage.csv",
        "csv",
        ("position", "job", "first_step", "last_step", "checkpoint"),
        "one row a job that counts, from 1 at the start: the steps of it that count, the checkpoint that it resumed "
        "from (blank: from scratch)",
    ),
    Deliverable(
        "output/repairs.csv",
        "csv",
        ("kind", "job", "step"),
        "one row a pair of job and step for each of: duplicate (more than one record), restored (rule 3); by kind, "
        "job, step",
    ),
    Deliverable(
        "output/settings.csv",
        "csv",
        ("key", "first_step", "last_step", "value", "layer"),
        "one row a key and longest stretch of steps that count with one value; layer that gives it at the first of "
        "them: base, file, flag, hot; by key, step",
    ),
    Deliverable(
        "output/curve.csv",
        "csv",
        ("step", "job", "tokens", "loss", "grad_norm"),
        "one row a point that counts: tokens from step 1 to this one (a step takes batch_size * seq_len * grad_accum), "
        "mean loss in nats with 6 places, gradient norm with 4, or nan; by step",
    ),
    Deliverable(
        "output/waste.tsv",
        "tsv",
        ("job", "ran", "kept", "wasted_gpu_steps"),
        "one row a job: steps it took, those that count, the others times its gpus; by job",
    ),
    Deliverable(
        "output/divergence.json",
        "json",
        (
            *("onset_step", "onset_job", "best_step", "best_loss"),
            *("cause_step", "cause_key", "cause_before", "cause_after", "cause_layer"),
        ),
        "rule 7; steps are integers, all else is text",
    ),
    Deliverable(
        "output/phases.tsv",
        "tsv",
        ("first_step", "last_step", "points", "lowest_loss", "highest_grad_norm", "tokens"),
        "one row a longest stretch of steps that count in which no setting changes that is not inert: its points on "
        "the curve, extremes among numbers (blank if there are none), tokens of its steps; by step",
    ),
    Deliverable(
        "output/manifest.json",
        "json",
        ("rows", "last_step", "tokens"),
        "rows: name of each of the seven tables above -> data rows; last step that counts, tokens up to it",
    ),
)

_TEXT = """\
The training run {run} was launched {jobs} times and ended in a divergence. Find its true curve, the settings that \
held, and the cause. Everything lies under input/. Write the deliverables below to output/ and then submit. Only \
output/ is graded, and it must hold exactly these files.

Inputs
- run.json: the job that the run ended with (final_job), what is a divergence (rule 7), settings that are inert
- launches.jsonl: each job's command line; configs/: the base configuration and override files that command lines \
name
- changes.tsv: settings changed while a job ran: they hold from that step to the end of that job
- keys.json: other spellings of keys -> the proper key
- scheduler.sqlite: jobs (launched in seconds since 1970, gpus, last step taken), checkpoints (written after a step)
- logs/: records of job, step, time, loss, gradient norm (CSV, TSV, JSON lines or key=value), in any layout; some \
logs are lost, some hold two jobs
- layouts.json: field -> name in the file; number that the first step has; time (epoch: seconds, or iso); loss \
(mean, or sum over the grad_accum micro-batches that hold for the job at that step; nat, or millinat). The names in \
a log tell its layout
- tracker.sqlite: all points of the jobs launched with --track, in proper units (NULL: nan); only phase train is in \
logs
- cache/: an earlier report; not an authority for anything

Deliverables
{deliverables}

Rules, in order
1. A line of a log that does not hold exactly the fields of its layout is noise.
2. Of several records for one job and step the one with the latest time stands (equal times are equal records).
3. A training point in the tracker for which no log has a record is restored from it.
4. A job resumes from the checkpoint that --resume names, or for auto from the complete checkpoint written last \
before its launch; it takes the steps after that one's. Without --resume it starts at step 1.
5. What counts: the final job up to its last step; before it, the job that wrote its checkpoint, up to that step; \
and so on.
6. In a job the base configuration holds (keys without their sections), over it the override file, over that --key \
value or --key=value, over that changes. A restart forgets changes. Keys are brought to their proper spelling, \
numbers to plain decimals without superfluous zeros (6e-4 is 0.0006, 16.0 is 16).
7. A point of the curve is high if it is nan or its loss is more than high_percent percent above the lowest loss \
before it. The onset is the first of the first high_points or more high points in a row; best is the lowest point \
before it (the earliest of equals). The cause is the last change of a setting's value that counts, at or before the \
onset, of a setting that is not inert: the first step with the new value, key, values before and after, layer of the \
new one.

Formats: UTF-8, a header line, comma or tab, no spaces added, line feed at line ends, numbers in numeric order. \
JSON: keys sorted, indented by one space, line feed at the end.
Tools: bash, coreutils, python3 with its standard library (csv, json, sqlite3, tomllib). No network.
"""


def prompt(files: Files) -> str:
    """Return the task text; `files` is the public tree."""
    lines = []
    for one in DELIVERABLES:
        told = f" ({', '.join(one.columns)})" if one.columns else ""
        lines.append(f"- {one.path.removeprefix('output/')}{told}: {one.rule}")
    name, jobs = json.loads(files["input/run.json"])["run"], files["input/launches.jsonl"].count(b"\n")
    return _TEXT.format(run=name, jobs=jobs, deliverables="\n".join(lines))
