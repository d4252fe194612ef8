"""One policy for all agents: a learner of single agents in envs with several."""
