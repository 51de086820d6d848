# SPDX-License-Identifier: BSD-3-Clause
"""Published experiments, run again: their files, their runs, and what is written of them."""

from patchbag.experiments.experiment import Experiment
from patchbag.experiments.files import ExperimentError, experiments_folder, list_experiments, load_experiment
from patchbag.experiments.journal import Journal
from patchbag.experiments.plots import result_paths, write_results
from patchbag.experiments.runner import run_experiment
from patchbag.experiments.runs import expand_runs, run_pipeline

__all__ = [
    "Experiment",
    "ExperimentError",
    "Journal",
    "expand_runs",
    "experiments_folder",
    "list_experiments",
    "load_experiment",
    "result_paths",
    "run_experiment",
    "run_pipeline",
    "write_results",
]
