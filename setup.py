"""The compiled kernels, which may be missing: everything else is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "edgefed.native._kernels",
            sources=["edgefed/native/kernels.c"],
            depends=[f"edgefed/native/{name}.h" for name in ("chain", "conv", "dense", "merge")],
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
