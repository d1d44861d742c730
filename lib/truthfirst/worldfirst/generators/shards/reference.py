"""The reference solver: stage by stage, standard library only, nothing of ours.

As a program in a workspace, `python3 reference.py [STAGE ...]` reads input/ and output/ there and writes what the
stages give (all of them where none is named). Each stage reads the files of the stages before it.
"""

from __future__ import annotations

import csv
import io
import json
import pathlib
import struct
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Files = Mapping[str, bytes]
Tensor = tuple[str, list[int], bytes]  # format, shape, data
Tensors = dict[str, Tensor]
STAGES = (
    "inventory-shards",
    "normalize-tensors",
    "place-shards",
    "settle-replicas",
    "merge-dense",
    "merge-experts",
    "index-weights",
    "package-report",
)
SHARDS = "input/shards/"
WIDTH = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I16": 2, "I8": 1}
CODE = {"F64": "d", "F32": "f", "F16": "e", "I16": "h", "I8": "b"}  # as struct spells them
ORDER = ("F32", "BF16", "F16", "I8")


# --- reading and writing ----------------------------------------------------------------------------------
def records(files: Files, path: str) -> list[dict[str, str]]:
    """Return the rows of a CSV or TSV file as dictionaries."""
    delimiter = "\t" if path.endswith(".tsv") else ","
    return list(csv.DictReader(io.StringIO(files[path].decode("utf-8")), delimiter=delimiter))


def delimited(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Return a CSV file as bytes."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue().encode("utf-8")


def as_json(value: object) -> bytes:
    """Return a JSON file as bytes."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode("utf-8")


def open_shard(data: bytes) -> tuple[dict[str, str], Tensors]:
    """Return (metadata, {key: (format, shape, bytes)}) of a safetensors file."""
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for key, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[key] = (entry["dtype"], entry["shape"], body[begin:end])
    return metadata, tensors


def close_shard(tensors: Tensors) -> bytes:
    """Return a safetensors file of {name: (format, shape, bytes)}."""
    header: dict[str, object] = {}
    end, names = 0, sorted(tensors, key=lambda name: (ORDER.index(tensors[name][0]), name))
    for name in names:
        dtype, shape, data = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(tensors[name][2] for name in names)


def shard_files(files: Files) -> Iterator[tuple[str, dict[str, str], Tensors]]:
    """Yield (file name, metadata, tensors) of every shard, by name."""
    for path in sorted(path for path in files if path.startswith(SHARDS)):
        yield (path[len(SHARDS) :], *open_shard(files[path]))


# --- tensors ----------------------------------------------------------------------------------------------
def narrowed(stored: str, dtype: str, data: bytes) -> bytes:
    """Return a tensor's bytes in the format in which it counts."""
    if stored == dtype:
        return data
    count = len(data) // WIDTH[stored]
    if dtype == "BF16":  # the two upper bytes of each single-precision number
        out = bytearray(2 * count)
        out[0::2], out[1::2] = data[2::4], data[3::4]
        return bytes(out)
    return struct.pack(f"<{count}{CODE[dtype]}", *struct.unpack(f"<{count}{CODE[stored]}", data))


def starred(name: str) -> str:
    """Return the row of parameters.csv that a name belongs to."""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def parameters(files: Files) -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in records(files, "input/parameters.csv")}


def is_replicated(row: dict[str, str]) -> bool:
    return row["group"] == "dense" and row["axis"] == ""


def global_name(name: str, config: dict[str, Any], stage: int, rank: int | None) -> str:
    """Return the name with its local layer and expert numbers replaced."""
    tables = [config["pipeline_layers"][stage], config["expert_placement"][rank] if rank is not None else []]
    parts = name.split(".")
    for place in [place for place, part in enumerate(parts) if part.isdigit()]:
        parts[place] = str(tables.pop(0)[int(parts[place])])
    return ".".join(parts)


def restored_step(files: Files) -> int:
    """Return the last step that every writer logged."""
    writers, seen = {row["writer"] for row in records(files, "input/writers.tsv")}, defaultdict(set)
    for row in records(files, "input/save_log.csv"):
        seen[int(row["step"])].add(row["writer"])
    return max(step for step, found in seen.items() if found == writers)


def current_shards(files: Files) -> Iterator[tuple[dict[str, str], Tensors]]:
    """Yield (placement row, {local name: (format, shape, bytes)}) of the current shards, by file; formats settled."""
    named: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for row in records(files, "output/tensors.csv"):
        named[row["file"]][row["key"]] = row
    for place in records(files, "output/placement.csv"):
        if place["status"] == "current":
            tensors = {}
            for key, (stored, shape, data) in open_shard(files[SHARDS + place["file"]])[1].items():
                row = named[place["file"]][key]
                tensors[row["name"]] = (row["dtype"], shape, narrowed(stored, row["dtype"], data))
            yield place, tensors


