"""The public contract of a checkpoint: what an agent reads, made from public files only."""

from __future__ import annotations

import json

from ...world import Deliverable, Files

DELIVERABLES = (
    Deliverable(
        "output/inventory.csv",
        "csv",
        ("file", "schema", "step", "writer", "tensors", "data_bytes"),
        "one row a shard file: metadata as it stands, number of tensors, bytes after the header; by file",
    ),
    Deliverable(
        "output/tensors.csv",
        "csv",
        ("file", "key", "name", "stored_dtype", "dtype", "crc32"),
        "one row a tensor of every file: key as stored, local name, both formats, checksum by rule 2; by file, key",
    ),
    Deliverable(
        "output/placement.csv",
        "csv",
        ("file", "step", "group", "stage", "rank", "status"),
        "one row a shard file, as rules 3 and 4 place it; by file",
    ),
    Deliverable(
        "output/replicas.csv",
        "csv",
        ("tensor", "copies", "intact"),
        "one row a replicated tensor, by global name: current shards that hold it, and those among them with the "
        "logged checksum; by tensor",
    ),
    Deliverable(
        "output/dense.safetensors", "safetensors", (), "whole tensors of group dense, by global name"
    ),
    Deliverable(
        "output/experts.safetensors", "safetensors", (), "whole tensors of group expert, by global name"
    ),
    Deliverable(
        "output/model.index.json",
        "json",
        ("metadata", "weight_map"),
        "metadata: object with total_size, the data bytes of both files; weight_map: global name -> file name",
    ),
    Deliverable(
        "output/provenance.jsonl",
        "jsonl",
        ("crc32", "sources", "tensor"),
        "one object a whole tensor: its checksum, list of files it was made of, global name; by tensor",
    ),
    Deliverable(
        "output/report.json",
        "json",
        ("step", "shards", "renamed", "converted", "tensors", "parameters"),
        "step restored; status -> files; rows of tensors.csv with name other than key, and with dtype other than "
        "stored_dtype; whole tensors; their elements",
    ),
)

_TEXT = """\
Run {run} crashed while it was saving a checkpoint. Its {count} shard files under input/shards/ are mixed up: put \
the last complete step together again. Write the deliverables below to output/ and then submit. Only output/ is \
graded, and it must hold exactly these files.

Inputs
- shards/: safetensors files (8 bytes little-endian header length, JSON header, data); __metadata__ claims a step, a \
writer and the version of the key names
- config.json: rows of the vocabulary, tensor-parallel ranks, layers of each pipeline stage and experts of each \
expert rank, in local order
- parameters.csv: local names (* is a number), group, format, axis along which dense tensors are divided (blank: \
every tensor-parallel rank of the stage holds a whole copy, a replicated tensor), stages that hold it
- schema.json: version -> segment of a key (between dots) in that version -> its proper segment
- writers.tsv: what each writer saves; save_log.csv: what writers logged as saved, with the CRC-32 of each tensor
- index.json: an index written before the files were mixed up; not an authority for anything

Deliverables (file below output/, columns or keys)
{deliverables}

Rules, in order
1. A tensor's local name is its key with every segment brought from the shard's version to the proper one, all at \
once.
2. A tensor counts in the format that parameters.csv gives its name. Where it is stored in a wider one, its values \
are exact in the narrower: convert it. Checksums are CRC-32 (zlib) of the tensor's bytes in that format, eight hex \
digits.
3. A shard is of the step and writer under which the log has all of its tensors that are not replicated, by name and \
checksum. The log prevails over metadata, and metadata over file names. Group, stage and rank follow from \
writers.tsv.
4. The step to restore is the last one that every writer logged. Status: stale where the step is older, partial \
where it is newer; of several shards of that step with one writer the first by file name is current, the others \
duplicate.
5. Only current shards count for the rest. Local layer and expert numbers (first and second number of a name) become \
global ones by config.json. A copy of a replicated tensor may lie in any current shard of its stage; only copies \
with the checksum that the log has for the step and stage count.
6. Divided tensors are joined along their axis in order of rank. The vocabulary axis was padded with zeros at its \
end: cut it to vocab_size.
7. Sources: for a divided tensor all files in order of rank, for a replicated one the first file by name with an \
intact copy.

Formats: UTF-8, a header line in CSV, no spaces added, line feed at line ends, rows sorted as text. JSON: keys \
sorted, indented by one space, line feed at the end; JSON lines: keys sorted, one space after colon and comma. \
safetensors: no metadata, formats in the order F32, BF16, F16, I8, within each by name, data in the same order \
without gaps, header without spaces but those that pad it to a multiple of 8.
Tools: bash, coreutils, python3 with its standard library (json, struct, zlib). No network.
"""


def prompt(files: Files) -> str:
    """Return the task text; `files` is the public tree."""
    lines = []
    for one in DELIVERABLES:
        told = f" ({', '.join(one.columns)})" if one.columns else ""
        lines.append(f"- {one.path.removeprefix('output/')}{told}: {one.rule}")
    return _TEXT.format(
        run=json.loads(files["input/config.json"])["run"],
        count=sum(path.startswith("input/shards/") for path in files),
        deliverables="\n".join(lines),
    )
