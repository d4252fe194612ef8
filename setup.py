"""The three C parts, all optional: without a compiler their Python twins are used."""

import sys

from setuptools import Extension, setup

try:
    from numpy import get_include
except ImportError:  # no numpy at build time: only the doorbell can be built
    get_include = None

extensions = []
if sys.platform == "linux":
    extensions.append(
        Extension(
            "corral.engine.transport._doorbell",
            ["src/corral/engine/transport/_doorbell.c"],
            extra_compile_args=["-O2"],
            optional=True,
        )
    )
if get_include is not None and sys.platform != "win32":
    extensions.extend(
        Extension(
            f"corral.engine.{room}.{part}",
            [f"src/corral/engine/{room}/{part}.c"],
            include_dirs=[get_include()],
            extra_compile_args=["-O2"],
            optional=True,
        )
        for room, part in (("worker", "_record"), ("layout", "_readout"))
    )

setup(ext_modules=extensions)
