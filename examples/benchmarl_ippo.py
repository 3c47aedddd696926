"""Train a team with BenchMARL: IPPO on MiniCode, in which two programmers read a task and choose lines of code.

    pip install torchrl==0.11.1 hydra-core tqdm; pip install --no-deps benchmarl
    python examples/benchmarl_ippo.py

Without --no-deps, pip replaces torch. BenchMARL's networks read float vectors and choose discrete actions. The script
prints the team's mean return before and after training.
"""

from __future__ import annotations

import argparse
import tempfile

from benchmarl.algorithms import IppoConfig
from benchmarl.environments.common import TaskClass
from benchmarl.experiment import Callback, Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from torchrl.data import Composite
from torchrl.envs import EnvBase, PettingZooWrapper

from collm.envs import make
from collm.envs.views import NumericInfos, PhraseActions, TokenObservations, WordCodec, reference_phrases

WORDS = WordCodec("x y plus minus times double triple half square odd negate increment decrement".split())


class Coding(TaskClass):
    """BenchMARL task for MiniCode."""

    def get_env_fun(self, num_envs, continuous_actions, seed, device):
        def build() -> EnvBase:
            env = make("collm/MiniCode-v1")
            lines = reference_phrases(env, num_episodes=200)
            env = NumericInfos(PhraseActions(TokenObservations(env, kind="bag", codec=WORDS), lines))
            return PettingZooWrapper(env, categorical_actions=True, seed=seed, device=device)

        return build

    def supports_continuous_actions(self) -> bool:
        return False

    def supports_discrete_actions(self) -> bool:
        return True

    def max_steps(self, env: EnvBase) -> int:
        return 1

    def has_render(self, env: EnvBase) -> bool:
        return False

    def group_map(self, env: EnvBase) -> dict[str, list[str]]:
        return env.group_map

    def observation_spec(self, env: EnvBase) -> Composite:
        spec = env.observation_spec.clone()
        for group in self.group_map(env):
            for key in [key for key in spec[group].keys() if key != "observation"]:
                del spec[group][key]
        return spec

    def action_spec(self, env: EnvBase) -> Composite:
        return env.full_action_spec

    def info_spec(self, env: EnvBase) -> None:
        return None

    def state_spec(self, env: EnvBase) -> None:
        return None

    def action_mask_spec(self, env: EnvBase) -> None:
        return None

    @staticmethod
    def env_name() -> str:
        return "collm"


class Returns(Callback):
    """Callback that records the mean return of each batch of one-turn episodes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[float] = []

    def on_batch_collected(self, batch) -> None:
        self.found.append(float(batch["next", "main", "reward"].mean()))


def main(iterations: int, seed: int) -> tuple[float, float]:
    """Train the team. Returns the mean returns of the first and of the last iteration."""
    returns = Returns()
    config = ExperimentConfig.get_from_yaml()
    config.max_n_iters, config.max_n_frames = iterations, None
    config.on_policy_collected_frames_per_batch, config.on_policy_n_envs_per_worker = 256, 1
    config.on_policy_minibatch_size, config.on_policy_n_minibatch_iters = 64, 6
    config.lr, config.gamma, config.share_policy_params = 3e-3, 0.0, False
    config.evaluation, config.render, config.loggers, config.create_json = False, False, [], False
    with tempfile.TemporaryDirectory() as folder:
        config.save_folder = folder
        Experiment(
            task=Coding("CODING", {}),
            algorithm_config=IppoConfig.get_from_yaml(),
            model_config=MlpConfig.get_from_yaml(),
            critic_model_config=MlpConfig.get_from_yaml(),
            seed=seed,
            config=config,
            callbacks=[returns],
        ).run()
    print(f"benchmarl IPPO on collm/MiniCode-v1: {returns.found[0]:.3f} -> {returns.found[-1]:.3f}")
    return returns.found[0], returns.found[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    before, after = main(arguments.iterations, arguments.seed)
    raise SystemExit(0 if after > before else "the return did not rise")
