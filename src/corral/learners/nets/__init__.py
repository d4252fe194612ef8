"""Nets: spaces -> modules that encode observations, remember, and choose actions.

observation ──► encoder ──► (memory) ──┬──► actor tower  ──► head: the action
                                       └──► critic tower ──► the value
"""
