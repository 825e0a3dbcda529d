"""Build the optional kernels and the broker's optional plug-in; the rest is in pyproject.toml."""

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
        ),
        Extension(
            "broker._subscriptions",
            sources=["broker/subscriptions.c"],
            depends=["broker/mosquitto_api.h"],
            extra_compile_args=[
                "-std=gnu11",
                "-O2",
                "-g0",
                "-fvisibility=hidden",
                "-Wall",
                "-Wextra",
            ],
            # Without it, Mosquitto runs without the plug-in: edgefed doctor says so.
            optional=True,
        ),
    ]
)
