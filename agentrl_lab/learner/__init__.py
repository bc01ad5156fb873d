"""The policy and PPO: tokens, rollout, advantages, losses, updates, checkpoints, training."""
