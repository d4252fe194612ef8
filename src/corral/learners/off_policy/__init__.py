"""Off-policy learners: SAC and TD3, with or without memory.

                 actor                          critic
markov           obs ─► MLP                     [obs, action] ─► two MLPs
memory           history ─► RNN ─► MLP          history ─► RNN ─► two MLPs
memory_markov    obs ─► MLP                     history ─► RNN ─► two MLPs

Actor and critic have weights of their own. The history of a step is the previous
action, the reward that it brought, and the observation.
"""
