# SPDX-License-Identifier: BSD-3-Clause
"""The same work on a Dask cluster: descriptors, vectors, Gram blocks, as jobs of ``runtime.parallel_map``.

    with cluster_context("tcp://scheduler:8786"):
        model.fit(paths, labels)

Jobs are cut by the data alone and carry what they need; results come back in the order of the jobs and are summed in
that order.  So the model has the same bits as on one machine, and a worker that is lost costs the time of its jobs,
which Dask gives to another one, and nothing else.  The caller keeps the store of features; workers read image files by
the paths that it has, so that these must mean the same everywhere (a shared folder).

EM stays with the caller: it looks at one sample of descriptors again and again, and to send it takes longer than to
compute.  So do statistics of descriptors that have come back, which are as large as these: sending both costs the
caller about as much as computing them.  Where images are described and encoded in one job
(:func:`~patchbag.encodings.stream.encode_images`), the worker makes statistics too, and only vectors travel.

There is no scheduler of ours: addresses are Dask's, and ``"local"`` is a cluster of processes here.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

TIMEOUT = 10  # seconds, for a scheduler to answer
WAIT = 600  # seconds without a single worker: those that were lost are started again


@contextmanager
def cluster_context(address: str, n_workers: int | None = None) -> Iterator[Any]:
    """Workers of the cluster for what is called inside; gives Dask's client.

    Parameters
    ----------
    address : ``"local"``, or that of a scheduler such as ``"tcp://10.0.0.5:8786"``
    n_workers : processes of a local cluster, one thread each; None for one per core
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ValueError("a cluster needs Dask: pip install 'patchbag[dask]'") from None
    import dask
    from joblib import parallel_config

    with ExitStack() as stack:
        # a local worker that was lost and takes longer than 15 s to start again would be given up
        stack.enter_context(dask.config.set({"distributed.deploy.lost-worker-timeout": f"{WAIT}s"}))
        if address == "local":
            options: dict[str, Any] = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": None}
            place: Any = stack.enter_context(LocalCluster(processes=True, **options))
        else:
            place = address
        try:
            client = stack.enter_context(Client(place, timeout=TIMEOUT, set_as_default=True))
        except (OSError, ValueError) as error:
            raise ValueError(f"no Dask scheduler answers at {address}: {error}") from error
        stack.enter_context(parallel_config("dask", wait_for_workers_timeout=WAIT))
        yield client
