"""What PPO's written-out derivatives gain over autograd, per update.

    python benchmarks/ppo_derivatives.py             some minutes
    python benchmarks/ppo_derivatives.py --quick     fewer rounds

Both learn from the same rollout, 8 slots of 128 rows, minibatches of 64 and 256, on one
torch thread. They take turns, round by round, forth and back; the ratio is the median
of the ratios within the rounds, of CPU time.
"""

from __future__ import annotations

import argparse
import statistics
import time

import gymnasium
import torch

from corral.engine.pool import Pool
from corral.learners.ppo import PPO, JudgedBatch, PPOConfig
from corral.rollouts.collector import Collector

SLOTS, ROWS = 8, 128
ENVS = ("CartPole-v1", "Pendulum-v1")


class AutogradPPO(PPO):
    """The same losses, differentiated by autograd."""

    def _learn(self, batch, lr, clip, judged):
        rows, config, head = batch.rows, self.config, self.net.head
        features = self.net.unroll(rows.leaves, batch.batch_sizes, batch.carry)
        outputs, value = self.net.outputs(features), self.net.values(features)
        deviation, mean = torch.std_mean(rows.advantage)
        advantage = (rows.advantage - mean) / (deviation + 1e-8)
        log_ratio = head.log_prob(outputs, rows.chosen) - rows.log_prob
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
        policy = -torch.min(advantage * ratio, advantage * clipped)
        critic = (value - rows.returns) ** 2
        tensors = (log_ratio, policy, critic, outputs)
        judged.append(JudgedBatch(*(tensor.detach() for tensor in tensors)))
        loss = policy.mean() + config.vf_coef * critic.mean()
        norm = self._optimiser.backward([(loss, torch.ones(()))])
        self._optimiser.step(lr, norm, config.max_grad_norm)
        return norm


def seconds(learner: PPO, rollout) -> float:
    """CPU time of one update."""
    began = time.process_time()
    learner.update(rollout)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="9 rounds, not 41")
    rounds = 9 if parser.parse_args().quick else 41
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, Gymnasium {gymnasium.__version__}\n")
    print("| work | minibatch | written out, ms | autograd, ms | ratio |")
    print("|---|---|---|---|---|")
    for env in ENVS:
        for size in (64, 256):
            config = PPOConfig(n_steps=ROWS, batch_size=size, n_epochs=4)
            with Pool(env, SLOTS, backend="serial", seed=0) as pool:
                spaces = pool.spec.observation_space, pool.spec.action_space
                pair = [kind(*spaces, config, seed=0) for kind in (PPO, AutogradPPO)]
                rollout = Collector(pool, pair[0].policy).collect(ROWS)
            times: list[list[float]] = [[], []]
            for number in range(rounds):
                for which in (0, 1) if number % 2 else (1, 0):
                    times[which].append(seconds(pair[which], rollout))
            ours, theirs = ([1e3 * one for one in each[2:]] for each in times)
            ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
            middle = statistics.median
            print(
                f"| {env} | {size} | {middle(ours):.1f} | {middle(theirs):.1f} "
                f"| {middle(ratios):.2f} × |"
            )


if __name__ == "__main__":
    main()
