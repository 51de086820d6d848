# SPDX-License-Identifier: BSD-3-Clause
"""Published experiments, run again: their files, the runs of recipes, other studies, and what is written of them."""

from patchbag.experiments.files import ExperimentError, experiments_folder, list_experiments, load_experiment
from patchbag.experiments.plots import write_results
from patchbag.experiments.runner import expand_runs, open_data, run_experiment, run_pipeline

__all__ = [
    "ExperimentError",
    "expand_runs",
    "experiments_folder",
    "list_experiments",
    "load_experiment",
    "open_data",
    "run_experiment",
    "run_pipeline",
    "write_results",
]
