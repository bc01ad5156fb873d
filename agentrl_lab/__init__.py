"""agentrl_lab: a real transformer learns multi-step ticket tasks by PPO, on a laptop.

Three floors, imports only point down: `world` (the ticket desk), `learner` (policy and PPO),
`workbook` (what notebooks and the command line use). Importing this package loads nothing else.
"""

__version__ = "0.1.0"
