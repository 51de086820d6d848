# SPDX-License-Identifier: BSD-3-Clause
r"""What a pool of images believes of its classes, given a few labels.

**The graph teaches.**  Labels are diffused: scores F = K_{·L} (K_LL + σ²I)⁻¹ T, the mean of a Gaussian process with the
diffusion kernel of the pool (see ``similarity.graph``).  T holds the classes of the n labelled images as 0/1, each
column divided by its sum.  How large F is says how near the labels are; which class leads says more.  So rows are
centred and scaled to unit length, and become soft labels P = softmax(``SOFTNESS`` · F): every image now has one.

**A linear classifier learns** from the labels t_l and from all these soft labels, whose word has the weight ρ:

.. math:: W = \Big(\mu I + \sum_i \omega_i x_i x_i^\top\Big)^{-1} \sum_i \omega_i x_i q_i^\top,\qquad
          \omega_i, q_i = \begin{cases} 1,\; t_i - 1/C & i \in L\\ \rho,\; p_i - 1/C & \text{otherwise,}\end{cases}

ridge regression with one-versus-rest targets.  The graph knows which images belong together, the classifier which
directions of the vectors matter to all of them: it corrects images that sit at a wrong place in the graph, and it
places new images for the cost of a product.  It is a step of expectation maximisation for a linear discriminant, begun
from the graph.

**Where clusters are no classes** the soft labels mislead.  With ρ → 0 nothing is left of them, and the classifier is
the plain one of the labelled images.  ρ is chosen among ``TRUST`` by labels that were left out: the labels are cut into
``FOLDS`` parts, each predicted by all the rest, through diffusion and classifier; the log likelihood of their classes
decides, with a prior of ``DISTRUST`` nats per step from the first ρ on: labels that were asked for are the doubtful
ones, and the graph looks worse on them than it is (chosen on Caltech-101 with 202 labels).  The strength of diffusion
is chosen likewise, in closed form (see ``similarity.graph.choice``).  Labels whose class has no other are not counted:
it would be unknown.

**How sure.**  Scores become probabilities by a softmax whose sharpness is fitted to the same left-out predictions (see
``similarity.graph.choice``).  Labels that were asked for are not drawn at random: the second one of a class is asked
for where the first was doubted, and says that all is in doubt.  The scores have a unit, 1 for a class and 0 for the
others, so that little is left to learn: the best sharpness of five datasets, with one to four labels per class, lies
between 8 and 17.  Hence the narrow prior, ``SPREAD``.

**Cost** for N images, m eigenvectors, d dimensions, n labels: a Cholesky factor, d³/3, for each ρ once; N (m + 2d) C
per answer, for both matrices of the labels are factored once and their factors grow with every label, n (n + m) C;
``FOLDS`` times about that when the number of labels has grown by a tenth.  In large pools ``TAUGHT`` images teach the
classifier, and speak for all.
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from patchbag.similarity.graph.choice import (
    NOISE,
    USUAL,
    Sharpness,
    choose_diffusion,
    directions,
    fit_sharpness,
    one_hot,
    soften,
)
from patchbag.similarity.graph.diffusion import DiffusionBasis
from patchbag.similarity.graph.image_graph import ImageGraph

SOFTNESS = 10.0
RIDGE = 0.2
TRUST = (0.1, 0.01, 0.001, 0.0001)
FOLDS = 8
DISTRUST = 3.0
SPREAD = 0.3
TAUGHT = 10_000
CHOOSING = 1_000  # of these, where the weight of their word is chosen
BLOCK = 1_000  # labels that are diffused at a time
GROWTH = 1.1  # of the number of labels, from which on everything is chosen anew


class PoolBeliefs:
    """Probabilities of the classes of all images of a pool.

    Parameters
    ----------
    graph : the pool
    random : draws the images that teach the classifier where they are too many

    Classes are numbered from 0 on in the order of their first label.
    """

    def __init__(self, graph: ImageGraph, random: np.random.RandomState) -> None:
        self.graph = graph
        self.images = np.empty(0, int)
        self.codes = np.empty(0, int)
        self.trust = TRUST[0]
        self.sharpness = Sharpness(deviation=SPREAD)
        n = len(graph)
        self._taught = np.arange(n) if n <= TAUGHT else np.sort(random.permutation(n)[:TAUGHT])
        self._speaks_for = np.float32(n / len(self._taught))
        self._vectors = graph.vectors if n <= TAUGHT else graph.vectors[self._taught]
        moment = self._speaks_for * (self._vectors.T @ self._vectors)
        ridge = np.float32(RIDGE) * np.eye(len(moment), dtype=np.float32)
        self._factors = {t: cho_factor(np.float32(t) * moment + ridge, lower=True, check_finite=False) for t in TRUST}
        self._solved = {t: np.empty((0, len(moment)), np.float32) for t in TRUST}
        self._factor = (TRUST[0], np.empty((0, 0), np.float32))
        self._diffuse_with(USUAL[0])
        self._chosen_at = 0
        self._scores: np.ndarray | None = None

    def _diffuse_with(self, alpha: float) -> None:
        self.alpha = alpha
        self.basis = DiffusionBasis.from_graph(self.graph, alpha)
        self.features = self.basis.features.astype(np.float32)
        # L⁻¹Φ, L⁻¹T and the diagonal of K L⁻ᵀL⁻¹K, L being the Cholesky factor of the kernel of the labels
        self._diffused = (np.empty((0, self.features.shape[1])), np.empty((0, 0)), np.zeros(len(self.graph)))
        self._teachers = self.features if len(self._taught) == len(self.graph) else self.features[self._taught]

    @property
    def n_classes(self) -> int:
        return int(self.codes.max()) + 1 if len(self.codes) else 0

    def learn(self, image: int, code: int) -> None:
        """One label more."""
        self.images = np.append(self.images, image)
        self.codes = np.append(self.codes, code)
        self._scores = None

    def _solutions(self, trust: float) -> np.ndarray:
        """(n, d) A⁻¹x of the labelled images, A being the matrix of the factor of ρ."""
        known = self._solved[trust]
        if len(known) < len(self.images):
            new = self.graph.vectors[self.images[len(known) :]]
            more = cho_solve(self._factors[trust], new.T, check_finite=False).T
            known = self._solved[trust] = np.vstack([known, more])
        return known

    def _corrected(self, weights: np.ndarray) -> np.ndarray:
        """Weights (d, C) that the factor of ρ gives, with what the labelled images change (see ``_correction``)."""
        of, factor = self._factor
        rows, solved = self.graph.vectors[self.images], self._solutions(self.trust)
        n = len(factor) if of == self.trust else 0
        if n < len(rows):
            product = rows[n:] @ solved.T
            product[:, n:] += np.eye(len(rows) - n, dtype=product.dtype) / (1.0 - self.trust)
            factor = grown_factor(factor[:n, :n], product)
            self._factor = (self.trust, factor)
        return np.asarray(weights - solved.T @ cho_solve((factor, True), rows @ weights, check_finite=False))

    def scores(self) -> np.ndarray:
        """(N, C) scores of the linear classifier; there must be a label."""
        if self._scores is None:
            if len(self.images) >= GROWTH * self._chosen_at:
                self.choose()
            self._scores = self.graph.vectors @ self.classifier()
        return self._scores

    def probabilities(self) -> np.ndarray:
        """(N, C) calibrated probabilities."""
        return soften(self.scores().astype(float), np.exp(self.sharpness.log))

    def _diffuse(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What the labels so far make of the pool, taken further where there are new ones."""
        rows, said, seen = self._diffused
        if len(rows) < len(self.images):
            said = np.pad(said, ((0, 0), (0, self.n_classes - said.shape[1])))
            for start in range(len(rows), len(self.images), BLOCK):
                new = self.images[start : start + BLOCK]
                targets = (self.codes[start : start + BLOCK, None] == np.arange(self.n_classes)).astype(float)
                features = self.basis.features[new].astype(float)
                before = rows @ features.T
                kernel = features @ features.T + np.diag(self.basis.own[new] + NOISE) - before.T @ before
                both = np.hstack([features - before.T @ rows, targets - before.T @ said])
                more = solve_triangular(np.linalg.cholesky(kernel), both, lower=True, check_finite=False)
                rows = np.vstack([rows, more[:, : rows.shape[1]]])
                said = np.vstack([said, more[:, rows.shape[1] :]])
                reached = self.features @ rows[start:].T.astype(np.float32)
                seen = seen + np.einsum("ij,ij->i", reached, reached)
            self._diffused = (rows, said, seen)
        return self._diffused

    def variance(self) -> np.ndarray:
        """(N,) variance under the diffusion kernel that the labels leave, own part left aside."""
        return np.asarray(np.maximum(1.0 - self.basis.own - self._diffuse()[2], 0.0))

    def remaining_variance(self) -> np.ndarray:
        """(N,) share of the variance under the diffusion kernel that the labels leave, own part left aside."""
        whole = np.maximum(1.0 - self.basis.own, 1e-12)
        return np.asarray(np.clip(1.0 - self._diffuse()[2] / whole, 0.0, 1.0))

    def classifier(self) -> np.ndarray:
        """Weights (d, C) of the linear classifier."""
        sums = self._moment(self._soft_targets(self.images, self._diffused_weights()))
        sums = np.float32(self.trust) * sums + self.graph.vectors[self.images].T @ _true_targets(self.codes)
        return self._corrected(cho_solve(self._factors[self.trust], sums, check_finite=False))

    def shares(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Images that teach (m,), labelled ones first, and what each says (m, C) of a prepared vector ``x (d,)``: its
        scores are their sum.
        """
        soft, true = self._soft_targets(self.images, self._diffused_weights()), _true_targets(self.codes)
        inverse = self._corrected(cho_solve(self._factors[self.trust], x[:, None], check_finite=False))
        taught = np.float32(self.trust) * self._speaks_for * (self._vectors @ inverse) * soft
        return np.concatenate([self.images, self._taught]), np.vstack(
            [(self.graph.vectors[self.images] @ inverse) * true, taught]
        )

    def _moment(self, soft: np.ndarray, every: int = 1) -> np.ndarray:
        """Σ x q' (d, C) over the images without a label, from one in ``every`` that teaches."""
        return np.asarray(self._speaks_for * np.float32(every) * (self._vectors[::every].T @ soft))

    def _diffused_weights(self) -> np.ndarray:
        """``diffused_weights`` of all labels."""
        rows, said, _ = self._diffuse()
        return np.asarray(rows.T @ said / np.bincount(self.codes), dtype=np.float32)

    def _soft_targets(self, images: np.ndarray, weights: np.ndarray, every: int = 1) -> np.ndarray:
        """(m, C) q of the images that teach, given diffused weights; 0 for ``images``, which have a label."""
        taught = self._taught[::every]
        soft = soften(directions(self._teachers[::every] @ weights), SOFTNESS)
        soft -= np.float32(1.0 / soft.shape[1])
        place = np.minimum(np.searchsorted(taught, images), len(taught) - 1)
        soft[place[taught[place] == images]] = 0.0
        return np.asarray(soft)

    # --- what the labels choose ----------------------------------------------------------------------------------

    def choose(self) -> None:
        """Strength of diffusion, weight of the soft labels and sharpness of the probabilities, by left-out labels."""
        self._chosen_at = len(self.images)
        alpha, _ = choose_diffusion(self.graph, self.images, self.codes, mixes=(0.0,))
        if alpha != self.alpha:
            self._diffuse_with(alpha)
        codes, scores = self.left_out_scores()
        best = -np.inf
        for step, trust in enumerate(TRUST if len(codes) else ()):
            value = fit_sharpness(scores[trust], codes).log_likelihood - DISTRUST * step
            if value > best:
                best, self.trust = value, trust
        if len(codes):  # the narrow prior is that of scores of which the soft labels have a say
            spread = SPREAD if self.trust == TRUST[0] else 1.0
            self.sharpness = fit_sharpness(scores[self.trust], codes, spread)

    def left_out_scores(self) -> tuple[np.ndarray, dict[float, np.ndarray]]:
        """Classes (n',) of the labels that can be left out, and their scores (n', C) for every ρ; -inf for a class that
        no label is left of.
        """
        rows = self.graph.vectors[self.images]
        solutions = {trust: self._solutions(trust) for trust in TRUST}
        products = {trust: rows @ solved.T for trust, solved in solutions.items()}
        scores = {trust: [np.empty((0, self.n_classes))] for trust in TRUST}
        for inside, outside in self.left_out_parts():
            kept, codes = np.unique(self.codes[inside], return_inverse=True)
            images, every = self.images[inside], max(1, len(self._taught) // CHOOSING)
            soft = self._soft_targets(images, diffused_weights(self.basis, images, codes), every)
            moment, true = self._moment(soft, every), _true_targets(codes)
            for trust, solved in solutions.items():
                predicted = solved @ (np.float32(trust) * moment + rows[inside].T @ true)
                product = products[trust]
                rest = _correction(product[np.ix_(inside, inside)], predicted[inside], trust)
                held = np.full((len(outside), self.n_classes), -np.inf)
                held[:, kept] = predicted[outside] - product[np.ix_(outside, inside)] @ rest
                scores[trust].append(held)
        return self.codes[self.left_out()], {trust: np.vstack(parts) for trust, parts in scores.items()}

    def left_out(self) -> np.ndarray:
        """Which of the labels :meth:`left_out_scores` are of, by their places in ``images``."""
        return np.concatenate([np.empty(0, int), *(outside for _, outside in self.left_out_parts())])

    def left_out_parts(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Labels to learn from, and those to predict; of classes that are in both."""
        parts = np.empty(len(self.codes), int)
        # labels of a class go to different parts as far as they can
        parts[np.argsort(self.codes, kind="stable")] = np.arange(len(self.codes)) % FOLDS
        found = []
        for part in range(FOLDS):
            inside = np.flatnonzero(parts != part)
            outside = np.flatnonzero((parts == part) & np.isin(self.codes, self.codes[inside]))
            if len(outside) and len(np.unique(self.codes[inside])) > 1:
                found.append((inside, outside))
        return found


def grown_factor(factor: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Lower Cholesky factor (n + k, n + k) of a matrix whose first n rows have the ``factor (n, n)``, and whose other
    rows are ``rows (k, n + k)``.
    """
    n = len(factor)
    across = solve_triangular(factor, rows[:, :n].T, lower=True, check_finite=False).T if n else rows[:, :0]
    corner = np.linalg.cholesky(rows[:, n:] - across @ across.T)
    return np.vstack([np.pad(factor, ((0, 0), (0, len(rows)))), np.hstack([across, corner])])


def _true_targets(codes: np.ndarray) -> np.ndarray:
    true = one_hot(codes).astype(np.float32)
    return np.asarray(true - np.float32(1.0 / true.shape[1]))


def diffused_weights(basis: DiffusionBasis, images: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """(m, C) weights of the features of an image in its diffused scores, given the classes of some images."""
    targets = one_hot(codes)
    targets /= targets.sum(axis=0)
    features = basis.features[images]
    kernel = features @ features.T + np.diag(basis.own[images] + NOISE)
    return np.asarray(features.T @ np.linalg.solve(kernel, targets), dtype=np.float32)


def _correction(product: np.ndarray, predicted: np.ndarray, trust: float) -> np.ndarray:
    """(n, C) what the n labelled images change, which the Cholesky factor has with the weight ρ (Woodbury's identity).

    Parameters
    ----------
    product : (n, n) X A⁻¹ X' of their vectors X, with the matrix A of the factor
    predicted : (n, C) X A⁻¹ b
    """
    return np.asarray(np.linalg.solve(product + np.eye(len(product), dtype=product.dtype) / (1.0 - trust), predicted))
