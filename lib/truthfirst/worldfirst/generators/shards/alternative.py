"""The alternative solver: arrays in numpy, relations in pandas, files through the safetensors package.

Written apart from the reference and from the prompt alone: one frame of all stored tensors, joins instead of look-ups,
arrays concatenated along an axis instead of bytes woven together.
"""

from __future__ import annotations

import binascii
import io
import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

import numpy as np
import pandas as pd
from safetensors import TensorSpec, deserialize, serialize

from ...world import Files

_WORDS = {"F64": "<u8", "F32": "<u4", "BF16": "<u2", "F16": "<u2", "I16": "<u2", "I8": "u1"}  # raw bits
_TORCH = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "I8": "int8"}
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def solve(files: Files) -> dict[str, bytes]:
    """Return every file under output/."""
    config = json.loads(files["input/config.json"])
    stored, inventory = _stored(files)
    stored = _normalized(files, stored)
    placement = _placement(files, stored)
    current = _current(stored, placement, config)
    replicas, good = _replicas(files, current)
    used = pd.concat([current[~current["replicated"]], good], ignore_index=True)
    whole, provenance = _merged(used, config)
    archives = {
        f"{group if group == 'dense' else 'experts'}.safetensors": _archive(whole[whole["group"] == group])
        for group in ("dense", "expert")
    }
    where = whole.assign(file=np.where(whole["group"] == "dense", "dense.safetensors", "experts.safetensors"))
    index = {
        "metadata": {"total_size": int(sum(array.nbytes for array in whole["array"]))},
        "weight_map": dict(sorted(zip(where["tensor"], where["file"], strict=True))),
    }
    report = {
        "converted": int((stored["stored_dtype"] != stored["dtype"]).sum()),
        "parameters": int(sum(array.size for array in whole["array"])),
        "renamed": int((stored["key"] != stored["name"]).sum()),
        "shards": {
            status: int(count) for status, count in placement["status"].value_counts().sort_index().items()
        },
        "step": int(placement.loc[placement["status"] == "current", "step"].iloc[0]),
        "tensors": len(whole),
    }
    tables = {
        "inventory.csv": inventory,
        "tensors.csv": stored[["file", "key", "name", "stored_dtype", "dtype", "crc32"]],
        "placement.csv": placement[["file", "step", "group", "stage", "rank", "status"]],
        "replicas.csv": replicas,
    }
    written = {
        f"output/{name}": table.to_csv(index=False, lineterminator="\n").encode()
        for name, table in tables.items()
    }
    written |= {f"output/{name}": data for name, data in archives.items()}
    written["output/model.index.json"] = _json(index)
    written["output/report.json"] = _json(report)
    written["output/provenance.jsonl"] = provenance
    return written


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def _frame(files: Files, path: str) -> pd.DataFrame:
    """Return a table as a frame of strings; blanks stay blanks."""
    separator = "\t" if path.endswith(".tsv") else ","
    return pd.read_csv(io.BytesIO(files[path]), sep=separator, dtype=str, keep_default_na=False)


def _crc(array: np.ndarray) -> str:
    return binascii.crc32(array.tobytes()).to_bytes(4, "big").hex()


