"""Everything that a plug-in imports from EdgeFed; this module never moves.

``docs/extensions.md`` describes plug-ins, and ``docs/algorithm-interface.md`` the
interface of an algorithm. Contract tests are in ``edgefed.testing``. EdgeFed's own modules import
a name from its defining module.
"""

from __future__ import annotations

from edgefed.algorithms.averaging.fedavg import (
    MAX_DELTA,
    AveragingSettings,
    Contribution,
    FedAvg,
    delta_role,
    difference,
)
from edgefed.algorithms.averaging.fedavg import (
    trained as trained_arrays,
)
from edgefed.algorithms.averaging.training import augment_of, loss_of, objective_of, schedule_of
from edgefed.algorithms.interface.answer import Answer, Group, Remark
from edgefed.algorithms.interface.base import Algorithm, AlgorithmSettings, State
from edgefed.algorithms.interface.cohort_sampling import Cohort, draw_testers
from edgefed.algorithms.interface.cohort_sampling import draw as draw_cohort
from edgefed.algorithms.interface.device_side import (
    Chosen,
    DensityFit,
    DeviceTask,
    DeviceTest,
    DeviceView,
    Encoding,
    EvalJob,
    LedgerEntry,
    LowestLossJob,
    PredictorEvalJob,
    Result,
    StatisticsJob,
    TrainedEvalJob,
    Work,
    WorkSequence,
)
from edgefed.algorithms.interface.exchange import (
    Exchange,
    Finished,
    Payload,
    Question,
    Relay,
    ReplyRole,
)
from edgefed.algorithms.interface.exchange_part import ExchangePart
from edgefed.algorithms.interface.member import Member, Roster
from edgefed.algorithms.interface.optional_interfaces import (
    AnswerGroups,
    BountyOrders,
    CompleteAlgorithm,
    DeviceTests,
    RecipeNeeds,
    Recovery,
    RoundMetrics,
    SavedModels,
)
from edgefed.algorithms.selection.base import (
    Candidate,
    Selector,
    SelectorSettings,
    draw_by_weight,
)
from edgefed.config.recipes.images_section import ImagesSection
from edgefed.config.recipes.recipe import ModelSection, RoundsSection
from edgefed.config.recipes.sections import CodecName, Section
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.coordinator.trackers.base import Row, TrackedRun, TrackedTrial, Tracker
from edgefed.coordinator.trackers.base import numbers as numbers_of
from edgefed.data.base.checks import checked_numbers, checked_samples, checked_tokens, count_classes
from edgefed.data.base.holdout import hold_out
from edgefed.data.base.paths import require_file, require_folder
from edgefed.data.base.paths import resolve as resolve_path
from edgefed.data.base.preparation import PreparationOptions
from edgefed.data.base.types import Dataset, Indices, no_samples
from edgefed.data.partitioners.cover import Cover, too_few
from edgefed.data.partitioners.cover import Parts as PartitionParts
from edgefed.data.partitioners.registry import Partitioner, PartitionRequest
from edgefed.data.sets.dataset_reader import DatasetReader, SourceReader
from edgefed.data.sets.options import DataOptions, SplitOptions
from edgefed.errors import DataError, MissingDataError, RecipeError, UnmergeableError, UsageError
from edgefed.events.base.method_tables import Column, MethodTable, method_table
from edgefed.files.samples import Samples
from edgefed.learn.aggregation.exact_mean import ExactMean
from edgefed.learn.aggregation.pooled_statistics import (
    LARGEST as LARGEST_STATISTIC,
)
from edgefed.learn.aggregation.pooled_statistics import (
    MeasuredStatistics,
    pooled_statistics,
)
from edgefed.learn.aggregation.server_optimizers import ServerOptimizer
from edgefed.learn.base.permutation_groups import PermutationGroups
from edgefed.learn.base.types import (
    Array,
    Batch,
    Context,
    Forward,
    Job,
    Objective,
    Params,
    Schedule,
    Score,
    Tensors,
    Trained,
)
from edgefed.learn.modeling.model import Model
from edgefed.learn.networks.base import Network, NetworkSettings, Shape, image_shape
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.linear_term import Linear, shifts
from edgefed.learn.objectives.proximal import Proximal, centred
from edgefed.learn.objectives.squared_error import SquaredError
from edgefed.learn.steps.capabilities import Assigns, Checks, Draws, Phase, Phased, is_single_pass
from edgefed.learn.training.scoring import Predict, Predictor
from edgefed.seeds import derive, generator
from edgefed.sharing.policy import Policy, Withheld
from edgefed.sharing.releases import labels_release, means_release, mixes_release, update_release
from edgefed.wire.tensors import TensorSpec, specs_of

