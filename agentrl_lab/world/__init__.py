"""The ticket desk: tools, tasks, parser, judge, rewards, environment. No torch, no transformers."""

from agentrl_lab.world.env import TicketEnv

__all__ = ["TicketEnv"]
