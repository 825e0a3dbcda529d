"""The workload in Flower's simulation on Ray; prints when each round began, as JSON.

Each actor reads the data once and keeps it, clients keep no state, and nothing is evaluated.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.work import CLIENTS, COHORT, SAMPLES, epoch, kept, lenet

DATA, ROUNDS = Path(sys.argv[1]), int(sys.argv[2])


class Stamped(FedAvg):  # type: ignore[misc]
    """Federated averaging that notes when each round begins."""

    times: list[float]

    def configure_train(self, *given: Any, **named: Any) -> Any:
        """Note the beginning."""
        self.times.append(time.monotonic())
        return super().configure_train(*given, **named)

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        """Check that all answered."""
        replies = list(replies)
        failed = [reply.error.reason for reply in replies if reply.has_error()]
        if failed or len(replies) != COHORT:
            raise RuntimeError(f"{len(replies)} clients answered: {failed}")
        return super().aggregate_train(server_round, replies)


def main() -> None:
    """Run: the data's path, and the number of rounds."""
    client, server, times, place = ClientApp(), ServerApp(), list[float](), DATA

    @client.train()  # type: ignore[untyped-decorator]
    def train(message: Any, context: Any) -> Any:
        torch.set_num_threads(1)
        inputs, labels = kept(place)
        number, model = int(context.node_config["partition-id"]), lenet()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        epoch(model, inputs[number], labels[number])
        metrics = MetricRecord({"num-examples": SAMPLES})
        content = {"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}
        return Message(content=RecordDict(content), reply_to=message)

    @server.main()  # type: ignore[untyped-decorator]
    def serve(grid: Any, context: Any) -> None:
        strategy = Stamped(
            fraction_train=COHORT / CLIENTS,
            fraction_evaluate=0.0,
            min_train_nodes=COHORT,
            min_available_nodes=CLIENTS,
        )
        strategy.times = times
        start = ArrayRecord(lenet().state_dict())
        strategy.start(grid=grid, initial_arrays=start, num_rounds=ROUNDS)
        times.append(time.monotonic())

    ray = {"num_cpus": os.cpu_count(), "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    resources = {"num_cpus": 1, "num_gpus": 0.0}
    config = {"client_resources": resources, "init_args": ray}
    run_simulation(server, client, CLIENTS, backend_config=config)
    print(json.dumps(times))


if __name__ == "__main__":
    main()