# fmt: off
__all__ = [  # noqa: RUF022 - by what they are for
    # An algorithm: its class, its settings, what it keeps, and algorithms and parts to build on.
    "Algorithm", "AlgorithmSettings", "State", "AveragingSettings", "Contribution", "FedAvg",
    "ExchangePart", "Remark",
    # Optional interfaces of an algorithm; FedAvg has all of them.
    "AnswerGroups", "BountyOrders", "CompleteAlgorithm", "DeviceTests", "RecipeNeeds", "Recovery",
    "RoundMetrics", "SavedModels",
    # Exchanges: what the coordinator asks of which devices, and what answers must look like.
    "Exchange", "Finished", "Payload", "Question", "Relay", "ReplyRole", "Member", "Roster",
    "Cohort", "draw_cohort", "draw_testers", "MAX_DELTA", "delta_role", "CodecName", "TensorSpec",
    "specs_of",
    # The device's half: its task, what it may use, the work of the trainer, and the answer.
    "Answer", "Group", "Chosen", "DensityFit", "DeviceTask", "DeviceTest", "DeviceView", "Encoding",
    "EvalJob", "LedgerEntry", "LowestLossJob", "PredictorEvalJob", "Result", "StatisticsJob",
    "TrainedEvalJob", "Work", "WorkSequence", "difference", "augment_of", "loss_of", "objective_of",
    "schedule_of", "Job", "Schedule", "Score", "Trained",
    # What a device releases: the owner's policy, and entries of its ledger.
    "Policy", "Withheld", "labels_release", "means_release", "mixes_release", "update_release",
    # Local objectives, and what they may declare beside their loss.
    "Batch", "Context", "Forward", "Objective", "Params", "Assigns", "Checks", "Draws", "Phase",
    "Phased", "is_single_pass", "CrossEntropy", "Proximal", "SquaredError",
    "centred", "Linear", "shifts",
    # Weights, merging, and seeds.
    "Array", "Tensors", "ExactMean", "ServerOptimizer", "trained_arrays", "LARGEST_STATISTIC",
    "MeasuredStatistics", "pooled_statistics", "derive", "generator",
    # Models and how they predict; a network of one's own.
    "Model", "Predict", "Predictor", "Network", "NetworkSettings", "Shape", "image_shape",
    "PermutationGroups",
    # The choice of devices.
    "Selector", "SelectorSettings", "Candidate", "draw_by_weight",
    # Tables of a method's state.
    "Column", "MethodTable", "method_table",
    # Tables of the recipe, and errors that a user can cause.
    "Section", "ModelSection", "RoundsSection", "TrainingSection", "ImagesSection", "DataError",
    "MissingDataError", "RecipeError", "UnmergeableError", "UsageError",
    # Data sets: samples, their checks, and the keys of a recipe.
    "Samples", "Dataset", "no_samples", "DatasetReader", "SourceReader", "DataOptions",
    "SplitOptions", "PreparationOptions", "checked_numbers", "checked_samples", "checked_tokens",
    "count_classes", "hold_out", "require_file", "require_folder", "resolve_path",
    # Partitions: which samples each device gets.
    "Partitioner", "PartitionRequest", "Cover", "PartitionParts", "too_few", "Indices",
    # Trackers: the runs and rounds that they are notified of.
    "Tracker", "TrackedRun", "TrackedTrial", "RunRecord", "Row", "numbers_of",
]
# fmt: on
