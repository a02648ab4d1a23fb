"""What a fitted model is, in a line: samples, components, and what prediction has found."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from html import escape
from importlib.metadata import metadata
from typing import TYPE_CHECKING, Any

from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from skokde._density import OnlineKDEDensity


class SummaryMixin:
    """A summary, also below scikit-learn's diagram, which has a link to the documentation."""

    _doc_link_module = "skokde"

    @property
    def _doc_link_template(self) -> str:
        """For scikit-learn's diagrams; where it is empty they have no link."""
        address = documentation_address()
        page = "generated/{estimator_module}.{estimator_name}.html"
        return address and f"{address.rstrip('/')}/{page}"

    def summary(self) -> str:
        """What has been learned: samples, components, and what prediction has found.

        In a notebook it stands below the diagram of the estimator.

        Returns
        -------
        str
            One line, and in classifiers one for each class. Of the thresholds, widths of kernels
            (in multiples of the normal-reference scale), shapes and memories that are mixed it has
            those with most weight, and the weight.

        Raises
        ------
        NotFittedError
            Before the first row.

        See Also
        --------
        skokde.OnlineKDEDensity : ``expert_weights_`` are all weights, of ``experts_``.
        skokde.plot.DensityDisplay.from_estimator : A picture of what has been learned.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skokde import OnlineKDEClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> classifier = OnlineKDEClassifier(compression_threshold=0.0, bandwidth="scott")
        >>> print(classifier.fit(X, y).summary())
        150 samples of 4 features in 149 components, 3 classes
        class 0: 50 samples in 50 components
        class 1: 50 samples in 50 components
        class 2: 50 samples in 49 components
        """
        check_is_fitted(self)
        return "\n".join(self._summary_lines())

    def _summary_lines(self) -> list[str]:
        raise NotImplementedError

    @property
    def _repr_html_(self) -> Callable[[], str]:
        diagram = super()._repr_html_
        return lambda: self._with_summary(diagram)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_
        try:
            made = bundle(**kwargs)
        except (ValueError, TypeError):  # as below
            return {"text/plain": repr(self), "text/html": self._repr_html_()}
        if "text/html" in made:
            made["text/html"] = self._with_summary(lambda: made["text/html"])
        return made

    def _with_summary(self, diagram: Callable[[], str]) -> str:
        try:
            page, below = diagram(), self.summary() if self.__sklearn_is_fitted__() else ""
        except (ValueError, TypeError) as error:
            # By a parameter that has been set since, fitted attributes can't be evaluated.
            page, below = clone(self)._repr_html_(), str(error)
        if not below:
            return page
        style = "white-space: pre-wrap; max-height: 20em; overflow: auto"  # of many classes
        return f'{page}<pre style="{style}">{escape(below)}</pre>'


def documentation_address() -> str:
    """Where the documentation is, as the package's metadata say; empty if they do not."""
    entries = metadata("skokde").get_all("Project-URL") or []
    return dict(entry.split(", ", 1) for entry in entries).get("Documentation", "")


def counted(n: float, noun: str, plural: str = "") -> str:
    """A number of things."""
    return f"{n:,.10g} {noun if n == 1 else plural or f'{noun}s'}"


def density_line(density: OnlineKDEDensity, of: str = "") -> str:
    """The summary of a fitted density, whose samples are of some features."""
    samples = counted(density.n_samples_seen_, "sample")
    held = f"{samples}{of} in {counted(density.n_components_, 'component')}"
    best = best_experts(density)
    return f"{held}; best predicted with {', '.join(best)}" if best else held


def best_experts(density: OnlineKDEDensity) -> list[str]:
    """Of each kind of choice that is left to prediction, what has most weight."""
    experts, weights = density.experts_, density.expert_weights_
    best = {
        kind: weights[kind].argmax()
        for kind in ("threshold", "width", "shape", "memory")
        if len(weights[kind]) > 1
    }
    return [
        f"{kind} {shown(kind, experts[kind][i])} ({100 * weights[kind][i]:.0f} %)"
        for kind, i in best.items()
    ]


def shown(kind: str, expert: float | str) -> float | str | Fraction:
    """What the summary calls an expert."""
    if kind == "width":
        return Fraction(expert)
    return "all samples" if (kind, expert) == ("memory", 1.0) else expert