# --- what the shards hold ---------------------------------------------------------------------------------
def _stored(files: Files) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return one row a stored tensor with its raw bits, and the inventory; both by file, then key."""
    rows, heads = [], []
    for path in filter(lambda path: path.startswith("input/shards/"), files):
        data, file = files[path], PurePosixPath(path).name
        length = int(np.frombuffer(data, "<u8", count=1)[0])
        claims = json.loads(data[8 : 8 + length])["__metadata__"]
        tensors = deserialize(data)
        heads.append(
            (file, claims["schema"], claims["step"], claims["writer"], len(tensors), len(data) - 8 - length)
        )
        for key, tensor in tensors:
            bits = np.frombuffer(bytes(tensor["data"]), _WORDS[tensor["dtype"]]).reshape(tensor["shape"])
            rows.append((file, claims["schema"], key, tensor["dtype"], bits))
    stored = pd.DataFrame(rows, columns=["file", "schema", "key", "stored_dtype", "bits"])
    inventory = pd.DataFrame(heads, columns=["file", "schema", "step", "writer", "tensors", "data_bytes"])
    stored, inventory = stored.sort_values(["file", "key"]), inventory.sort_values("file")
    return stored.reset_index(drop=True), inventory.reset_index(drop=True)


def _normalized(files: Files, stored: pd.DataFrame) -> pd.DataFrame:
    """Return the stored tensors with local name, parameter columns, array in its own format, checksum."""
    schemas = json.loads(files["input/schema.json"])
    names = [
        _proper(key, schemas[version]) for version, key in zip(stored["schema"], stored["key"], strict=True)
    ]
    table = _frame(files, "input/parameters.csv").rename(columns={"name": "parameter"})
    made = stored.assign(name=names, parameter=[_NUMBER.sub("*", name) for name in names])
    made = made.merge(table, on="parameter", how="left", validate="many_to_one")
    arrays = map(_narrow, made["bits"], made["stored_dtype"], made["dtype"])
    made["array"] = pd.Series(list(arrays), dtype=object)
    made["crc32"] = made["array"].map(_crc)
    made["replicated"] = (made["group"] == "dense") & (made["axis"] == "")
    return made.drop(columns=["bits", "group"])


def _proper(key: str, segments: Mapping[str, str]) -> str:
    """Return a key with every segment that stands alone between dots replaced, in one pass."""
    if not segments:
        return key
    pattern = r"(?<![^.])(?:" + "|".join(map(re.escape, segments)) + r")(?![^.])"
    return re.sub(pattern, lambda match: segments[match[0]], key)


def _narrow(bits: np.ndarray, old: str, new: str) -> np.ndarray:
    """Return the raw bits of an array in its own format."""
    if old == new:
        return bits
    if (old, new) == ("F64", "F32"):
        return bits.view("<f8").astype("<f4").view("<u4")
    if (old, new) == ("F32", "F16"):
        return bits.view("<f4").astype("<f2").view("<u2")
    if (old, new) == ("F32", "BF16"):
        return (bits >> 16).astype("<u2")
    return bits.view("<i2").astype("i1").view("u1")


# --- where the shards belong ------------------------------------------------------------------------------
def _placement(files: Files, stored: pd.DataFrame) -> pd.DataFrame:
    """Return one row a shard with step, writer, place and status, found by what the log has all its own tensors of."""
    log, writers = _frame(files, "input/save_log.csv"), _frame(files, "input/writers.tsv")
    log["step"] = log["step"].astype(int)
    own = stored.loc[~stored["replicated"], ["file", "name", "crc32"]]
    needed = own.groupby("file").size().rename("needed")
    hits = own.merge(log.rename(columns={"tensor": "name"}), on=["name", "crc32"])
    hits = (
        hits.groupby(["file", "step", "writer"]).size().rename("hits").reset_index().join(needed, on="file")
    )
    placed = (
        hits[hits["hits"] == hits["needed"]]
        .merge(writers, on="writer")
        .sort_values("file", ignore_index=True)
    )
    logged = log.groupby("step")["writer"].nunique()
    last = logged[logged == len(writers)].index.max()
    again = placed.duplicated(["step", "writer"])
    placed["status"] = np.select(
        [placed["step"] < last, placed["step"] > last, again], ["stale", "partial", "duplicate"], "current"
    )
    return placed


def _current(
    stored: pd.DataFrame, placement: pd.DataFrame, config: Mapping[str, list[list[int]]]
) -> pd.DataFrame:
    """Return the tensors of the current shards with their global names."""
    here = placement.loc[placement["status"] == "current", ["file", "step", "group", "stage", "rank"]]
    made = stored.merge(here, on="file").astype({"stage": int, "rank": int})

    def tensor(name: str, stage: int, rank: int) -> str:
        numbers = iter((config["pipeline_layers"][stage], config["expert_placement"][rank]))
        return _NUMBER.sub(lambda match: str(next(numbers)[int(match[0])]), name)

    # the second number only occurs in expert shards, whose rank is an expert rank
    ranks = made["rank"].where(made["group"] == "expert", 0)
    made["tensor"] = [tensor(*entry) for entry in zip(made["name"], made["stage"], ranks, strict=True)]
    return made


def _replicas(files: Files, current: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the table of replicas, and the first intact copy of each."""
    log, writers = _frame(files, "input/save_log.csv"), _frame(files, "input/writers.tsv")
    log = log[log["step"] == str(current["step"].iloc[0])].merge(
        writers[writers["group"] == "dense"], on="writer"
    )
    log = log.assign(stage=log["stage"].astype(int), logged=log["crc32"])
    log = log.drop_duplicates(["stage", "tensor"])[["stage", "tensor", "logged"]].rename(
        columns={"tensor": "name"}
    )
    copies = current[current["replicated"]].merge(log, on=["stage", "name"], how="left")
    copies["intact"] = copies["crc32"] == copies["logged"]
    table = copies.groupby("tensor", sort=True)["intact"].agg(copies="size", intact="sum").reset_index()
    return table, copies[copies["intact"]].sort_values("file").drop_duplicates("tensor").assign(group="dense")


# --- whole tensors ----------------------------------------------------------------------------------------
def _merged(used: pd.DataFrame, config: Mapping[str, int]) -> tuple[pd.DataFrame, bytes]:
    """Return the whole tensors by name, and the provenance."""
    rows = []
    for tensor, group in used.sort_values("rank").groupby("tensor", sort=True):
        first = group.iloc[0]
        array = first["array"]
        if first["axis"] != "" and first["group"] == "dense":
            array = np.concatenate(list(group["array"]), axis=int(first["axis"]))
            if first["stages"] != "every":
                array = array[: config["vocab_size"]]
        rows.append(
            (tensor, first["group"], first["dtype"], np.ascontiguousarray(array), list(group["file"]))
        )
    whole = pd.DataFrame(rows, columns=["tensor", "group", "dtype", "array", "sources"])
    lines = [
        {"crc32": _crc(row["array"]), "sources": row["sources"], "tensor": row["tensor"]}
        for row in whole.to_dict("records")
    ]
    return whole, "".join(json.dumps(line) + "\n" for line in lines).encode()


def _archive(whole: pd.DataFrame) -> bytes:
    """Return a safetensors file of whole tensors."""
    told = {
        row["tensor"]: TensorSpec(
            dtype=_TORCH[row["dtype"]],
            shape=list(row["array"].shape),
            data_ptr=row["array"].ctypes.data,
            data_len=row["array"].nbytes,
        )
        for row in whole.to_dict("records")
    }
    return bytes(serialize(told, None))
