# SPDX-License-Identifier: BSD-3-Clause
r"""Pool-based active learning with Gaussian processes (kapoor2010, §7).

One round is: the person labels an image (``teach``), the posterior of the pool is updated in O(nN), the learner names
the next image (``query``).  See posterior for the update and criteria for the utilities.

**Batches.**  ``batch="diverse"`` picks greedily.  The variance of a Gaussian process does not depend on the labels,
so the variance Σ' of the pool after the images picked so far is known; the utility of an image is multiplied by Σ'/Σ,
the share of its variance that the earlier picks leave.  An image similar to one in the batch drops out, an unrelated
one keeps its utility.  ``batch="per_class"`` is the paper's: the best image for each one-versus-all problem in turn
(table 1 criteria only).  A query begins with the problem that follows those of the labels so far, so that queries for
single images go round the classes as well.

**Cold start.**  While fewer than two classes have labels the criteria mean nothing.  ``cold_start="farthest"`` takes
the image with the largest remaining variance: farthest first in kernel space.  ``"typical"`` (default) weighs that by
the image's mean similarity to the pool, so that outliers wait.

**Shortlist.**  From five classes on, the criteria that look for doubt choose among images that stand for many others
(``shortlist``); a list grows as it is used up.  ``shortlist=None`` lets them choose among all images, as the paper
does.

**Unseen classes.**  ``novelty()`` is the probability that an image belongs to none of the classes seen.

**Stopping.**  ``stopping_hint()`` compares the predicted classes of the pool before and after the latest labels
(Cohen's kappa, stabilising predictions, Bloodgood & Vijay-Shanker 2009): labels that change nothing are not worth
asking for.

Conventions follow scikit-activeml: ``query`` returns indices and on request utilities of shape (batch_size, N) with NaN
for images that could not be chosen.
"""

from dataclasses import KW_ONLY
from typing import Any, Self

import numpy as np
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from patchbag.active.criteria import CRITERIA, doubt, influence, utilities, utilities_by_class
from patchbag.active.labels import LabelledPool
from patchbag.active.posterior import PoolPosterior
from patchbag.active.shortlist import MANY, USED, list_length, representatives, spectral_coordinates
from patchbag.active.stopping import ErrorEstimate
from patchbag.classifiers.gaussian_process.kernel_stack import check_kernel, stack_kernels
from patchbag.classifiers.gaussian_process.membership import membership, winning_probabilities
from patchbag.parameters import ONE_OR_MORE, POSITIVE, estimator, parameter
from patchbag.runtime import check_random_state

BATCHES = ("diverse", "per_class", "top")
COLD_STARTS = ("typical", "farthest", "random")
ONE_BY_ONE = ("uncertainty", "margin", "variance", "random")  # can take classes in turn; "random" asks the same anyway
DOUBTING = ("uncertainty", "margin", "entropy", "one_vs_all")
REFERENCE = 500  # images in which "influence" looks for doubt


def check_pool_kernel(X: Any, repair: bool = False) -> np.ndarray:
    """The kernel (N, N) of a pool, exactly symmetric; negative eigenvalues are clipped with ``repair``, else an error.

    With them the variance of the posterior can fall below zero, and probabilities near 0 and 1 come out that mean
    nothing.  Cost: one Cholesky factorisation, N³/3, and an eigendecomposition where it fails.
    """
    stack = stack_kernels(X)
    if len(stack) != 1:
        raise ValueError(f"active learning takes one kernel of the pool, got {len(stack)}; combine them first")
    return check_kernel(stack[0], repair=repair)[0]


