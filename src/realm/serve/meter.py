"""Counters of the server, for Prometheus. No text of a question or a document gets in here."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Meter:
    """Counters, gauges and histograms of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("route", "method", "status")
        self._requests = Counter("realm_requests", "Requests by route and status.", labels, registry=self.registry)
        self._latency = Histogram("realm_request_seconds", "From headers to response.", ("route",), buckets=SECONDS, registry=self.registry)
        sizes = (1, 2, 4, 8, 16, 32)
        self._batches = Histogram("realm_batch_size", "Questions computed together.", buckets=sizes, registry=self.registry)
        self._computing = Histogram("realm_batch_seconds", "Seconds of one batch.", buckets=SECONDS, registry=self.registry)
        self._parts = Counter("realm_answer_seconds", "Seconds of answering by part.", ("part",), registry=self.registry)
        self.swaps = Counter("realm_swaps", "States of corpus, index or networks taken into service.", registry=self.registry)
        self.changes = Counter("realm_document_changes", "Documents changed over HTTP.", ("kind",), registry=self.registry)
        self._waiting = Gauge("realm_waiting", "Questions that wait for the model.", registry=self.registry)
        self._versions = Gauge("realm_version", "Versions that answers are made with.", ("of",), registry=self.registry)

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered. ``route`` is a template, never a path."""
        self._requests.labels(route, method, str(status)).inc()
        self._latency.labels(route).observe(seconds)

    def batch(self, count: int, seconds: float) -> None:
        self._batches.observe(count)
        self._computing.observe(seconds)

    def answered(self, timings_ms: dict[str, float]) -> None:
        for part, value in timings_ms.items():
            self._parts.labels(part).inc(value / 1000)

    def text(self, waiting: int, versions: dict[str, int]) -> bytes:
        self._waiting.set(waiting)
        for name, value in versions.items():
            self._versions.labels(name).set(value)
        return generate_latest(self.registry)
