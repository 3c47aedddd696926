"""Training of one agent of a text environment in verl: agent loop and dataset.

Configure the loop in the file that `actor_rollout_ref.rollout.agent.agent_loop_config_path` sets:

    - name: mini_build
      _target_: collm.agents.interop.verl.EpisodeLoop
      env: collm/MiniBuild-v0
      agent: builder_0
      kwargs: {reward: dense}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.utils.profiler import simple_timer

from ...envs.core import as_chat
from ...envs.registration.registry import make
from ...envs.views import Conversation, SingleAgent


class EpisodeLoop(AgentLoopBase):
    """Agent loop of one agent. Reference players of the environment, if any, act for the other agents.

    An episode is one response in verl. The response mask selects the agent's tokens. The score is the return, and
    "turn_scores" are the rewards of the turns. Episodes are truncated at the response length.

    Args:
        env: registered id.
        agent: learner. None: first agent.
        kwargs: arguments of the environment.
    """

    def __init__(
        self, *args: Any, env: str, agent: str | None = None, kwargs: Mapping[str, Any] | None = None, **given: Any
    ):
        super().__init__(*args, **given)
        self._talk = Conversation(SingleAgent(make(env, **(kwargs or {})), agent))

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Play the episode of a row of the dataset, with the seed in its `extra_info`."""
        opening = as_chat(await self._aside(self._talk.reset, int(row["extra_info"]["seed"])))
        messages = list(row["raw_prompt"])
        messages += [] if messages[-len(opening) :] == opening else opening
        tokens = await self.ct_build_initial_tokens(messages)
        most = self.rollout_config.response_length
        timed: dict[str, float] = {}
        mask: list[int] = []
        logprobs: list[float] | None = None
        scores: list[float] = []
        num_turns, request = 1, uuid4().hex
        while not self._talk.is_over and len(mask) < most:
            with simple_timer("generate_sequences", timed):
                written = await self.server_manager.generate(
                    request_id=request, prompt_ids=tokens, sampling_params=sampling_params
                )
            has_logprobs = bool(written.log_probs)
            merged, mask, logprobs = await self.ct_merge_assistant_token(
                tokens,
                written.token_ids,
                mask,
                (logprobs or []) if has_logprobs else None,
                assistant_logprobs=written.log_probs if has_logprobs else None,
            )
            tokens = merged.token_ids
            reply = self.tokenizer.decode(written.token_ids, skip_special_tokens=True)
            heard = await self._aside(self._talk.step, reply)
            scores.append(heard.reward)
            news = as_chat(heard.messages)
            before = [*messages, {"role": "assistant", "content": reply}]
            messages = [*before, *news]
            num_turns += 1 + len(news)
            if news and not self._talk.is_over:
                merged, mask, logprobs = await self.ct_merge_context_msg(before, messages, tokens, mask, logprobs)
                tokens = merged.token_ids
        start = len(tokens) - len(mask)
        return AgentLoopOutput(
            prompt_ids=tokens[:start],
            response_ids=tokens[start:][:most],
            response_mask=mask[:most],
            response_logprobs=None if logprobs is None else logprobs[:most],
            reward_score=self._talk.earned,
            num_turns=num_turns,
            metrics=AgentLoopMetrics(**timed),
            extra_fields={
                "reward_extra_info": {"return": self._talk.earned},
                "turn_scores": scores,
                "tool_rewards": [],
            },
        )

    async def _aside(self, play: Any, *given: Any) -> Any:
        """Run a function in a thread, so that it does not block the agent loops of other episodes."""
        return await self.loop.run_in_executor(None, play, *given)


def rows(name: str, env: str, seeds: Iterable[int], agent: str | None = None, **kwargs: Any) -> list[dict[str, Any]]:
    """Return a dataset for verl, with one row per seed. The prompt is the first observation. Save it as Parquet.

    Args:
        name: name of the agent loop in its configuration file.
        env: registered id.
        agent: learner. None: first agent.
        kwargs: arguments of the environment.
    """
    talk = Conversation(SingleAgent(make(env, **kwargs), agent))
    return [
        {
            "prompt": as_chat(talk.reset(seed=seed)),
            "agent_name": name,
            "data_source": env,
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": number, "seed": seed},
        }
        for number, seed in enumerate(seeds)
    ]
