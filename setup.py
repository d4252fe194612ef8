"""The four C parts, all optional: without a compiler their Python twins are used."""

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
            f"corral.{room.replace('/', '.')}.{part}",
            [f"src/corral/{room}/{part}.c"],
            include_dirs=[get_include()],
            extra_compile_args=["-O2"],
            optional=True,
        )
        for room, part in (
            ("engine/worker", "_record"),
            ("engine/layout", "_readout"),
            ("learners/nets", "_dense"),
        )
    )

setup(ext_modules=extensions)
