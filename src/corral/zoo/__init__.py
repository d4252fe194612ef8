"""Example systems, one folder each: env, recipe, evaluation, page.

EVALUATIONS names the systems that `corral eval NAME` evaluates in a way of their own,
and the module that does it. It has

    EXAMPLES                          for `corral eval --help`
    add_arguments(parser)             the options that go with this system alone
    need(arguments) -> Need           the optional packages that it imports
    run(arguments) -> status          evaluate, print, write
    refuse(arguments)                 its options were given to another evaluation
"""

EVALUATIONS = {"tinyphysics": "corral.zoo.tinyphysics.eval_command"}
