"""Team-attention actor-critic: one policy for a team whose agents attend to each other.

settings      every setting
team          the team of an env, and its rows in a rollout
nets          the actor and the critic, with attention over agents
losses        PPO's losses of agents, and the conformity loss
policy        acting
learner       learning, as a run's learner
"""
