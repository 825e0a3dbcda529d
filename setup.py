"""Build the optional compiled kernels; everything else is in pyproject.toml."""

from pathlib import Path

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "edgefed.native._kernels",
            sources=["edgefed/native/kernels.c"],
            depends=sorted(str(path) for path in Path("edgefed/native").glob("*.h")),
            libraries=["m"],
            extra_compile_args=[
                *("-std=gnu11", "-O3", "-g0", "-ffp-contract=fast", "-fvisibility=hidden"),
                *("-Wno-psabi", "-Wno-sign-compare"),
            ],
            # Without a working compiler EdgeFed installs all the same, and computes with torch.
            optional=True,
        )
    ]
)
