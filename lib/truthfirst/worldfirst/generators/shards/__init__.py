"""Checkpoint consolidation: safetensors shards under tensor, pipeline and expert parallelism, put together again."""
