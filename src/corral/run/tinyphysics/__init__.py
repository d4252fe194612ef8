"""A controller on every route of tinyphysics: what it costs, and a page about it.

controller  who steers: the PID, or the policy of a run
driving     every route once, in a pool; costs and traces
page        the page about it
"""