@estimator
class ActiveLearner(LabelledPool):
    """A pool of images, a Gaussian process over it, and the choice of what to label next.

    Parameters
    ----------
    criterion : "uncertainty", "margin", "variance", "influence", "entropy", "one_vs_all" or "random"
    noise : σ², label noise
    batch : "diverse", "per_class" or "top" (the best ones, whatever they repeat)
    cold_start : "typical", "farthest" or "random"
    shortlist : "auto", None or the number of representative images to choose among at first ("auto": 4 per class, all
        images while there are fewer than five classes)
    classes : labels known beforehand, or None to learn them from the labels
    missing_label : what stands for "no label" in ``fit`` and ``query``
    window : number of latest labels on which the stopping hint is based
    agreement : mean kappa from which it says stop
    repair : clip the negative eigenvalues of a kernel that is not positive semidefinite, which is an error otherwise

    >>> learner = ActiveLearner(random_state=0).fit(np.eye(4) + 1.0)
    >>> first = learner.query()[0]
    >>> learner.teach([first], ["cat"]).n_labels_
    1
    """

    criterion: str = parameter(StrOptions(set(CRITERIA)), default="uncertainty")
    _: KW_ONLY
    noise: float = parameter(POSITIVE, default=1e-2)
    batch: str = parameter(StrOptions(set(BATCHES)), default="diverse")
    cold_start: str = parameter(StrOptions(set(COLD_STARTS)), default="typical")
    shortlist: int | str | None = parameter(ONE_OR_MORE, StrOptions({"auto"}), None, default="auto")
    repair: bool = parameter("boolean", default=False)

    # --- labels in -----------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:
        """Start with a pool: its kernel ``X (N, N)`` and labels ``y (N,)``, some or all of them missing."""
        return self._fit(check_pool_kernel(X, self.repair), y)

    def _fit(self, kernel: np.ndarray, y: Any = None) -> Self:
        """``fit`` with a kernel that has passed the check, which costs more than many rounds."""
        self._validate_params()
        if self.batch == "per_class" and self.criterion not in ONE_BY_ONE:
            raise ValueError(f"batch='per_class' needs uncertainty, margin or variance, got {self.criterion!r}")
        self.posterior_ = PoolPosterior(kernel, float(self.noise))
        n = len(kernel)
        self.random_ = check_random_state(self.random_state)
        if self.criterion == "influence":
            self.posterior_.watch(self.random_.permutation(n)[:REFERENCE])
        self._typical: np.ndarray | None = None
        self._coordinates: np.ndarray | None = None
        self._lists: dict[int, np.ndarray] = {}
        self._start(n, y)
        return self

    def _open_class(self) -> None:
        self.posterior_.add_class()

    def _learn(self, image: int, column: int) -> None:
        self.posterior_.add_label(image, 1 + column)

    def _leading(self) -> np.ndarray:
        return np.asarray(np.argmax(self.posterior_._mean[1:], axis=0))

    def skip(self, indices: Any) -> Self:
        """Never ask for these images."""
        super().skip(indices)
        self._lists.clear()
        return self

    # --- what is believed ----------------------------------------------------------------------------------------

    def predict(self) -> np.ndarray:
        """Class of every image of the pool, the largest mean among the classes with labels."""
        check_is_fitted(self, "posterior_")
        seen = self._seen()
        if not len(seen):
            raise ValueError("no image has a label yet; call teach first")
        best = np.argmax(self.posterior_._mean[1 + seen], axis=0)
        return np.array(self.classes_)[seen[best]]

    def predict_proba(self) -> np.ndarray:
        """(N, C) probabilities of the classes, in the order of ``classes_``; classes without labels included."""
        check_is_fitted(self, "posterior_")
        if len(self.classes_) < 2:
            return np.ones((len(self.available_), max(len(self.classes_), 1)))
        return winning_probabilities(self.posterior_.mean[:, 1:], self._deviation()[:, None])

    def novelty(self) -> np.ndarray:
        """(N,) probability that an image belongs to none of the classes that have labels."""
        check_is_fitted(self, "posterior_")
        p = membership(self.posterior_.mean[:, 1 + self._seen()], self._deviation()[:, None])
        return np.prod(1.0 - p, axis=1)

    def _deviation(self) -> np.ndarray:
        return np.sqrt(self.posterior_.variance + self.noise)

    def _error(self) -> ErrorEstimate:
        left = self.available_
        # with a single class the probabilities are all one, which says nothing about errors
        sure = self.predict_proba()[left].max(axis=1).mean() if left.any() and len(self._seen()) > 1 else np.nan
        return ErrorEstimate(float(1.0 - sure))

    # --- questions out -------------------------------------------------------------------------------------------

    def query(self, batch_size: int = 1, *, candidates: Any = None, return_utilities: bool = False) -> Any:
        """Images to label next.

        Parameters
        ----------
        batch_size : how many
        candidates : indices to choose among (default: all without a label and not skipped)
        return_utilities : also return utilities (batch_size, N), NaN where an image could not be chosen

        Returns
        -------
        indices (batch_size,), best first
        """
        check_is_fitted(self, "posterior_")
        free = self._shortlisted(self._free(candidates, batch_size), batch_size)
        base = self._base_utilities()
        diverse = self.batch == "diverse" and self.criterion != "random"
        variance = self.posterior_.variance
        remaining = variance.copy()
        imagined = np.empty((0, len(free)))
        indices, history = [], []
        for turn in range(batch_size):
            value = base[:, (self.n_labels_ + turn) % base.shape[1]].copy()
            if diverse and turn:
                value *= (remaining + 1e-12) / (variance + 1e-12)
            value[~free] = np.nan
            pick = self._argmax(value)
            indices.append(pick)
            history.append(value)
            free[pick] = False
            if diverse and turn + 1 < batch_size:
                row = self.posterior_.solve(pick, remaining, imagined)
                imagined = np.vstack([imagined, row])
                remaining = np.maximum(remaining - row**2, 0.0)
        return (np.array(indices), np.array(history)) if return_utilities else np.array(indices)

    def _shortlisted(self, free: np.ndarray, at_least: int) -> np.ndarray:
        """(N,) which of the free images are on the shortlist; all of them where there is none."""
        n_classes = len(self._seen())
        if self.shortlist is None or self.criterion not in DOUBTING or self.batch == "per_class":
            return free
        if n_classes < (MANY if self.shortlist == "auto" else 2):
            return free
        length = list_length(n_classes, self.n_labels_) if self.shortlist == "auto" else int(self.shortlist)
        while 2 * length < (~self.skipped_).sum():
            if length not in self._lists:
                if self._coordinates is None:
                    self._coordinates = spectral_coordinates(self.posterior_.kernel)
                self._lists[length] = representatives(self._coordinates, length, ~self.skipped_)
            chosen = self._lists[length]
            if free[chosen].sum() >= at_least and free[chosen].mean() > 1 - USED:
                listed = np.zeros_like(free)
                listed[chosen] = free[chosen]
                return listed
            length *= 2
        return free

    def _base_utilities(self) -> np.ndarray:
        """(N, 1), or (N, C) when classes take turns."""
        posterior, seen = self.posterior_, self._seen()
        if self.criterion == "random" or len(seen) < 2:
            return self._cold_utilities()[:, None]
        mean = posterior.mean[:, 1 + seen]
        if self.criterion == "influence":
            doubts = doubt(mean[posterior.watched], posterior.variance[posterior.watched], self.noise)
            return influence(posterior.cross, doubts, posterior.variance, self.noise)[:, None]
        if self.batch == "per_class":
            return utilities_by_class(self.criterion, mean, posterior.variance, self.noise)
        return utilities(self.criterion, mean, posterior.variance, self.noise, self.random_)[:, None]

    def _cold_utilities(self) -> np.ndarray:
        if self.criterion == "random" or self.cold_start == "random":
            return self.random_.uniform(size=len(self.available_))
        variance = self.posterior_.variance
        if self.cold_start == "farthest":
            return variance.copy()
        if self._typical is None:
            kernel = self.posterior_.kernel
            scale = 1.0 / np.sqrt(np.maximum(np.diagonal(kernel), 1e-300))
            self._typical = np.maximum((kernel @ scale) * scale / len(kernel), 0.0)
        return self._typical * variance