def intact_copies(files: Files) -> Iterator[tuple[str, str, Tensor | None]]:
    """Yield (global name, file, tensor or None) of every copy of a replicated tensor; None where it is not intact."""
    config, table, step = json.loads(files["input/config.json"]), parameters(files), restored_step(files)
    stage_of = {
        r["writer"]: int(r["stage"]) for r in records(files, "input/writers.tsv") if r["group"] == "dense"
    }
    logged = {
        (stage_of[row["writer"]], row["tensor"]): row["crc32"]
        for row in records(files, "input/save_log.csv")
        if int(row["step"]) == step and row["writer"] in stage_of
    }
    for place, tensors in current_shards(files):
        for name, tensor in tensors.items():
            if is_replicated(table[starred(name)]):
                stage = int(place["stage"])
                good = f"{zlib.crc32(tensor[2]):08x}" == logged.get((stage, name))
                yield global_name(name, config, stage, None), place["file"], tensor if good else None


# --- stages -----------------------------------------------------------------------------------------------
def inventory_shards(files: Files) -> dict[str, bytes]:
    rows = []
    for name, metadata, tensors in shard_files(files):
        size = sum(len(data) for _, _, data in tensors.values())
        rows.append((name, metadata["schema"], metadata["step"], metadata["writer"], len(tensors), size))
    return {
        "output/inventory.csv": delimited(("file", "schema", "step", "writer", "tensors", "data_bytes"), rows)
    }


def normalize_tensors(files: Files) -> dict[str, bytes]:
    schemas, table, rows = json.loads(files["input/schema.json"]), parameters(files), []
    for file, metadata, tensors in shard_files(files):
        proper = schemas[metadata["schema"]]
        for key, (stored, _, data) in sorted(tensors.items()):
            name = ".".join(proper.get(part, part) for part in key.split("."))
            dtype = table[starred(name)]["dtype"]
            rows.append((file, key, name, stored, dtype, f"{zlib.crc32(narrowed(stored, dtype, data)):08x}"))
    return {"output/tensors.csv": delimited(("file", "key", "name", "stored_dtype", "dtype", "crc32"), rows)}


def place_shards(files: Files) -> dict[str, bytes]:
    table, last = parameters(files), restored_step(files)
    writers = {row["writer"]: row for row in records(files, "input/writers.tsv")}
    logged = defaultdict(set)
    for row in records(files, "input/save_log.csv"):
        logged[row["tensor"], row["crc32"]].add((int(row["step"]), row["writer"]))
    candidates: dict[str, set[tuple[int, str]]] = {}
    for row in records(files, "output/tensors.csv"):
        if not is_replicated(table[starred(row["name"])]):
            found = logged[row["name"], row["crc32"]]
            candidates[row["file"]] = candidates.get(row["file"], found) & found
    rows, taken = [], set()
    for file, found in sorted(candidates.items()):
        ((step, writer),) = found
        if step == last:
            status = "duplicate" if writer in taken else "current"
            taken.add(writer)
        else:
            status = "stale" if step < last else "partial"
        place = writers[writer]
        rows.append((file, step, place["group"], place["stage"], place["rank"], status))
    return {"output/placement.csv": delimited(("file", "step", "group", "stage", "rank", "status"), rows)}


def settle_replicas(files: Files) -> dict[str, bytes]:
    copies: Counter[str] = Counter()
    intact: Counter[str] = Counter()
    for name, _, tensor in intact_copies(files):
        copies[name] += 1
        intact[name] += tensor is not None
    rows = [(name, copies[name], intact[name]) for name in sorted(copies)]
    return {"output/replicas.csv": delimited(("tensor", "copies", "intact"), rows)}


def divided_parts(
    files: Files,
) -> tuple[dict[str, dict[int, tuple[str, Tensor]]], dict[str, tuple[int, bool]]]:
    """Return {global name: {rank: (file, tensor)}} and {global name: (axis, padded)} of the divided tensors."""
    config, table = json.loads(files["input/config.json"]), parameters(files)
    parts: dict[str, dict[int, tuple[str, Tensor]]] = defaultdict(dict)
    axes: dict[str, tuple[int, bool]] = {}
    for place, tensors in current_shards(files):
        for name, tensor in tensors.items():
            axis = table[starred(name)]["axis"]
            if axis:
                whole = global_name(name, config, int(place["stage"]), None)
                parts[whole][int(place["rank"])] = (place["file"], tensor)
                axes[whole] = (int(axis), table[starred(name)]["stages"] != "every")
    return parts, axes


