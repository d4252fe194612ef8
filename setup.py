"""The two C parts, both optional: without a compiler their Python twins are used."""

import sys

from setuptools import Extension, setup

try:
    from numpy import get_include
except ImportError:  # no numpy at build time: _record.c cannot be built, the rest can
    get_include = None

extensions = []
if sys.platform == "linux":
    extensions.append(
        Extension(
            "corral.transport._doorbell",
            ["src/corral/transport/_doorbell.c"],
            extra_compile_args=["-O2"],
            optional=True,
        )
    )
if get_include is not None and sys.platform != "win32":
    extensions.append(
        Extension(
            "corral.workers._record",
            ["src/corral/workers/_record.c"],
            include_dirs=[get_include()],
            extra_compile_args=["-O2"],
            optional=True,
        )
    )

setup(ext_modules=extensions)
