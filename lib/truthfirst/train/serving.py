"""vLLM for a tool loop on several processes: what TRL's `VLLMGeneration` lacks for it.

    server      TRL gathers the prompts of all processes, has the main one ask, and deals the answers out again in equal
                shares. In a tool loop each process has its own number of unfinished episodes and its own number of
                turns: answers go to the wrong episode, or processes wait for each other for ever (pull request 6673 of
                TRL, open at version 1.16). Here every process asks the server itself, as it asks its own engine in
                colocate mode. Only weights go through the main process, and nobody asks before they have arrived.
    colocate    one engine a card is right as it is; an engine over several cards has the same fault, and is refused.
    names       the language model of a vision-language checkpoint is trained alone, and vLLM serves the whole: its
                weights are called by the names that they have in the checkpoint.

TRL makes the object, so it is given its class afterwards (`adopt`).
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from trl.generation.vllm_client import VLLMClient
from trl.generation.vllm_generation import VLLMGeneration

from .plan import PlanError

# model type: (prefix of the language model's names, their prefix in the checkpoint)
INSIDE = {
    "qwen3_5_text": ("model.", "model.language_model."),
    "qwen3_5_moe_text": ("model.", "model.language_model."),
}


class Generation(VLLMGeneration):
    """See the module docstring; made by `adopt`."""

    inside: tuple[str, str] | None = None

    def sync_weights(self) -> None:
        """Send the weights, and wait until every process knows that they have arrived."""
        super().sync_weights()
        if self.mode == "server":
            self.accelerator.wait_for_everyone()

    def generate(
        self, prompts: list[list[int]], images: Any, num_generations: int, profiler: Any = None
    ) -> tuple[Any, ...]:
        """Return (prompt ids, completion ids, log-probabilities, their ids), one completion a prompt."""
        if self.mode != "server":
            return super().generate(prompts, images, num_generations, profiler)
        with profiler or nullcontext():
            answer = self.vllm_client.generate(
                prompts=[list(ids) for ids in prompts],
                n=1,
                repetition_penalty=self.repetition_penalty,
                temperature=self.temperature,
                top_p=self.top_p,
                top_k=self.top_k,
                min_p=0.0 if self.min_p is None else self.min_p,
                max_tokens=self.max_completion_length,
                logprobs=self.logprobs,
                structured_outputs_regex=self.structured_outputs_regex,
                generation_kwargs=self.generation_kwargs,
            )
        names = ("prompt_ids", "completion_ids", "logprobs", "logprob_token_ids")
        return tuple(answer.get(name) for name in names)

    def _fix_param_name_to_vllm(self, name: str, extra_prefixes: list[str] | None = None) -> str:
        name = super()._fix_param_name_to_vllm(name, extra_prefixes)
        if self.inside is not None and name.startswith(self.inside[0]):
            return self.inside[1] + name.removeprefix(self.inside[0])
        return name


def adopt(generation: Any, model_type: str) -> None:
    """Make TRL's `VLLMGeneration` fit for a tool loop; raise PlanError where it cannot be."""
    if generation.mode == "colocate" and generation.tensor_parallel_size > 1:
        raise PlanError(
            f"vllm_tensor_parallel_size = {generation.tensor_parallel_size} with vLLM colocated: the processes of one "
            "engine would have to end their episodes together; use 1, or a server"
        )
    generation.__class__ = Generation
    generation.inside = INSIDE.get(model_type)
    if generation.mode == "server" and not generation.accelerator.is_main_process:
        generation.vllm_client = VLLMClient(
            base_url=generation.server_base_url
            or f"http://{generation.server_host}:{generation.server_port}",
            connection_timeout=generation.server_timeout,
        )