def merge_dense(files: Files) -> dict[str, bytes]:
    vocabulary = json.loads(files["input/config.json"])["vocab_size"]
    parts, axes = divided_parts(files)
    merged: Tensors = {}
    for name, by_rank in parts.items():
        axis, padded = axes[name]
        pieces = [by_rank[rank][1] for rank in sorted(by_rank)]
        dtype, shape, _ = pieces[0]
        if axis == 0:
            data = b"".join(piece[2] for piece in pieces)
            whole = [sum(piece[1][0] for piece in pieces), *shape[1:]]
            if padded:
                data = data[: len(data) // whole[0] * vocabulary]
                whole[0] = vocabulary
        else:  # rows of the whole are rows of the parts, side by side
            steps = [len(piece[2]) // shape[0] for piece in pieces]
            data = b"".join(
                piece[2][row * step : (row + 1) * step]
                for row in range(shape[0])
                for piece, step in zip(pieces, steps, strict=True)
            )
            whole = [shape[0], sum(piece[1][1] for piece in pieces)]
        merged[name] = (dtype, whole, data)
    for name, _, tensor in intact_copies(files):
        if tensor is not None:
            merged.setdefault(name, tensor)
    return {"output/dense.safetensors": close_shard(merged)}


def expert_tensors(files: Files) -> Iterator[tuple[str, str, Tensor]]:
    """Yield (global name, file, tensor) of every expert tensor."""
    config, table = json.loads(files["input/config.json"]), parameters(files)
    for place, tensors in current_shards(files):
        for name, tensor in tensors.items():
            if table[starred(name)]["group"] == "expert":
                yield (
                    global_name(name, config, int(place["stage"]), int(place["rank"])),
                    place["file"],
                    tensor,
                )


def merge_experts(files: Files) -> dict[str, bytes]:
    return {
        "output/experts.safetensors": close_shard({name: tensor for name, _, tensor in expert_tensors(files)})
    }


def index_weights(files: Files) -> dict[str, bytes]:
    sources = {
        name: [by_rank[rank][0] for rank in sorted(by_rank)]
        for name, by_rank in divided_parts(files)[0].items()
    }
    for name, file, tensor in intact_copies(files):
        if tensor is not None:
            sources.setdefault(name, [file])
    sources |= {name: [file] for name, file, _ in expert_tensors(files)}
    where, checksums, size = {}, {}, 0
    for file in ("dense.safetensors", "experts.safetensors"):
        for name, (_, _, data) in open_shard(files[f"output/{file}"])[1].items():
            where[name], checksums[name] = file, f"{zlib.crc32(data):08x}"
            size += len(data)
    lines = [
        json.dumps({"crc32": checksums[name], "sources": sources[name], "tensor": name}) + "\n"
        for name in sorted(where)
    ]
    return {
        "output/model.index.json": as_json({"metadata": {"total_size": size}, "weight_map": where}),
        "output/provenance.jsonl": "".join(lines).encode("utf-8"),
    }


def package_report(files: Files) -> dict[str, bytes]:
    rows = records(files, "output/tensors.csv")
    whole = (
        open_shard(files["output/dense.safetensors"])[1] | open_shard(files["output/experts.safetensors"])[1]
    )
    report = {
        "step": restored_step(files),
        "shards": Counter(row["status"] for row in records(files, "output/placement.csv")),
        "renamed": sum(row["key"] != row["name"] for row in rows),
        "converted": sum(row["stored_dtype"] != row["dtype"] for row in rows),
        "tensors": len(whole),
        "parameters": sum(len(data) // WIDTH[dtype] for dtype, _, data in whole.values()),
    }
    return {"output/report.json": as_json(report)}


def run_stage(name: str, files: Files) -> dict[str, bytes]:
    """Return the files that a stage writes; `files` holds input/ and the output of the stages before it."""
    return {
        "inventory-shards": inventory_shards,
        "normalize-tensors": normalize_tensors,
        "place-shards": place_shards,
        "settle-replicas": settle_replicas,
        "merge-dense": merge_dense,
        "merge-experts": merge_experts,
        "index-weights": index_weights,
        "package-report": package_report,
    }[name](files)


def solve(files: Files) -> dict[str, bytes]:
    """Return every file under output/."""
    made: dict[str, bytes] = {}
    for name in STAGES:
        made |= run_stage(name, {**files, **made})
    return made


def main(names: list[str]) -> None:
    root = pathlib.Path()
    for name in names or STAGES:
        files = {path.as_posix(): path.read_bytes() for path in root.glob("*put/**/*") if path.is_file()}
        for path, data in run_stage(name, files).items():
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1:])
